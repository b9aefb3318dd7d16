package engine_test

import (
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

func TestAPauseParksWhatIsQueuedBehindIt(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			r.broker = memory.NewTransport(&memory.TransportOptions{KeepsKeyOrder: keeps})
			r.opts.Delivery.Window = 2
			ids := append(r.enqueue(messages(20, "a", "")...), r.enqueue(messages(20, "a", "k")...)...)
			f := &engine.Fault{Class: engine.DestinationFailed, Code: "404"}
			r.broker.Fail("a", f)
			r.run(r.relay(nil))
			r.until("all aside", 10*time.Second, func() bool {
				for _, id := range ids {
					if s := r.state(id); s != "waiting" && s != "held" {
						return false
					}
				}
				return true
			})
			r.broker.Fail("a", nil)
			r.until("all published", time.Minute, r.all(ids, "published"))
			r.wantOrder("k", 20)
		})
	}
}
