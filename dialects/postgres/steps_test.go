package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/internal/claims"
	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/engine"
)

// These tests stop a store between two of its statements and let another one act
// there. Each is run once as the statements are, when the table must stay sound,
// and once with the rule switched off that keeps it so, when it must not: else the
// test would prove nothing.

// stopAt makes s stop before the statement name if the one before it was prev, once.
func stopAt(s *Store, prev, name string) (reached <-chan struct{}, resume func()) {
	at, on := make(chan struct{}), make(chan struct{})
	last, stopped := "", false
	s.hook = func(n string) error {
		if n == name && last == prev && !stopped {
			stopped = true
			close(at)
			<-on
		}
		last = n
		return nil
	}
	return at, func() { close(on) }
}

// unsound says how many rows are held by nothing, and how many entries have no row.
func (db *database) unsound() int {
	db.t.Helper()
	return one[int](db, `SELECT (SELECT count(*) FROM {messages} m WHERE state = 2 AND NOT EXISTS (SELECT FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq < m.seq))
		+ (SELECT count(*) FROM {blocks} b WHERE seq > 0 AND NOT EXISTS (SELECT FROM {messages} m WHERE m.seq = b.seq AND state IN (0, 1, 3)))`)
}

// rule runs f with a rule on, when nothing may be wrong afterwards, and off.
func rule(t *testing.T, f func(t *testing.T, db *database, off bool)) {
	each(t, func(t *testing.T, db *database) {
		for _, off := range []bool{false, true} {
			name := "on"
			if off {
				name = "off"
			}
			t.Run(name, func(t *testing.T) {
				db := newDatabase(t, db.dsn, nil)
				f(t, db, off)
				switch n := db.unsound(); {
				case !off && n > 0:
					t.Errorf("%d rows or entries are stuck", n)
				case off && n == 0:
					t.Error("with the rule off nothing went wrong: the test does not test it")
				}
			})
		}
	})
}

func noLock(sql string) string { return strings.Replace(sql, "FOR NO KEY UPDATE", "", 1) }

// trusting holds what was read as blocked, without looking again.
func trusting(hold string) string {
	hold = strings.Replace(hold, "CROSS JOIN LATERAL", "LEFT JOIN LATERAL", 1)
	hold = strings.Replace(hold, "LIMIT 1) low\n", "LIMIT 1) low ON true\n", 1)
	return strings.Replace(hold, "AND low.seq > 0 AND low.seq < m.seq", "", 1)
}

// The first hole: a detached row was settled without the lane's lock, so it did not
// see the row that was just being held behind it.
func TestStepDetachedNeedsLaneLock(t *testing.T) {
	rule(t, func(t *testing.T, db *database, off bool) {
		ids := db.enqueue(msg("t", "k"), msg("t", "k"))
		a, b := db.open(), db.open()
		if off {
			a.q.lock = noLock(a.q.lock)
		}
		c := db.claim(a, req(1))
		db.settle(a, 0, engine.Detach(c[0].Receipt, time.Minute))
		reached, resume := stopAt(b, "hold", "commit")
		var got []engine.Claimed // b looks again, and may find what came free meanwhile
		claimed := async(func() (err error) { got, err = b.Claim(t.Context(), req(10)); return err })
		<-reached // the second message is held, uncommitted
		settled := async(func() error { _, err := a.Settle(t.Context(), engine.MarkPublished(c[0].Receipt)); return err })
		if off {
			must(t, <-settled)
		} else {
			db.waitBlocked(1)
		}
		resume()
		must(t, <-claimed)
		if !off {
			must(t, <-settled)
			if got = append(got, db.claim(db.open(), req(10))...); len(got) != 1 || got[0].ID != ids[1] {
				t.Errorf("the second message does not come: %v", got)
			}
		}
	})
}

// The same by an operator's discard of a dead head.
func TestStepDiscardNeedsLaneLock(t *testing.T) {
	rule(t, func(t *testing.T, db *database, off bool) {
		ids := db.enqueue(msg("t", "k"), msg("t", "k"))
		a, b := db.open(), db.open()
		c := db.claim(a, req(1))
		db.settle(a, 0, engine.DeadLetter(c[0].Receipt, true, engine.Fault{}))
		if off {
			a.q.lock = noLock(a.q.lock)
		}
		reached, resume := stopAt(b, "hold", "commit")
		var got []engine.Claimed
		claimed := async(func() (err error) { got, err = b.Claim(t.Context(), req(10)); return err })
		<-reached
		discarded := async(func() error {
			_, err := a.Discard(t.Context(), engine.Filter{}, anna)
			return err
		})
		if off {
			must(t, <-discarded)
		} else {
			db.waitBlocked(1)
		}
		resume()
		must(t, <-claimed)
		if !off {
			must(t, <-discarded)
			if got = append(got, db.claim(db.open(), req(10))...); len(got) != 1 || got[0].ID != ids[1] {
				t.Errorf("the second message does not come: %v", got)
			}
		}
	})
}

// The second hole: locked and held in one statement, the hold saw the table as it
// was before it waited for the lock.
func TestStepLockIsAStatement(t *testing.T) {
	rule(t, func(t *testing.T, db *database, off bool) {
		ids := db.enqueue(msg("t", "k"), msg("t", "k"))
		a, b := db.open(), db.open()
		if off {
			b.q.lock = noLock(b.q.lock)
			b.q.hold = strings.Replace(b.q.hold, "WITH c AS", "WITH locked AS MATERIALIZED (SELECT l.lane FROM "+db.n.sql("{lanes}")+
				" l WHERE l.token = $2::uuid ORDER BY l.lane FOR NO KEY UPDATE), c AS", 1)
			b.q.hold = strings.Replace(b.q.hold, "WHERE m.seq = ANY ($1::bigint[])", "WHERE (SELECT count(*) FROM locked) > 0 AND m.seq = ANY ($1::bigint[])", 1)
		}
		c := db.claim(a, req(1))
		db.settle(a, 0, engine.Detach(c[0].Receipt, time.Minute))
		// b has read the second message as blocked and is about to hold it.
		readB, resumeB := stopAt(b, "limits", "lock")
		var got []engine.Claimed
		claimed := async(func() (err error) { got, err = b.Claim(t.Context(), req(10)); return err })
		<-readB
		// a settles the first one, and has the lane's lock.
		settledA, resumeA := stopAt(a, "publish", "commit")
		settled := async(func() error { _, err := a.Settle(t.Context(), engine.MarkPublished(c[0].Receipt)); return err })
		<-settledA
		resumeB()
		db.waitBlocked(1)
		resumeA()
		must(t, <-settled)
		must(t, <-claimed)
		if got = append(got, db.claim(db.open(), req(10))...); !off && (len(got) != 1 || got[0].ID != ids[1]) {
			t.Errorf("the second message does not come: %v", got)
		}
	})
}

// The third hole: the hold trusted what the read had said.
func TestStepHoldLooksAgain(t *testing.T) {
	rule(t, func(t *testing.T, db *database, off bool) {
		db.enqueue(msg("t", "k"), msg("t", "k"))
		a, b := db.open(), db.open()
		if off {
			b.q.hold = trusting(b.q.hold)
		}
		c := db.claim(a, req(1))
		db.settle(a, 0, engine.Detach(c[0].Receipt, time.Minute))
		readB, resumeB := stopAt(b, "limits", "lock")
		claimed := async(func() error { _, err := b.Claim(t.Context(), req(10)); return err })
		<-readB
		db.settle(a, 0, engine.MarkPublished(c[0].Receipt))
		resumeB()
		must(t, <-claimed)
	})
}

// The fourth hole: who releases a long key dies between two chunks.
func TestStepDrainMarker(t *testing.T) {
	rule(t, func(t *testing.T, db *database, off bool) {
		ids := db.enqueue(msg("t", "k"), msg("t", "k"), msg("t", "k"), msg("t", "k"), msg("t", "k"), msg("t", "k"))
		a := db.open()
		small := func(s *Store) *Store {
			s.q.publish, s.q.drain = replaceLimit(s.q.publish, 2), replaceLimit(s.q.drain, 2)
			return s
		}
		small(a)
		if off {
			a.q.publish = strings.Replace(a.q.publish, "FROM rest ON CONFLICT", "FROM rest WHERE false ON CONFLICT", 1)
		}
		c := db.claim(a, req(1))
		db.settle(a, 0, engine.Reschedule(c[0].Receipt, time.Hour, engine.Fault{}, engine.RescheduleOptions{HoldKey: true}))
		if len(db.claim(a, req(10))) != 0 {
			t.Fatal("something came")
		}
		db.shift(2 * time.Hour)
		c = db.claim(a, req(10))
		db.settle(a, 0, engine.MarkPublished(c[0].Receipt)) // and here it dies
		if off {
			return
		}
		if n := db.unsound(); n > 0 {
			t.Errorf("%d stuck between the chunks", n)
		}
		if got := one[int](db, `SELECT count(*) FROM {messages} WHERE state = 2`); got != 3 {
			t.Errorf("%d are still held, want 3", got)
		}
		late := db.enqueue(msg("t", "k"))
		ids = append(ids, late...)
		b := small(db.open())
		got := db.claim(b, req(10))
		for i, m := range got {
			if m.ID != ids[1+i] {
				t.Fatalf("message %d of the key is %v, want %v", i, m.ID, ids[1+i])
			}
		}
		if len(got) != 6 {
			t.Errorf("%d messages came, want 6", len(got))
		}
	})
}

// The fifth hole: a reader took a released row for blocked, because the rest of its
// key was still coming back; when the block had gone it held the row again.
func TestStepReleasedIsNotHeldAgain(t *testing.T) {
	rule(t, func(t *testing.T, db *database, off bool) {
		db.enqueue(msg("t", "k"), msg("t", "k"))
		s := db.open()
		if off {
			s.q.hold = trusting(s.q.hold)
		}
		c := db.claim(s, req(10)) // leaves the lane's token to s
		db.settle(s, 0, engine.Release(c[0].Receipt), engine.Release(c[1].Receipt))
		r := &look{req: req(10), token: c[0].Receipt.Token, lanes: []int16{reading.LaneOf(c[0].Receipt)},
			Choice: reading.Choice{Behind: []*reading.Row{{Claimed: c[1]}}}}
		s.holdBlocked(t.Context(), r)
	})
	// And such a row is not asked to be held in the first place.
	r := &look{req: req(10), rows: []reading.Row{{Claimed: engine.Claimed{Message: engine.Message{Key: "k"}, Receipt: engine.Receipt{Seq: 7}}, Low: 0}}}
	r.choose()
	if len(r.Behind) != 0 || len(r.Batch) != 0 {
		t.Error("a row of a key that is being brought back was taken for blocked or free")
	}
}

// A claim that clears the front of its lanes does not make the others wait, nor do
// they begin with lanes of their own: they keep to those that are clear.
func TestStepOthersClaimWhileOneClears(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		db.exec(`INSERT INTO {pauses} VALUES ('paused', 'anna', false, '', '', now(), 'infinity')`)
		db.exec(`INSERT INTO {messages} (topic, type) SELECT 'paused', 't' FROM generate_series(1, 6400)`)
		db.exec(`INSERT INTO {messages} (topic, type) SELECT 'free', 't' FROM generate_series(1, 6400)`)
		r := engine.ClaimRequest{Limit: 100, Lease: time.Minute, Idle: true, Paused: []string{"paused"}}
		lanesOf := func(rows []engine.Claimed) map[int16]bool {
			lanes := map[int16]bool{}
			var ss []engine.Settlement
			for _, c := range rows {
				lanes[reading.LaneOf(c.Receipt)] = true
				ss = append(ss, engine.MarkPublished(c.Receipt))
			}
			db.settle(s, 0, ss...)
			return lanes
		}
		first := lanesOf(db.claim(s, r))
		reached, resume := stopAt(s, "ahead", "pause")
		second := make(chan map[int16]bool, 1)
		clearing := async(func() error {
			rows, err := s.Claim(t.Context(), r)
			second <- lanesOf(rows)
			return err
		})
		<-reached
		parked := one[int](db, `SELECT count(*) FROM {messages} WHERE paused_for IS NOT NULL`)
		beside := lanesOf(db.claim(s, r))
		if len(beside) == 0 {
			t.Error("nothing was claimed beside a claim that clears")
		}
		for lane := range beside {
			if !first[lane] {
				t.Errorf("lane %d was claimed beside, and is not known to be clear", lane)
			}
		}
		if n := one[int](db, `SELECT count(*) FROM {messages} WHERE paused_for IS NOT NULL`); n != parked {
			t.Errorf("the claim beside parked %d rows", n-parked)
		}
		resume()
		must(t, <-clearing)
		for lane := range <-second {
			if first[lane] {
				t.Errorf("lane %d was used last and claimed again first", lane)
			}
		}
		db.sound()
	})
}

// A claim whose COMMIT is not answered frees what it may have leased before it
// returns the error.
func TestStepUnknownClaimIsFreed(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for _, done := range []bool{true, false} {
			db.exec(`DELETE FROM {messages}`)
			db.enqueue(msg("t", ""), msg("t", "k"))
			w := &wire{}
			s := db.open(w.through)
			if c := db.claim(s, engine.ClaimRequest{Limit: 1, Lease: time.Minute}); len(c) != 1 {
				t.Fatal(len(c))
			} else {
				db.settle(s, 0, engine.Release(c[0].Receipt))
			}
			w.cut("handed_seq   = coalesce", done)
			if c, err := s.Claim(t.Context(), req(10)); err == nil {
				t.Fatalf("the claim did not fail: %v", c)
			}
			if !w.wasCut() {
				t.Fatal("the wire was not cut")
			}
			// Where the second half never arrived, the server has to notice first that the
			// connection is gone.
			var got []engine.Claimed
			other := db.open()
			for end := time.Now().Add(30 * time.Second); len(got) < 2 && time.Now().Before(end); {
				got = append(got, db.claim(other, req(10))...)
			}
			if len(got) != 2 {
				t.Errorf("applied %v: %d messages are free, want 2", done, len(got))
			}
			for _, m := range got {
				db.settle(other, 0, engine.Release(m.Receipt))
				if m.Company != 0 || m.Crashes != 0 {
					t.Errorf("applied %v: a message that was never handed out is a suspect", done)
				}
			}
		}
	})
}

// The same when the database can't be reached to free it: the next claim does.
func TestStepOrphanIsFreedLater(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.enqueue(msg("t", ""))
		s := db.open()
		c := db.claim(s, req(10))
		s.claims.KeepOrphan(claims.Orphan{Token: c[0].Receipt.Token, Lanes: []int16{reading.LaneOf(c[0].Receipt)}, Until: time.Now().Add(time.Hour)})
		if c := db.claim(s, req(10)); len(c) != 1 || c[0].Company != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// A settlement whose answer was lost is repeated, by rule: nothing is lost, nothing
// is done twice, and the lanes are free.
func TestStepSettleRepeated(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for _, done := range []bool{true, false} {
			db.exec(`DELETE FROM {messages}`)
			db.exec(`DELETE FROM {blocks}`)
			ids := db.enqueue(msg("t", ""), msg("t", "k"), msg("t", "j"), msg("t", "i"))
			w := &wire{}
			s := db.open(w.through)
			c := db.claim(s, req(10))
			ss := []engine.Settlement{engine.MarkPublished(c[0].Receipt),
				engine.Reschedule(c[1].Receipt, time.Hour, engine.Fault{Err: errors.New("x")}, engine.RescheduleOptions{Charge: true, HoldKey: true}),
				engine.DeadLetter(c[2].Receipt, true, engine.Fault{}), engine.Release(c[3].Receipt)}
			w.cut("COMMIT\x00", done)
			if _, err := s.Settle(t.Context(), ss...); err == nil {
				t.Fatal("the settlement did not fail")
			}
			db.settle(s, 0, ss...)
			if a := one[int](db, `SELECT attempts FROM {messages} WHERE message_id = $1::uuid`, ids[1].String()); a != 1 {
				t.Errorf("applied %v: charged %d times", done, a)
			}
			if got := []string{db.state(ids[0]), db.state(ids[1]), db.state(ids[2]), db.state(ids[3])}; strings.Join(got, " ") != "gone waiting dead ready" {
				t.Errorf("applied %v: %v", done, got)
			}
			db.sound()
			other := db.open()
			if c := db.claim(other, req(10)); len(c) != 1 || c[0].Company != 0 {
				t.Errorf("applied %v: %d messages are free, want the released one", done, len(c))
			} else {
				db.settle(other, 0, engine.Release(c[0].Receipt))
			}
		}
	})
}

// Two settlements that answer the last messages of a claim at a time: neither may
// free the lanes while the other is under way, and in the end they are free.
func TestStepFreedByTheLast(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		db.enqueue(msg("t", "k"), msg("t", "k"))
		s := db.open()
		c := db.claim(s, req(10))
		reached, resume := stopAt(s, "publish", "commit")
		first := async(func() error { _, err := s.Settle(t.Context(), engine.MarkPublished(c[0].Receipt)); return err })
		<-reached
		second := async(func() error { _, err := s.Settle(t.Context(), engine.MarkPublished(c[1].Receipt)); return err })
		db.waitBlocked(1)
		resume()
		must(t, <-first)
		must(t, <-second)
		db.enqueue(msg("t", "k"))
		if c := db.claim(db.open(), req(10)); len(c) != 1 {
			t.Errorf("the lane is not free: %d messages", len(c))
		}
		if n := s.claims.Len(); n != 0 {
			t.Errorf("%d claims are remembered", n)
		}
	})
}

// replaceLimit makes a statement's chunks small.
func replaceLimit(sql string, n int) string {
	return strings.ReplaceAll(sql, "LIMIT 10000", fmt.Sprint("LIMIT ", n))
}

func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
