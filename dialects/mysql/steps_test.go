package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

var errDisk = errors.New("planted: the statement fails")

// fail makes the hook fail at the nth statement of this name.
func fail(name string, nth int) func(string) error {
	return func(n string) error {
		if n == name {
			if nth--; nth == 0 {
				return errDisk
			}
		}
		return nil
	}
}

// TestStepUnknownClaimIsFreed: a claim whose COMMIT is not answered leaves no lane
// leased, at once or with the next claim.
func TestStepUnknownClaimIsFreed(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.open()
		ids := d.enqueue(msg("t", "a"), msg("t", "b"))
		for _, again := range []bool{false, true} {
			broken := fail("committed", 1)
			s.hook = func(name string) error {
				if again && name == "free" {
					return errDisk
				}
				return broken(name)
			}
			if c, err := s.Claim(t.Context(), req(10)); !errors.Is(err, engine.ErrCommitUnknown) || len(c) > 0 {
				t.Fatalf("%d claimed, %v", len(c), err)
			}
			s.hook = nil
			d.sound()
			if leased := one[int](d, `SELECT COUNT(*) FROM {lanes} WHERE lease_until > {now}`); (leased > 0) != again {
				t.Errorf("%d lanes are leased; freeing failed: %v", leased, again)
			}
			c := d.claim(s, req(10))
			if len(c) != 2 || c[0].ID != ids[0] || c[0].Company != 0 {
				t.Errorf("claimed %+v", c)
			}
			d.settle(s, 0, engine.Release(c[0].Receipt), engine.Release(c[1].Receipt))
		}
	})
}

// TestStepSettleUnknown: a settlement whose COMMIT is not answered is repeated, has
// its effect once, and frees the lanes.
func TestStepSettleUnknown(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.open()
		ids := d.enqueue(msg("t", "k"), msg("t", "k"), msg("t", "k"))
		c := d.claim(s, req(10))
		ss := []engine.Settlement{engine.MarkPublished(c[0].Receipt),
			engine.Reschedule(c[1].Receipt, time.Hour, engine.Fault{}, engine.RescheduleOptions{Charge: true, HoldKey: true}), engine.Release(c[2].Receipt)}
		s.hook = fail("committed", 1)
		if lost, err := s.Settle(t.Context(), ss...); !errors.Is(err, engine.ErrCommitUnknown) || lost != nil {
			t.Fatalf("%v lost, %v", lost, err)
		}
		s.hook = nil
		d.settle(s, 0, ss...)
		if n := one[int](d, `SELECT attempts FROM {messages} WHERE message_id = ?`, ids[1][:]); n != 1 {
			t.Errorf("%d attempts are charged", n)
		}
		if n := one[int](d, `SELECT COUNT(*) FROM {lanes} WHERE lease_until > {now}`); n != 0 {
			t.Errorf("%d lanes are leased", n)
		}
		d.claim(s, req(10))
		if got := d.state(ids[2]); got != "held" {
			t.Errorf("behind the one that waits it is %s", got)
		}
		d.sound()
	})
}

// TestStepAllOrNothing: whichever statement of a transaction fails, nothing of that
// transaction is there, and doing the call again is right.
func TestStepAllOrNothing(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		var names []string
		run := func(hook func(string) error) error {
			for _, table := range []string{"{messages}", "{blocks}"} {
				d.exec(`DELETE FROM ` + table)
			}
			d.exec(`UPDATE {lanes} SET handed = NULL, handed_total = 0, lease_until = '1000-01-01 00:00:00'`)
			s := d.open()
			d.enqueue(msg("t", "a"), msg("t", "a"), msg("t", "b"), msg("t", "b"), msg("p", "c"), msg("t", ""))
			retry := func(do func() error) error {
				s.hook = hook
				err := do()
				s.hook = nil
				d.sound()
				if err != nil {
					return errors.Join(err, do())
				}
				return nil
			}
			var c []engine.Claimed
			var failed error
			note := func(err error) {
				if err != nil && !errors.Is(err, errDisk) {
					t.Error(err)
				}
				failed = errors.Join(failed, err)
			}
			claim := func() (err error) {
				r := req(10)
				r.Paused = []string{"p"}
				c, err = s.Claim(t.Context(), r)
				return err
			}
			note(retry(claim))
			settle := func(ss ...engine.Settlement) {
				note(retry(func() error {
					lost, err := s.Settle(t.Context(), ss...)
					if len(lost) > 0 {
						t.Errorf("%v are lost", lost)
					}
					return err
				}))
			}
			if len(c) != 5 {
				t.Fatalf("%d claimed", len(c))
			}
			settle(engine.MarkPublished(c[0].Receipt), engine.Reschedule(c[2].Receipt, time.Hour, engine.Fault{}, engine.RescheduleOptions{HoldKey: true}),
				engine.DeadLetter(c[1].Receipt, true, engine.Fault{}), engine.Detach(c[4].Receipt, time.Minute), engine.Release(c[3].Receipt))
			note(retry(func() error {
				_, err := s.Extend(t.Context(), []engine.Receipt{c[4].Receipt}, time.Minute)
				return err
			}))
			settle(engine.MarkPublished(c[4].Receipt))
			note(retry(claim)) // holds what is behind
			d.shift(2 * time.Hour)
			note(retry(claim)) // promotes
			if len(c) != 1 {
				t.Fatalf("%d claimed", len(c))
			}
			settle(engine.MarkPublished(c[0].Receipt)) // releases
			d.sound()
			return failed
		}
		// Once to see which statements there are, then once for each.
		must(t, run(func(name string) error { names = append(names, name); return nil }))
		seen := map[string]int{}
		for _, name := range slices.Clone(names) {
			seen[name]++
			if name == "committed" || seen[name] > 2 {
				continue
			}
			if err := run(fail(name, seen[name])); !errors.Is(err, errDisk) {
				t.Errorf("%s: %v", fmt.Sprint(name, " ", seen[name]), err)
			}
		}
		if len(seen) < 20 {
			t.Errorf("only these statements were sent: %v", seen)
		}
	})
}

// TestChunks: no transaction moves more than a chunk, and nothing is left behind.
func TestChunks(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.open()
		head := d.enqueue(msg("t", "k"))
		d.settle(s, 0, engine.DeadLetter(d.claim(s, req(1))[0].Receipt, true, engine.Fault{}))
		s.chunk = 300
		const n = 700
		d.exec(`INSERT INTO {messages} (topic, type, ordering_key) WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 700) SELECT 't', 'a', 'k' FROM i`)
		if c := d.claim(s, req(100)); len(c) != 0 {
			t.Fatalf("%d claimed behind a dead one", len(c))
		}
		if held := one[int](d, `SELECT COUNT(*) FROM {messages} WHERE state = 2`); held != n {
			t.Errorf("%d of %d are held", held, n)
		}
		if done, err := s.Discard(t.Context(), engine.Filter{IDs: head}, engine.Actor{Name: "anna"}); done != 1 || err != nil {
			t.Fatal(done, err)
		}
		if back := one[int](d, `SELECT COUNT(*) FROM {messages} WHERE state = 0`); back != s.chunk {
			t.Errorf("a discard brought back %d, want %d", back, s.chunk)
		}
		d.sound()
		last := int64(0)
		for went := 0; went < n; {
			c := d.claim(s, req(50))
			if len(c) == 0 {
				t.Fatalf("%d of %d went", went, n)
			}
			var ss []engine.Settlement
			for i := range c {
				if c[i].Receipt.Seq <= last {
					t.Fatal("out of order")
				}
				last = c[i].Receipt.Seq
				ss = append(ss, engine.MarkPublished(c[i].Receipt))
			}
			d.settle(s, 0, ss...)
			went += len(c)
		}
		if n := one[int](d, `SELECT COUNT(*) FROM {blocks}`); n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

// TestLargePayloads: a claim holds so many bytes, however many messages it may have.
func TestLargePayloads(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.open()
		s.bytes = 1 << 20
		for range 20 {
			d.enqueue(engine.Message{Topic: "t", Type: "a", Payload: make([]byte, 128<<10)})
		}
		went := 0
		for went < 20 {
			c := d.claim(s, req(1000))
			if len(c) == 0 || len(c) > 8 {
				t.Fatalf("%d messages of 128 KB", len(c))
			}
			for i := range c {
				d.settle(s, 0, engine.MarkPublished(c[i].Receipt))
			}
			went += len(c)
		}
		// All of them parked: they are out of the way although none goes.
		for range 12 {
			d.enqueue(engine.Message{Topic: "p", Key: "k", Type: "a", Payload: make([]byte, 128<<10)})
		}
		behind := d.enqueue(msg("t", ""))
		r := req(1000)
		r.Paused = []string{"p"}
		if c := d.claim(s, r); len(c) != 1 || c[0].ID != behind[0] {
			t.Errorf("behind a paused topic %d came", len(c))
		}
	})
}

// TestManyAtOnce: thousands of messages are claimed, settled and moved by their keys: a
// row that somebody has inserted and not committed is not waited for.
func TestManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		const n = 3500
		fill := func(topic string) {
			d.exec(`INSERT INTO {messages} (topic, type, ordering_key) WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 900) SELECT '` + topic + `', 'a', MOD(i.n, 3) FROM i CROSS JOIN (SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) c LIMIT 3500`)
		}
		fill("t")
		tx, err := d.db.BeginTx(t.Context(), nil)
		must(t, err)
		defer tx.Rollback() //nolint:errcheck // it is what the test leaves open
		_, err = d.w.Enqueue(t.Context(), tx, msg("t", "0"), msg("t", "1"), msg("t", "2"))
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		s := d.open()
		c, err := s.Claim(ctx, req(2*n))
		if err != nil || len(c) != n {
			t.Fatalf("%d claimed, %v", len(c), err)
		}
		var ss []engine.Settlement
		for i := range c {
			if i < n/2 {
				ss = append(ss, engine.MarkPublished(c[i].Receipt))
			} else {
				ss = append(ss, engine.Reschedule(c[i].Receipt, 0, engine.Fault{}, engine.RescheduleOptions{HoldKey: true}))
			}
		}
		if lost, err := s.Settle(ctx, ss...); err != nil || len(lost) > 0 {
			t.Fatalf("%d lost, %v", len(lost), err)
		}
		fill("paused")
		r := req(2 * n)
		r.Paused = []string{"t", "paused"}
		if c, err := s.Claim(ctx, r); err != nil || len(c) > 0 {
			t.Fatalf("%d claimed of paused topics, %v", len(c), err)
		}
		d.sound()
	})
}

// TestClaimsLockOnlyTheirOwn: while a claim is under way another one gets other lanes at
// once, and producers of every lane go on.
func TestClaimsLockOnlyTheirOwn(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		const keys = 400 // over all lanes
		for i := range keys {
			d.enqueue(msg("t", fmt.Sprint("k", i)))
		}
		one, two := d.open(), d.open()
		inside, leave := make(chan struct{}), make(chan struct{})
		one.hook = func(name string) error {
			if name == "commit" {
				select {
				case <-inside:
				default:
					close(inside)
					<-leave
				}
			}
			return nil
		}
		type answer struct {
			c   []engine.Claimed
			err error
		}
		first := make(chan answer, 1)
		go func() {
			c, err := one.Claim(t.Context(), req(1000))
			first <- answer{c, err}
		}()
		select {
		case <-inside:
		case a := <-first:
			t.Fatalf("%d claimed, %v", len(a.c), a.err)
		}
		began := time.Now()
		second := d.claim(two, req(1000))
		for i := range keys {
			d.enqueue(msg("t", fmt.Sprint("k", i)))
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("beside an open claim the others took %v", took)
		}
		close(leave)
		a := <-first
		must(t, a.err)
		if len(a.c) == 0 || len(second) == 0 {
			t.Fatalf("%d and %d claimed", len(a.c), len(second))
		}
		mine := map[engine.ID]bool{}
		for i := range a.c {
			mine[a.c[i].ID] = true
		}
		for i := range second {
			if mine[second[i].ID] {
				t.Fatal("both claimed the same message")
			}
		}
	})
}
