package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

var anna = engine.Actor{Name: "anna", Reason: "ticket 7"}

// TestCommandsInChunks: a command changes more than one chunk, records each, and
// leaves alone what does not match.
func TestCommandsInChunks(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		const rows = 2*records.Chunk + 10
		db.exec(`INSERT INTO {messages} (topic, type, state, dead_at, last_error_class) SELECT 't', 't', 3, now(), 'rejected' FROM generate_series(1, $1::integer)`, rows)
		db.exec(`INSERT INTO {messages} (topic, type, state, dead_at) VALUES ('other', 't', 3, now())`)
		n := 0
		for r, err := range s.Dead(t.Context(), engine.Filter{Topic: "t"}) {
			if err != nil {
				t.Fatal(err)
			}
			if r.LastErrorClass != "rejected" || r.DeadAt.IsZero() {
				t.Fatalf("%+v", r)
			}
			n++
		}
		if n != rows {
			t.Errorf("%d dead are listed, want %d", n, rows)
		}
		if n, err := s.Requeue(t.Context(), engine.Filter{Topic: "t", Limit: records.Chunk + 5}, anna); n != records.Chunk+5 || err != nil {
			t.Errorf("requeued %d: %v", n, err)
		}
		if n, err := s.Discard(t.Context(), engine.Filter{ErrorClass: "rejected"}, anna); n != rows-records.Chunk-5 || err != nil {
			t.Errorf("discarded %d: %v", n, err)
		}
		if got := one[string](db, `SELECT string_agg(action || ' ' || affected || ' ' || cardinality(message_ids) || ' ' || actor || ' ' || reason, ', ' ORDER BY id) FROM {audit}`); got !=
			"requeue 500 500 anna ticket 7, requeue 5 5 anna ticket 7, discard 500 500 anna ticket 7, discard 5 5 anna ticket 7" {
			t.Errorf("audit: %s", got)
		}
		if got := one[string](db, `SELECT string_agg(status || ' ' || n, ', ' ORDER BY status) FROM (SELECT status, count(*) n FROM {all} GROUP BY status) s`); got != "dead 1, discarded 505, ready 505" {
			t.Errorf("status: %s", got)
		}
	})
}

// TestReplay: by time, the last settling of each, in their order; what is waiting
// stays; a second replay takes what the first one brought back only after it went.
func TestReplay(t *testing.T) {
	testservers.Each(t, testservers.Postgres(), func(t *testing.T, dsn string) {
		db := newDatabase(t, dsn, &Retention{Published: time.Hour, Discarded: time.Hour})
		s := db.open()
		var ids []engine.ID
		for i := range 3 {
			ids = append(ids, db.enqueue(msg("t", "k"), msg("u", fmt.Sprint(i)))...)
		}
		goAll := func() (got []engine.Claimed) {
			for {
				cs := db.claim(s, req(100))
				if len(cs) == 0 {
					return got
				}
				for _, c := range cs {
					db.settle(s, 0, engine.MarkPublished(c.Receipt))
				}
				got = append(got, cs...)
			}
		}
		goAll()
		if n, err := s.Replay(t.Context(), engine.Filter{Topic: "t"}, anna); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := s.Replay(t.Context(), engine.Filter{Topic: "t"}, anna); n != 0 || err != nil {
			t.Fatalf("what is waiting was replayed: %d %v", n, err)
		}
		got := goAll()
		for i, c := range got {
			if c.ID != ids[2*i] || c.Resends != 1 || string(c.Payload) != `{"a":1}` {
				t.Errorf("%d: %+v", i, c)
			}
		}
		if n, err := s.Replay(t.Context(), engine.Filter{Limit: 2, From: time.Now().Add(-time.Hour)}, anna); n != 2 || err != nil {
			t.Error(n, err)
		}
		goAll()
		if n, err := s.Replay(t.Context(), engine.Filter{To: time.Now().Add(-time.Hour)}, anna); n != 0 || err != nil {
			t.Error(n, err)
		}
		if n := one[int](db, `SELECT count(*) FROM {archive}`); n != 11 {
			t.Errorf("%d archived, want 11", n)
		}
		// Metadata only: nothing to send again.
		if _, err := Migrate(t.Context(), db.pool, &Options{Schema: db.opts.Schema, Retention: &Retention{Published: time.Hour, Metadata: true, Discarded: time.Hour}}, nil); err != nil {
			t.Fatal(err)
		}
		s = db.open()
		bare := db.enqueue(msg("v", ""))
		goAll()
		if n := one[int](db, `SELECT count(*) FROM {archive} WHERE topic = 'v' AND payload IS NULL AND headers IS NULL AND NOT content AND message_id = $1::uuid`, bare[0].String()); n != 1 {
			t.Error("the payload was kept")
		}
		if n, err := s.Replay(t.Context(), engine.Filter{Topic: "v"}, anna); n != 0 || !errors.Is(err, ErrNoContent) {
			t.Error(n, err)
		}
	})
}

// TestPurge: chunks, by the table's own retention; a second purger stands back.
func TestPurge(t *testing.T) {
	testservers.Each(t, testservers.Postgres(), func(t *testing.T, dsn string) {
		db := newDatabase(t, dsn, &Retention{Published: time.Hour, Discarded: 48 * time.Hour})
		s := db.open()
		db.exec(`INSERT INTO {archive} (seq, message_id, topic, type, content_type, occurred_at, created_at, attempts, crashes, resends, outcome, settled_at, content)
			SELECT g, gen_random_uuid(), 't', 't', '', now(), now(), 0, 0, 0, CASE WHEN g % 10 = 0 THEN 'discarded' ELSE 'published' END,
			       now() - CASE WHEN g <= 100 THEN interval '2 hours' ELSE interval '1 minute' END, true FROM generate_series(1, 150) g`)
		for i, want := range []int{60, 30, 0} {
			if n, err := s.Purge(t.Context(), 60); n != want || err != nil {
				t.Errorf("purge %d: %d %v, want %d", i, n, err, want)
			}
		}
		db.shift(47 * time.Hour)
		tx, err := db.pool.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('outward purge ' || $1::text, 0))`, db.n.table())
		must(t, err)
		if n, err := s.Purge(t.Context(), 1000); n != 0 || err != nil {
			t.Errorf("beside another purger: %d %v", n, err)
		}
		rollback(t.Context(), tx)
		if n, err := s.Purge(t.Context(), 1000); n != 55 || err != nil { // the discarded ones of then, the published ones of now
			t.Errorf("%d %v", n, err)
		}
	})
}

// TestResumeInChunks: resuming deletes a row; the relays bring back the rest, also
// if whoever resumed has died since, and a key's rows in their order.
func TestResumeInChunks(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		must(t, s.Pause(t.Context(), engine.Pause{Destination: "d", By: anna}))
		db.exec(`INSERT INTO {messages} (topic, type) SELECT 'p', 't' FROM generate_series(1, 3)`)
		db.enqueue(msg("p", "k"), msg("q", "k"), msg("p", "k"))
		r := req(100)
		r.Paused, r.PausedFor = []string{"p"}, map[string]string{"p": "d"}
		if c := db.claim(s, r); len(c) != 0 {
			t.Fatalf("%+v", c)
		}
		if got := one[string](db, `SELECT string_agg(state || coalesce(paused_for, '-'), ' ' ORDER BY seq) FROM {messages}`); got != "1d 1d 1d 1d 2- 2-" {
			t.Errorf("parked: %s", got)
		}
		db.sound()
		ok, err := s.Resume(t.Context(), "d", anna)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		other := db.open()
		other.q.unpark = replaceLimit(other.q.unpark, 2)
		n := 0
		for range 10 {
			for _, c := range db.claim(other, req(1)) {
				n++
				db.settle(other, 0, engine.MarkPublished(c.Receipt))
			}
		}
		if n != 6 {
			t.Errorf("%d of 6 came back", n)
		}
		db.sound()
	})
}

// TestPauseRows: who replaces whom, and what is recorded.
func TestPauseRows(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		relay := engine.Actor{Name: "relay", Reason: "404", Relay: true}
		pause := func(by engine.Actor, probe time.Duration) {
			must(t, s.Pause(t.Context(), engine.Pause{Destination: "d", By: by, Class: engine.DestinationFailed, ProbeAfter: probe}))
		}
		pause(relay, time.Minute)
		pause(relay, time.Hour) // a second relay that found out later
		ps, err := s.Pauses(t.Context())
		if err != nil || len(ps) != 1 || ps[0].ProbeIn > time.Minute || ps[0].Class != engine.DestinationFailed {
			t.Errorf("%+v %v", ps, err)
		}
		pause(anna, 0)
		pause(relay, time.Minute)
		if ps, err = s.Pauses(t.Context()); err != nil || len(ps) != 1 || ps[0].By != anna {
			t.Errorf("%+v %v", ps, err)
		}
		if ok, err := s.Resume(t.Context(), "d", relay); ok || err != nil {
			t.Error(ok, err)
		}
		if ok, err := s.Resume(t.Context(), "d", anna); !ok || err != nil {
			t.Error(ok, err)
		}
		if got := one[string](db, `SELECT string_agg(action || ' ' || actor || ' ' || destination, ', ' ORDER BY id) FROM {audit}`); got != "pause relay d, pause anna d, resume anna d" {
			t.Errorf("audit: %s", got)
		}
		if s.Pause(t.Context(), engine.Pause{}) == nil {
			t.Error("a pause of nothing was accepted")
		}
	})
}
