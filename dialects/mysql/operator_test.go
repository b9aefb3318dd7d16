package mysql

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

var anna = engine.Actor{Name: "anna", Reason: "asked for"}

// TestAudit: every command is recorded, chunk by chunk, with who and why and what.
func TestAudit(t *testing.T) {
	testservers.Each(t, testservers.MySQL(), func(t *testing.T, dsn string) {
		keep := DefaultRetention
		audited(t, newDatabase(t, dsn, &keep))
	})
}

func audited(t *testing.T, d *database) {
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
	rows, err := d.db.Query(d.n.sql(`SELECT action, actor, reason, destination, affected, COALESCE(message_ids, '[]') FROM {audit} ORDER BY id`))
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
