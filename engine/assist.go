package engine

import (
	"context"
	"time"
)

// slowClaim is when a claim is slow enough for another to be made beside it.
const slowClaim = 30 * time.Millisecond

// assistLoop claims beside the claim loop while a claim takes long. A store that
// first has to move a hundred thousand rows of a paused topic out of the way does
// so lane by lane; meanwhile other lanes may have what can go.
func (r *Relay) assistLoop(ctx context.Context) {
	for ctx.Err() == nil {
		if began := r.claiming.Load(); began == nil || time.Since(*began) < slowClaim || !r.room() {
			sleep(ctx, slowClaim)
			continue
		}
		t, err := r.takeTicket(ctx)
		if err != nil {
			return
		}
		switch n, err := r.claim(ctx, t); {
		case err != nil:
			sleep(ctx, jitter(r.opts.Poll.Max))
		case n == 0:
			sleep(ctx, slowClaim)
		}
	}
}
