package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/engine"
)

var anna = engine.Actor{Name: "anna", Reason: "asked for"}

func contextWithin(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// TestAudit: every command is recorded, chunk by chunk, with who and why and what.
func TestAudit(t *testing.T) {
	keep := DefaultRetention
	d := newDatabase(t, &keep)
	s := d.open()
	msgs := make([]engine.Message, records.Chunk+10)
	for i := range msgs {
		msgs[i] = msg("t", "")
	}
	d.enqueue(msgs...)
	for {
		c := d.claim(s, req(1000))
		if len(c) == 0 {
			break
		}
		var ss []engine.Settlement
		for i := range c {
			ss = append(ss, engine.DeadLetter(c[i].Receipt, false, engine.Fault{Class: engine.Rejected}))
		}
		d.settle(s, 0, ss...)
	}
	n, err := s.Requeue(t.Context(), engine.Filter{Limit: records.Chunk + 5}, anna)
	if n != records.Chunk+5 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.Discard(t.Context(), engine.Filter{}, anna); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.Replay(t.Context(), engine.Filter{Limit: 3}, anna); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	must(t, s.Pause(t.Context(), engine.Pause{Destination: "d", By: engine.Actor{Name: "relay", Relay: true}, Class: engine.Unavailable, ProbeAfter: time.Minute}))
	must(t, s.Pause(t.Context(), engine.Pause{Destination: "d", By: engine.Actor{Name: "relay 2", Relay: true}, Class: engine.Unavailable, ProbeAfter: time.Minute}))
	must(t, s.Pause(t.Context(), engine.Pause{Destination: "d", By: anna}))
	_, err = s.Resume(t.Context(), "d", anna)
	must(t, err)
	type entry struct {
		action, actor, reason, destination string
		affected, ids                      int
	}
	var got []entry
	rows, err := d.db.Query(d.n.sql(`SELECT action, actor, reason, destination, affected, message_ids FROM {audit} ORDER BY id`))
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var e entry
		var ids string
		must(t, rows.Scan(&e.action, &e.actor, &e.reason, &e.destination, &e.affected, &ids))
		var list []engine.ID
		must(t, json.Unmarshal([]byte(ids), &list))
		e.ids = len(list)
		got = append(got, e)
	}
	must(t, rows.Err())
	want := []entry{
		{"requeue", "anna", "asked for", "", records.Chunk, records.Chunk}, {"requeue", "anna", "asked for", "", 5, 5},
		{"discard", "anna", "asked for", "", 5, 5}, {"replay", "anna", "asked for", "", 3, 3},
		{"pause", "relay", "", "d", 0, 0}, {"pause", "anna", "asked for", "d", 0, 0}, {"resume", "anna", "asked for", "d", 0, 0},
	}
	if len(got) != len(want) {
		t.Fatalf("recorded %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("entry %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

// TestArchiveMetadata: what was settled without its content is listed and can't be
// replayed, which is said.
func TestArchiveMetadata(t *testing.T) {
	d := newDatabase(t, &Retention{Published: time.Hour, Metadata: true, Discarded: time.Hour})
	s := d.open()
	d.enqueue(msg("t", "k"), msg("t", "k"))
	if n := d.drain(s, 10); n != 2 {
		t.Fatalf("%d went", n)
	}
	for r, err := range s.Archived(t.Context(), engine.Filter{}) {
		if err != nil || !r.MetadataOnly || r.Payload != nil || r.Topic != "t" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if by := one[string](d, `SELECT min(settled_by) FROM {archive}`); by != "test" {
		t.Errorf("settled by %q", by)
	}
	if n, err := s.Replay(t.Context(), engine.Filter{}, anna); n != 0 || !errors.Is(err, ErrNoContent) {
		t.Errorf("%d replayed, %v", n, err)
	}
}

// TestReplayPages: more than a page is replayed once each, in the order of the first
// time, although all were settled within a millisecond or two.
func TestReplayPages(t *testing.T) {
	keep := DefaultRetention
	d := newDatabase(t, &keep)
	s := d.open()
	msgs := make([]engine.Message, 2*records.Chunk+7)
	for i := range msgs {
		msgs[i] = msg("t", "k")
	}
	ids := d.enqueue(msgs...)
	d.drain(s, 2000)
	d.exec(`UPDATE {archive} SET settled_at = (SELECT max(settled_at) FROM {archive})`)
	if n, err := s.Replay(t.Context(), engine.Filter{}, anna); n != len(ids) || err != nil {
		t.Fatalf("%d of %d replayed, %v", n, len(ids), err)
	}
	c := d.claim(s, req(5000))
	if len(c) != len(ids) {
		t.Fatalf("%d of %d came", len(c), len(ids))
	}
	for i := range c {
		if c[i].ID != ids[i] || c[i].Resends != 1 {
			t.Fatalf("message %d is %v, want %v; resends %d", i, c[i].ID, ids[i], c[i].Resends)
		}
	}
}

// TestIdlePollTakesNoLock: a relay that finds nothing to do never waits for a writer.
func TestIdlePollTakesNoLock(t *testing.T) {
	d := newDatabase(t, nil)
	s := d.store(d.connect(noWait))
	must(t, s.Pause(t.Context(), engine.Pause{Destination: "d", By: anna}))
	c := d.enqueue(msg("t", "k"))
	if len(c) != 1 {
		t.Fatal(c)
	}
	d.settle(s, 0, engine.Reschedule(d.claim(s, req(1))[0].Receipt, time.Hour, engine.Fault{}, engine.RescheduleOptions{HoldKey: true}))
	must(t, d.w.InTx(t.Context(), d.db, func(tx *Tx) error {
		_, err := d.w.Enqueue(t.Context(), tx, msg("t", "other"))
		must(t, err)
		s.hook = func(name string) error { t.Errorf("%s was sent", name); return nil }
		if c := d.claim(s, req(1)); len(c) != 0 {
			t.Errorf("claimed %+v", c)
		}
		s.hook = nil
		return nil
	}))
	if c := d.claim(s, req(1)); len(c) != 1 {
		t.Errorf("after the commit %d came", len(c))
	}
}
