package engine_test

import (
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
