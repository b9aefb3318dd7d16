package engine

import (
	"context"
	"time"
)

const (
	// slowClaim is when a claim is slow enough for another to be made beside it.
	slowClaim = 30 * time.Millisecond
	// assistRest is the longest rest after claims beside it that found nothing: where all
	// there is has one key, there is never anything beside it.
	assistRest = 8 * slowClaim
)

// assistLoop claims beside the claim loop: while there is plenty, for two claims at
// a time move half as much again as one; and while a claim takes long, for a store
// that first has to move a hundred thousand rows of a paused topic out of the way
// does so lane by lane, and other lanes may have what can go.
func (r *Relay) assistLoop(ctx context.Context, w *work) {
	rest := slowClaim
	for ctx.Err() == nil {
		if !r.mayAssist() {
			sleep(ctx, slowClaim, w.assist)
			continue
		}
		t, err := r.takeTicket(ctx)
		if err != nil {
			return
		}
		n, err := r.claim(ctx, t)
		r.assisted(n)
		switch {
		case err != nil:
			sleep(ctx, jitter(r.opts.Poll.Max))
		case n == 0:
			sleep(ctx, rest)
			rest = min(2*rest, assistRest)
		default:
			rest = slowClaim
		}
	}
}

// mayAssist reports whether a claim makes sense beside that of the claim loop, and
// takes note of it. The claim loop's own will occupy a place in flight, unless it is
// slow: that it finds anything is not said then.
func (r *Relay) mayAssist() bool {
	r.lock()
	defer r.unlock()
	if r.claiming.IsZero() {
		return false
	}
	places := 1
	if time.Since(r.claiming) < slowClaim {
		if !r.plenty {
			return false
		}
		places = 2
	}
	r.assisting = r.room(places)
	return r.assisting
}

func (r *Relay) assisted(n int) {
	r.lock()
	defer r.unlock()
	r.assisting = false
	r.plenty = n == r.opts.Batch
	if w := r.work; w != nil {
		signal(w.free)
	}
}
