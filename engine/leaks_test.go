package engine

import "fmt"

// Leaks says what a relay that has ended still holds, or "".
func (r *Relay) Leaks() string {
	r.lock()
	defer r.unlock()
	if len(r.batches) > 0 || r.attached != 0 || r.unsettled != 0 || len(r.outcomes) > 0 || len(r.probing) > 0 || r.work != nil {
		return fmt.Sprintf("%d batches, %d attached, %d unsettled, %d outcomes, %d probes", len(r.batches), r.attached, r.unsettled, len(r.outcomes), len(r.probing))
	}
	for _, d := range r.destinations {
		if d.queued != 0 || d.inFlight != 0 || d.calls != 0 || len(d.queue) > 0 {
			return fmt.Sprintf("destination %s: %d queued, %d in flight, %d calls, %d units", d.key, d.queued, d.inFlight, d.calls, len(d.queue))
		}
	}
	return ""
}

// GateLeaks says who is still in the process's gate.
func GateLeaks() string {
	g := &processGate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active == 0 && g.alone == nil && g.wanted == 0 {
		return ""
	}
	return fmt.Sprintf("%d tickets out, %d wait", g.active, g.wanted)
}
