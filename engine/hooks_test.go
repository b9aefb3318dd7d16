package engine_test

import (
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

func TestHooksMayCallTheRelay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var relay *engine.Relay
		calls := 0
		back := func() {
			r.locked(func() { calls++ })
			relay.Wake()
			relay.Status()
			if _, err := relay.Step(t.Context()); err == nil {
				t.Error("a second Step ran beside Run")
			}
		}
		r.opts.Delivery.OnDead = engine.Pass
		r.opts.Hooks = engine.Hooks{
			Claimed:     func(int, time.Duration) { back() },
			Published:   func(engine.Outgoing, string, engine.Result, time.Duration) { back() },
			Settled:     func(int, time.Duration) { back() },
			Retried:     func(engine.Claimed, engine.Fault, bool) { back() },
			Buried:      func(engine.Claimed, engine.Fault) { back() },
			Lost:        func(int, string) { back() },
			Paused:      func(engine.Pause) { back() },
			Resumed:     func(string) { back() },
			StoreFailed: func(string, error) { back() },
			Backlog:     func(engine.Backlog) { back() },
		}
		relay = r.relay(&flakyStore{Store: r.db.NewStore()})
		ids := append(r.enqueue(messages(20, "a", "k")...), r.enqueue(messages(20, "b", "")...)...)
		rejected := r.enqueue(messages(1, "a", "")...)
		r.broker.Script(faultOn(rejected[0], engine.Fault{Class: engine.Rejected}))
		r.broker.Fail("b", &engine.Fault{Class: engine.DestinationFailed})
		r.run(relay)
		time.Sleep(30 * time.Second)
		r.broker.Fail("b", nil)
		r.until("all published", time.Minute, r.all(ids, "published"))
		if calls == 0 {
			t.Error("no hook was called")
		}
		r.stop()
	})
}
