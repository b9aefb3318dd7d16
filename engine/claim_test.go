package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// A relay that wants to be alone must not wait for ever, nor stop working
// meanwhile, because others of the process are busy.
func TestABusyNeighbourStarvesNoSuspect(t *testing.T) {
	for name, hide := range map[string]func(engine.Store) engine.Store{
		"suspicious": func(s engine.Store) engine.Store { return s },
		"plain":      func(s engine.Store) engine.Store { return plainStore{s} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				// The neighbour: a table and a broker of its own, calls that take long.
				busy := memory.NewDatabase(nil)
				slow := memory.NewTransport(&memory.TransportOptions{Name: "slow"})
				slow.Script(func(string, engine.Outgoing) memory.Outcome {
					return memory.Outcome{Wait: after(400 * time.Millisecond)}
				})
				opts := r.opts
				opts.Batch = 10
				neighbour, err := engine.New(busy.NewStore(), engine.AllTo(slow), &opts)
				if err != nil {
					t.Fatal(err)
				}
				var both sync.WaitGroup
				both.Go(func() {
					if err := neighbour.Run(ctx); err != nil {
						t.Error(err)
					}
				})
				both.Go(func() {
					for ctx.Err() == nil {
						if _, err := busy.Enqueue(ctx, messages(2, "s", "")...); err != nil && ctx.Err() == nil {
							t.Error(err)
						}
						time.Sleep(50 * time.Millisecond)
					}
				})
				defer both.Wait()
				defer cancel()

				suspects := r.enqueue(messages(8, "a", "")...)
				if rows, err := r.db.NewStore().Claim(t.Context(), engine.ClaimRequest{Limit: 8, Lease: time.Second}); err != nil || len(rows) != 8 {
					t.Fatalf("%d rows, %v", len(rows), err)
				}
				r.db.Shift(time.Minute) // their holder is dead
				r.run(r.relay(hide(r.db.NewStore())))
				for range 10 {
					fresh := r.enqueue(messages(20, "a", "")...)
					r.until("what is no suspect is published", 20*time.Second, r.all(fresh, "published"))
					time.Sleep(5 * time.Second)
				}
				r.until("the suspects are published", 2*time.Minute, r.all(suspects, "published"))
				before := len(slow.Delivered())
				time.Sleep(10 * time.Second)
				if n := len(slow.Delivered()) - before; n < 200 {
					t.Errorf("the neighbour published %d messages in 10 seconds", n)
				}
			})
		})
	}
}

// claimsIn counts the claims of a time.
func (r *rig) claimsIn(d time.Duration) int {
	before := r.claims.Load()
	time.Sleep(d)
	return int(r.claims.Load() - before)
}

func TestNothingSpins(t *testing.T) {
	const seconds = 5
	quiet := func(t *testing.T, r *rig, perSecond int) {
		t.Helper()
		time.Sleep(5 * time.Second)
		if n := r.claimsIn(seconds * time.Second); n > perSecond*seconds {
			t.Errorf("%d claims in %d seconds", n, seconds)
		}
	}
	t.Run("idle", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.run(r.relay(nil))
			quiet(t, r, 2)
		})
	})
	t.Run("a storm of wakes", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			relay := r.relay(nil)
			r.run(relay)
			stop := make(chan struct{})
			defer close(stop)
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(500 * time.Microsecond):
						relay.Wake()
					}
				}
			}()
			quiet(t, r, 340)
		})
	})
	t.Run("hints that end", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			store := &closedHints{Store: r.db.NewStore()}
			r.run(r.relay(store))
			quiet(t, r, 2)
			if n := store.calls.Load(); n > 40 {
				t.Errorf("Listen was called %d times", n)
			}
		})
	})
	t.Run("all is paused", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.enqueue(messages(100, "a", "")...)
			r.broker.Fail("a", &engine.Fault{Class: engine.Unavailable})
			r.broker.Fail("", &engine.Fault{Class: engine.Unavailable})
			r.run(r.relay(nil))
			quiet(t, r, 2)
		})
	})
	t.Run("the store fails", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			store := &downStore{Store: r.db.NewStore()}
			r.run(r.relay(store))
			time.Sleep(seconds * time.Second)
			if n := store.calls.Load(); n > 3*seconds {
				t.Errorf("%d calls in %d seconds of a store that fails", n, seconds)
			}
		})
	})
	t.Run("a destination is slow and has a backlog", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.enqueue(messages(5000, "a", "")...)
			r.opts.Delivery.Window = 10
			r.broker.Script(func(string, engine.Outgoing) memory.Outcome {
				return memory.Outcome{Wait: after(2 * time.Second)}
			})
			r.run(r.relay(nil))
			quiet(t, r, 100) // few rows at a time come back, and only to be looked at
		})
	})
}

type closedHints struct {
	engine.Store
	calls atomic.Int64
}

func (s *closedHints) Listen(context.Context) (<-chan struct{}, error) {
	s.calls.Add(1)
	c := make(chan struct{})
	close(c)
	return c, nil
}

// A downStore answers nothing but the check.
type downStore struct {
	engine.Store
	calls atomic.Int64
}

func (s *downStore) Claim(context.Context, engine.ClaimRequest) ([]engine.Claimed, error) {
	s.calls.Add(1)
	return nil, errFlaky
}

// What lies behind the backlog of a slow destination must get out.
func TestABacklogOfASlowDestinationHidesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Batch = 100
		r.opts.Delivery.Window = 10
		store := &slowClaims{Store: r.db.NewStore(), took: 20 * time.Millisecond}
		r.broker.Script(func(d string, _ engine.Outgoing) memory.Outcome {
			if d == "slow" {
				return memory.Outcome{Wait: after(3 * time.Second)}
			}
			return memory.Outcome{}
		})
		r.enqueue(messages(8000, "slow", "")...)
		fast := r.enqueue(messages(100, "fast", "")...)
		r.run(r.relay(store))
		r.until("the fast ones are published", 2*time.Minute, r.all(fast, "published"))
	})
}

// A claim that first has to clear a paused topic out of the way takes long; what
// can go from other lanes does not wait for it.
func TestASlowClaimIsAssisted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store := &slowClaims{Store: r.db.NewStore(), first: time.Hour}
		ids := r.enqueue(messages(200, "a", "")...)
		r.opts.Lease = 3 * time.Hour
		r.run(r.relay(store))
		r.until("published beside the slow claim", time.Minute, r.all(ids, "published"))
		if n := store.most.Load(); n != 2 {
			t.Errorf("%d claims at once", n)
		}
	})
}

// slowClaims takes its time for each claim, or longer for the first, which it
// answers empty, and watches how many are under way. With alone it has nothing for one
// that is made beside another, and counts these.
type slowClaims struct {
	engine.Store
	took, first time.Duration
	calls       atomic.Int64
	now, most   atomic.Int64
	alone       bool
	idle        atomic.Int64
}

func (s *slowClaims) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	if n := s.now.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.now.Add(-1)
	if s.calls.Add(1) == 1 && s.first > 0 {
		sleepOr(ctx, s.first)
		return nil, ctx.Err()
	}
	if beside := s.now.Load() > 1; s.alone && beside {
		s.idle.Add(1)
		return nil, nil
	}
	sleepOr(ctx, s.took)
	return s.Store.Claim(ctx, req)
}

func sleepOr(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Where there is never anything beside a claim, as with one key for all, few ask for it.
func TestClaimsBesideFindNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Batch, r.opts.InFlight = 10, 4
		store := &slowClaims{Store: r.db.NewStore(), took: 10 * time.Millisecond, alone: true}
		ids := r.enqueue(messages(400, "a", "")...)
		began := time.Now()
		r.run(r.relay(store))
		r.until("all published", 10*time.Second, r.all(ids, "published"))
		seconds := time.Since(began).Seconds()
		if n := store.idle.Load(); n < 1 || float64(n) > 5+5*seconds {
			t.Errorf("%d claims beside others found nothing in %.1f s", n, seconds)
		}
	})
}

// Two claims are made side by side while there is plenty, and one otherwise; what is
// in hand stays within the batches in flight.
func TestClaimsSideBySide(t *testing.T) {
	for _, c := range []struct {
		name          string
		inFlight, top int
		perClaim      int // how many messages a claim finds
	}{
		{"plenty", 4, 2, 10},
		{"plenty, one batch in flight", 1, 1, 10},
		{"never a full batch", 4, 1, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.opts.Batch, r.opts.InFlight = 10, c.inFlight
				r.opts.Delivery.Window = 1000
				most := 0
				r.broker.Script(func(string, engine.Outgoing) memory.Outcome {
					return memory.Outcome{Wait: after(20 * time.Millisecond)}
				})
				store := &slowClaims{Store: r.db.NewStore(), took: 10 * time.Millisecond}
				var ids []engine.ID
				if c.perClaim == 10 {
					ids = r.enqueue(messages(200, "a", "")...)
				}
				relay := r.relay(store)
				r.run(relay)
				watch := func() bool {
					most = max(most, relay.Status().InHand)
					return r.all(ids, "published")()
				}
				for range 20 {
					if c.perClaim < 10 {
						ids = append(ids, r.enqueue(messages(c.perClaim, "a", "")...)...)
						relay.Wake()
						time.Sleep(15 * time.Millisecond)
					}
					watch()
				}
				r.until("all published", 10*time.Second, watch)
				if store.most.Load() != int64(c.top) {
					t.Errorf("%d claims at once; want %d", store.most.Load(), c.top)
				}
				if most > c.inFlight*10 {
					t.Errorf("%d messages in hand; %d batches of 10 may be", most, c.inFlight)
				}
			})
		})
	}
}
