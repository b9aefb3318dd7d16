package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/engine"
)

// errorsSeen is a tracer that notes the SQLSTATE of every error.
type errorsSeen struct {
	mu    sync.Mutex
	codes map[string]int
}

func (e *errorsSeen) note(err error) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.codes == nil {
		e.codes = map[string]int{}
	}
	e.codes[pgErr.Code]++
}

func (e *errorsSeen) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (e *errorsSeen) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	e.note(d.Err)
}
func (e *errorsSeen) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (e *errorsSeen) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	e.note(d.Err)
}
func (e *errorsSeen) TraceBatchEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	e.note(d.Err)
}

// ledger is what a broker would have seen.
type ledger struct {
	mu     sync.Mutex
	first  map[string][]int64 // per key, the numbers in the order of their first acceptance
	times  map[engine.ID]int
	inHand map[engine.ID]time.Time // until when somebody's lease on it lives
	lost   int                     // settlements that came too late
}

func (l *ledger) take(t testing.TB, cs []engine.Claimed, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range cs {
		if end, held := l.inHand[c.ID]; held && time.Now().Before(end) {
			t.Errorf("message %v is in two hands", c.ID)
		}
		l.inHand[c.ID] = until
	}
}

func (l *ledger) accept(c engine.Claimed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times[c.ID]++; l.times[c.ID] == 1 && c.Key != "" {
		l.first[c.Key] = append(l.first[c.Key], c.Receipt.Seq)
	}
}

func (l *ledger) drop(cs ...engine.Claimed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range cs {
		delete(l.inHand, c.ID)
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.times)
}

// TestSoak: four stores, 20 keys of 500 messages and 10 000 without a key, producers
// that commit late and roll back, failures, slow messages, workers that give up on a
// batch, an operator. No message is in two hands while a lease lives, every key goes
// in its order, none is lost, none without a reason twice, and no deadlock occurs.
// The second half runs under a snapshot that is held open.
func TestSoak(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		const keys, perKey, loose = 20, 500, 10_000
		seen := &errorsSeen{}
		l := &ledger{first: map[string][]int64{}, times: map[engine.ID]int{}, inHand: map[engine.ID]time.Time{}}
		deadline := time.Now().Add(90 * time.Second)
		var wg sync.WaitGroup
		var produced sync.WaitGroup
		for p := range 4 {
			produced.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(p)))
				for n := 0; n < perKey; n += 10 {
					tx, err := db.pool.Begin(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					var msgs []engine.Message
					for k := range keys / 4 { // a key has one producer, so its transactions don't overlap
						for range 10 {
							msgs = append(msgs, msg("t", fmt.Sprintf("key %d", p*keys/4+k)))
						}
					}
					for range loose / 4 * 10 / perKey {
						msgs = append(msgs, msg("t", ""))
					}
					if _, err := db.w.Enqueue(t.Context(), tx, msgs...); err != nil {
						t.Error(err)
						return
					}
					if rng.IntN(10) == 0 {
						rollback(t.Context(), tx)
						n -= 10
						continue
					}
					if rng.IntN(5) == 0 { // a late commit: others go on meanwhile
						if _, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.02)`); err != nil {
							t.Error(err)
							return
						}
					}
					if err := tx.Commit(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		const want = keys*perKey + loose
		for w := range 4 {
			s := db.open(func(c *pgxpool.Config) { c.ConnConfig.Tracer = seen })
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(2, uint64(w)))
				for l.count() < want && time.Now().Before(deadline) {
					work(t, s, l, rng)
				}
			})
		}
		wg.Go(func() { // the operator, and time for what was abandoned
			op := db.open()
			for l.count() < want && time.Now().Before(deadline) {
				if _, err := op.Requeue(t.Context(), engine.Filter{}, engine.Actor{Name: "anna"}); err != nil {
					t.Error(err)
				}
				if _, err := op.Backlog(t.Context()); err != nil {
					t.Error(err)
				}
				// Waits as a person would, without a timer: in the database.
				if _, err := op.pool.Exec(t.Context(), `SELECT pg_sleep(0.05)`); err != nil {
					t.Error(err)
				}
			}
		})
		produced.Wait()
		snapshot, err := db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshot.Exec(t.Context(), db.n.sql(`SELECT count(*) FROM {messages}`)); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		rollback(t.Context(), snapshot)

		if n := l.count(); n != want {
			t.Errorf("%d of %d messages arrived", n, want)
		}
		repeats := 0
		for _, n := range l.times {
			repeats += n - 1
		}
		if repeats > l.lost {
			t.Errorf("%d messages went again, but only %d settlements came too late", repeats, l.lost)
		}
		for key, seqs := range l.first {
			if !slices.IsSorted(seqs) || len(seqs) != perKey {
				t.Errorf("%s: %d messages, in order %v", key, len(seqs), slices.IsSorted(seqs))
			}
		}
		if n := seen.codes["40P01"]; n > 0 {
			t.Errorf("%d deadlocks: %v", n, seen.codes)
		}
		db.sound()
	})
}

const soakLease = 2 * time.Second

// work is one turn of a relay: it publishes a key's messages one after the other.
func work(t *testing.T, s *Store, l *ledger, rng *rand.Rand) {
	start := time.Now()
	cs, err := s.Claim(t.Context(), engine.ClaimRequest{Worker: "soak", Limit: 100 + rng.IntN(400), Lease: soakLease, Idle: true})
	if err != nil {
		t.Errorf("claim: %v", err)
		return
	}
	// The lease counts from before the claim; half of it is for what is in doubt.
	l.take(t, cs, start.Add(soakLease/2))
	abandon := rng.IntN(60) == 0
	closed := map[string]bool{}
	var ss []engine.Settlement
	var done []engine.Claimed
	for i, c := range cs {
		if time.Since(start) > soakLease/2 || abandon && i > len(cs)/2 {
			l.drop(cs[i:]...)
			break // the rest is left to its lease, as by a crash
		}
		if closed[c.Key] {
			ss = append(ss, engine.Release(c.Receipt))
			done = append(done, c)
			continue
		}
		switch n := rng.IntN(200); {
		case n == 0:
			ss = append(ss, engine.Reschedule(c.Receipt, time.Duration(rng.IntN(30))*time.Millisecond, engine.Fault{}, engine.RescheduleOptions{Charge: true, HoldKey: true}))
		case n == 1:
			ss = append(ss, engine.DeadLetter(c.Receipt, true, engine.Fault{Class: engine.Rejected}))
		case n == 2:
			ss = append(ss, engine.Detach(c.Receipt, 50*time.Millisecond))
		default:
			l.accept(c)
			ss = append(ss, engine.MarkPublished(c.Receipt))
			done = append(done, c)
			continue
		}
		if c.Key != "" {
			closed[c.Key] = true
		}
		done = append(done, c)
	}
	l.drop(done...)
	lost, err := s.Settle(t.Context(), ss...)
	if err != nil {
		t.Errorf("settle: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost += len(lost)
}
