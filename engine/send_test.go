package engine_test

import (
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// Two routes may lead to one destination with different settings. A call carries
// one of them only, and a unit that was given up meanwhile must not stop the next.
func TestAQueueMovesWhateverStandsAtItsHead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.Window = 1
		r.opts.Delivery.ConfirmTimeout = 3 * time.Second
		hold := make(chan struct{})
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome { return memory.Outcome{Wait: hold} })
		slow := r.enqueue(messages(3, "a", "")...)
		r.run(r.relay(nil,
			engine.Route{Topics: "a", Transport: r.broker, Destination: "x", Delivery: engine.Delivery{MaxAttempts: 30}},
			engine.Route{Topics: "b", Transport: r.broker, Destination: "x", Delivery: engine.Delivery{DetachAfter: time.Minute}}))
		time.Sleep(500 * time.Millisecond)
		behind := r.enqueue(messages(3, "b", "")...)
		time.Sleep(4 * time.Second)
		close(hold)
		r.broker.Script(nil)
		r.until("all published", 2*time.Minute, func() bool { return r.all(slow, "published")() && r.all(behind, "published")() })
	})
}
