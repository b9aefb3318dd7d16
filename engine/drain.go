package engine

import "time"

// drain ends a piece of work: nothing more goes out, what was sent finishes within
// the limit, outcomes are settled, and what was never handed over is given back.
// A store that fails meanwhile is tried again to the limit: what was confirmed and
// not settled goes out twice.
func (r *Relay) drain(w *work) {
	began := time.Now()
	r.lock()
	w.draining = true
	delete(r.loops, "claim") // it has ended, and draining may take longer than a loop may be silent
	for b := range r.batches {
		for _, i := range b.items {
			switch i.state {
			case itemWaiting, itemQueued:
				r.answer(i, Release(i.Receipt))
				if i.run != nil {
					i.run.closed = true
				}
			}
		}
	}
	for _, d := range r.destinations {
		d.queue, d.queued = nil, 0
	}
	r.unlock()

	published := make(chan struct{})
	go func() {
		w.publishes.Wait()
		close(published)
	}()
	if !waitFor(published, r.opts.Drain) {
		r.lock()
		w.aborted = true
		r.unlock()
		r.log.Warn("the drain limit is over; what is sent and unresolved keeps its lease", "limit", r.opts.Drain)
		w.stopSends()
		if !waitFor(published, r.opts.SettleTimeout) {
			r.log.Error("a transport does not return from Publish although its context has ended")
		}
	}
	w.stopSends()

	left := max(0, r.opts.Drain-time.Since(began)) + r.opts.SettleTimeout + settleRetry // once at the least
	for end := time.Now().Add(left); r.owes() && time.Now().Before(end); {
		signal(w.settle)
		signal(w.urgent)
		sleep(w.ctx, 5*time.Millisecond)
	}
	r.lock()
	defer r.unlock()
	unsettled := 0
	for b := range r.batches {
		for _, i := range b.items {
			if i.state != itemDone {
				unsettled++
				r.done(i)
			}
		}
	}
	r.outcomes = nil
	if unsettled > 0 {
		r.later(func() { r.log.Warn("left to their leases", "messages", unsettled) })
	}
}

func (r *Relay) owes() bool {
	r.lock()
	defer r.unlock()
	return r.unsettled > 0
}

// waitFor waits for c, at most for d.
func waitFor(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// whenIdle returns a channel that is ready when nothing is in hand.
func (r *Relay) whenIdle(w *work) <-chan struct{} {
	r.lock()
	defer r.unlock()
	if len(r.batches) == 0 {
		signal(w.idle)
	}
	return w.idle
}
