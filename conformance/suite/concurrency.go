package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

// ledger is what a receiver would see: what was accepted, in which order.
type ledger struct {
	mu       sync.Mutex
	previous map[engine.ID]engine.ID // of the same key
	accepted map[engine.ID]int
	early    []engine.ID // accepted before their predecessors
}

// patience is how long a clause waits for other goroutines to get somewhere.
const patience = 20 * time.Second

func newLedger() *ledger {
	return &ledger{previous: map[engine.ID]engine.ID{}, accepted: map[engine.ID]int{}}
}

// follow says that each of ids comes after the one before.
func (l *ledger) follow(ids []engine.ID) {
	for i := 1; i < len(ids); i++ {
		l.previous[ids[i]] = ids[i-1]
	}
}

func (l *ledger) accept(id engine.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, some := l.previous[id]; some && l.accepted[p] == 0 {
		l.early = append(l.early, id)
	}
	l.accepted[id]++
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
}

func concurrencyClauses() []Clause {
	return []Clause{
		clause("store.concurrent.order", "Several processes at once, each failing now and then, keep every key's order and send nothing twice.", func(b *bench) {
			// An empty claim is no end here: others may have every lane just now.
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			defer cancel()
			l := newLedger()
			want := 0
			for k := range 15 {
				ids := b.bulk(fmt.Sprint("key ", k), 12)
				l.follow(ids)
				want += len(ids)
			}
			var wg sync.WaitGroup
			for n := range 4 {
				st, rng := b.s.Open(b.T), rand.New(rand.NewPCG(1, uint64(n)))
				wg.Go(func() {
					for ctx.Err() == nil {
						cs, err := claimWithin(b.Context(), st, 1+rng.IntN(8), true)
						if err != nil {
							b.Errorf("Claim: %v", err)
							return
						}
						if len(cs) == 0 {
							if l.count() == want {
								return
							}
							continue
						}
						var ss []engine.Settlement
						closed := map[string]bool{}
						for _, c := range cs {
							switch r := rng.IntN(10); {
							case closed[c.Key]:
								ss = append(ss, release(c))
							case r == 0:
								closed[c.Key] = true
								ss = append(ss, retry(c, 0))
							case r == 1:
								closed[c.Key] = true
								ss = append(ss, release(c))
							default:
								l.accept(c.ID)
								ss = append(ss, published(c))
							}
						}
						rng.Shuffle(len(ss), func(i, j int) { ss[i], ss[j] = ss[j], ss[i] })
						if lost, err := st.Settle(b.Context(), ss...); err != nil || len(lost) > 0 {
							b.Errorf("Settle: %d lost, error %v", len(lost), err)
							return
						}
					}
				})
			}
			wg.Wait()
			if len(l.early) > 0 {
				b.Errorf("%d messages went before their predecessors, %v first", len(l.early), l.early[0])
			}
			if l.count() != want {
				b.Errorf("%d of %d messages went", l.count(), want)
			}
			for id, n := range l.accepted {
				if n != 1 {
					b.Errorf("message %v went %d times", id, n)
				}
			}
		}),

		clause("store.concurrent.enqueue", "While others claim and settle, producers commit, late ones too, and nothing is lost.", func(b *bench) {
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			defer cancel()
			const producers, rounds = 2, 20
			var (
				wg   sync.WaitGroup
				want = producers * rounds * 4
				l    = newLedger()
			)
			for range producers {
				wg.Go(func() {
					for range rounds {
						first, second := b.s.Begin(b.T), b.s.Begin(b.T)
						for i, tx := range []Tx{first, second} {
							if _, err := tx.Enqueue(b.Context(), message(""), message(fmt.Sprint("key ", i))); err != nil {
								b.Errorf("Enqueue: %v", err)
							}
						}
						for _, tx := range []Tx{second, first} { // the lower numbers later
							if err := tx.Commit(b.Context()); err != nil {
								b.Errorf("Commit: %v", err)
							}
						}
					}
				})
			}
			for range 2 {
				st := b.s.Open(b.T)
				wg.Go(func() {
					for ctx.Err() == nil {
						cs, err := claimWithin(b.Context(), st, 20, true)
						if err != nil {
							b.Errorf("Claim: %v", err)
							return
						}
						for _, c := range cs {
							l.accept(c.ID)
						}
						if lost, err := st.Settle(b.Context(), each(engine.MarkPublished, cs)...); err != nil || len(lost) > 0 {
							b.Errorf("Settle: %d lost, error %v", len(lost), err)
						}
						if l.count() == want {
							return
						}
					}
				})
			}
			wg.Wait()
			for id, n := range l.accepted {
				if n != 1 {
					b.Errorf("message %v went %d times", id, n)
				}
			}
			if l.count() != want {
				b.Errorf("%d of %d messages went", l.count(), want)
			}
		}),

		// rails/solid_queue#531: inserts deadlocked with claims.
		clause("store.concurrent.errors", "Claims, settlements, renewals, detaches, takeovers and operators at the same time give no errors and lose nothing.", func(b *bench) {
			var all []engine.ID
			for k := range 8 {
				all = append(all, b.bulk(fmt.Sprint("key ", k), 8)...)
			}
			all = append(all, b.loose(40)...)
			var wg sync.WaitGroup
			for n := range 4 {
				st, rng := b.s.Open(b.T), rand.New(rand.NewPCG(2, uint64(n)))
				wg.Go(func() {
					for range 60 {
						if err := churn(b.Context(), st, rng); err != nil {
							b.Errorf("%v", err)
							return
						}
					}
				})
			}
			wg.Wait()
			// The end: whatever state the messages are in, they come out.
			w := b.worker()
			op, _ := w.Store.(engine.Operator)
			seen := map[engine.ID]bool{}
			for range 40 {
				b.pass(time.Hour)
				if op != nil {
					if _, err := op.Requeue(b.Context(), engine.Filter{}, anna); err != nil {
						b.Fatalf("Requeue: %v", err)
					}
				}
				for _, c := range w.drain() {
					if seen[c.ID] {
						b.Fatalf("message %v went again after it was settled", c.ID)
					}
					seen[c.ID] = true
				}
				left := 0
				for _, id := range all {
					if s := b.row(id).State; s != Archived && s != Absent && (s != Dead || op != nil) {
						left++
					}
				}
				if left == 0 {
					return
				}
			}
			b.Fatalf("messages are left that never came")
		}),
	}
}

// churn claims a few messages and does something different to each.
func churn(ctx context.Context, st engine.Store, rng *rand.Rand) error {
	// Very short leases, so that takeovers, promotions and late answers occur.
	lease := time.Duration(1+rng.IntN(20)) * time.Millisecond
	cs, err := st.Claim(ctx, engine.ClaimRequest{Worker: "churn", Limit: 1 + rng.IntN(10), Lease: lease, Idle: rng.IntN(2) == 0})
	if err != nil {
		return fmt.Errorf("Claim: %w", err)
	}
	op, operated := st.(engine.Operator) // nobody else ends a hold
	if operated && rng.IntN(4) == 0 {
		if _, err := op.Requeue(ctx, engine.Filter{}, anna); err != nil {
			return fmt.Errorf("Requeue: %w", err)
		}
	}
	if len(cs) == 0 {
		return nil
	}
	var ss []engine.Settlement
	for _, c := range cs {
		switch rng.IntN(9) {
		case 0:
			ss = append(ss, retry(c, time.Duration(rng.IntN(5))*time.Millisecond))
		case 1:
			ss = append(ss, engine.DeadLetter(c.Receipt, operated, refused))
		case 2:
			ss = append(ss, engine.Detach(c.Receipt, lease), published(c))
		case 3:
			ss = append(ss, engine.Detach(c.Receipt, lease))
		case 4:
			ss = append(ss, release(c))
		case 5: // nothing: a crash
		default:
			ss = append(ss, published(c))
		}
	}
	if _, err := st.Extend(ctx, receipts(cs), lease); err != nil {
		return fmt.Errorf("Extend: %w", err)
	}
	for range 2 { // said twice, as after a lost answer
		if _, err := st.Settle(ctx, ss...); err != nil {
			return fmt.Errorf("Settle: %w", err)
		}
	}
	return nil
}
