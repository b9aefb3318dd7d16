package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// A lease that is gone is told once, and no call is made for it again.
func TestALostLeaseIsToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.ConfirmTimeout = time.Minute
		r.opts.Delivery.DetachAfter = time.Hour
		r.enqueue(messages(1, "a", "")...)
		hold := make(chan struct{})
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome { return memory.Outcome{Wait: hold} })
		r.run(r.relay(nil))
		synctest.Wait()
		r.db.Shift(time.Minute)
		rows, err := r.db.NewStore().Claim(t.Context(), engine.ClaimRequest{Limit: 1, Lease: time.Hour, Idle: true})
		if err != nil || len(rows) != 1 {
			t.Fatalf("takeover: %d rows, %v", len(rows), err)
		}
		time.Sleep(30 * time.Second)
		close(hold)
		time.Sleep(time.Second)
		r.locked(func() {
			if r.lost != 1 {
				t.Errorf("one lease was lost, and told %d times", r.lost)
			}
		})
	})
}

// What waits in a queue while the lease can't be renewed is not sent any more.
func TestNothingIsSentOnALeaseThatMayBeOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.Window = 1
		r.opts.Delivery.DetachAfter = time.Hour
		r.opts.Delivery.ConfirmTimeout = time.Minute
		store := &goneStore{mortalStore: mortalStore{Store: r.db.NewStore()}}
		ids := r.enqueue(messages(5, "a", "")...)
		hold := make(chan struct{})
		sent := 0
		r.broker.Script(func(string, engine.Outgoing) (o memory.Outcome) {
			r.locked(func() { sent++ })
			o.Wait = hold
			return o
		})
		r.run(r.relay(store))
		time.Sleep(11 * time.Second)
		close(hold)
		time.Sleep(time.Second)
		r.locked(func() {
			if sent != 1 {
				t.Errorf("%d were sent; the lease of all but the first had run out before", sent)
			}
		})
		store.dead.Store(false) // from now on it answers
		r.until("all published", time.Minute, r.all(ids, "published"))
	})
}

// A goneStore answers one claim and is dead after that.
type goneStore struct {
	mortalStore
	again atomic.Bool
}

func (s *goneStore) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	if s.dead.Load() {
		return nil, errFlaky
	}
	rows, err := s.Store.Claim(ctx, req)
	s.dead.Store(len(rows) > 0 && !s.again.Swap(true))
	return rows, err
}
