package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

func TestSmoke(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		for _, f := range s.Check(t.Context()) {
			t.Errorf("finding: %+v", f)
		}
		ids := db.enqueue(msg("a", "k"), msg("a", "k"), msg("a", "k"), msg("b", ""), msg("b", "x"))
		c := db.claim(s, req(10))
		if len(c) != 5 || c[0].ID != ids[0] {
			t.Fatalf("%d claimed: %+v", len(c), c)
		}
		db.settle(s, 0, engine.MarkPublished(c[0].Receipt),
			engine.Reschedule(c[1].Receipt, time.Hour, engine.Fault{Err: errors.New("x")}, engine.RescheduleOptions{Charge: true, HoldKey: true}),
			engine.Release(c[2].Receipt))
		db.sound()
		db.settle(s, 0, engine.MarkPublished(c[3].Receipt), engine.DeadLetter(c[4].Receipt, true, engine.Fault{Err: errors.New("x")}))
		db.sound()
		if c := db.claim(s, req(10)); len(c) != 0 {
			t.Fatalf("claimed %+v", c)
		}
		if got := db.state(ids[2]); got != "held" {
			t.Fatal(got)
		}
		b, err := s.Backlog(t.Context())
		t.Logf("%+v %v", b, err)
		db.shift(2 * time.Hour)
		c = db.claim(s, req(10))
		if len(c) != 1 || c[0].ID != ids[1] || c[0].Attempts != 1 {
			t.Fatalf("%+v", c)
		}
		db.settle(s, 0, engine.MarkPublished(c[0].Receipt))
		db.sound()
		c = db.claim(s, req(10))
		if len(c) != 1 || c[0].ID != ids[2] {
			t.Fatalf("%+v", c)
		}
		if lost, err := s.Extend(t.Context(), []engine.Receipt{c[0].Receipt}, time.Minute); len(lost) > 0 || err != nil {
			t.Fatal(lost, err)
		}
		db.settle(s, 0, engine.MarkPublished(c[0].Receipt))
		db.sound()
	})
}
