package engine_test

import (
	"context"
	"sync"
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
				both.Go(func() { neighbour.Run(ctx) })
				both.Go(func() {
					for ctx.Err() == nil {
						busy.Enqueue(ctx, messages(2, "s", "")...)
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
