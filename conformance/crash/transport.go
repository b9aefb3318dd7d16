package crash

import (
	"context"

	"github.com/outward-dev/outward/engine"
)

// Transport is [Rig.Store] for a transport. Of one transport it is called once: a
// relay tells two by their names.
func (r *Rig) Transport(t engine.Transport) engine.Transport {
	w := &transport{t, r}
	if p, ok := t.(engine.Prober); ok {
		return struct {
			*transport
			engine.Prober
		}{w, p}
	}
	return w
}

// A transport is one with a rig around it. It passes on what is not told here.
type transport struct {
	engine.Transport
	r *Rig
}

// Publish stops where messages are handed over, and where they were confirmed.
func (t *transport) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(i int, res engine.Result)) {
	t.r.lock()
	t.r.at(Handed)
	t.r.mu.Unlock()
	t.Transport.Publish(ctx, destination, msgs, func(i int, res engine.Result) {
		if res.Fault == nil {
			t.r.confirm()
		}
		report(i, res)
	})
	t.r.pass()
}

// Check finds nothing where the transport can't look.
func (t *transport) Check(ctx context.Context) []engine.Finding { return check(ctx, t.Transport) }

// confirm counts a confirmation. It stops before the relay hears of the last one.
func (r *Rig) confirm() {
	r.lock()
	defer r.mu.Unlock()
	if r.confirmed++; r.confirmed >= r.After {
		r.at(Confirmed)
		r.changed.Broadcast()
	}
}
