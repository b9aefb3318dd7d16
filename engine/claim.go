package engine

import (
	"context"
	"time"
)

// How long the claim loop rests after a claim that brought little, and after one
// that brought nothing, however fast signals come: a claim for each single one costs
// the database almost three times as much for the same messages. Longer rests are
// cheaper still and delay each message by half of it; at 500 commits a second one of
// a millisecond costs a fifth more than one of three.
const (
	restSmall = time.Millisecond
	restEmpty = 3 * time.Millisecond
)

// blindIdle is how often a relay makes itself idle to ask for suspects when its
// store can't tell whether there are any.
const blindIdle = 30 * time.Second

// claimLoop claims until ctx ends.
func (r *Relay) claimLoop(ctx context.Context, w *work) {
	beat := r.heartbeat("claim")
	wait := r.opts.Poll.Min
	for ctx.Err() == nil {
		beat.touch()
		if !r.mayClaim() {
			sleep(ctx, time.Second, w.free)
			continue
		}
		t, err := r.takeTicket(ctx)
		if err != nil {
			return
		}
		r.claims(w)
		n, err := r.claim(ctx, t)
		r.claimed(n)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			sleep(ctx, jitter(r.opts.Poll.Max))
		case n == 0:
			sleep(ctx, restEmpty)
			if r.sleepAwake(ctx, jitter(wait)) {
				wait = r.opts.Poll.Min
			} else {
				wait = min(2*wait, r.opts.Poll.Max)
			}
		case n < r.opts.Batch/10:
			wait = r.opts.Poll.Min
			sleep(ctx, restSmall)
		default:
			wait = r.opts.Poll.Min
		}
	}
}

// sleepAwake waits for d or for a signal that there is work, and reports whether
// there was one.
func (r *Relay) sleepAwake(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-r.wake:
		return true
	}
	return false
}

// mayClaim reports whether the claim loop's next claim makes sense now.
func (r *Relay) mayClaim() bool {
	r.lock()
	defer r.unlock()
	if r.assisting {
		return r.room(2)
	}
	return r.room(1)
}

// room reports whether so many batches more would have a place in flight.
func (r *Relay) room(batches int) bool {
	return r.pausesKnown && r.attached+batches <= r.opts.InFlight && !r.allPaused()
}

// claims and claimed enclose a claim of the claim loop.
func (r *Relay) claims(w *work) {
	r.lock()
	defer r.unlock()
	r.claiming = time.Now()
	if r.plenty {
		signal(w.assist)
	}
}

func (r *Relay) claimed(n int) {
	r.lock()
	defer r.unlock()
	r.claiming = time.Time{}
	r.plenty = n == r.opts.Batch
}

func (r *Relay) takeTicket(ctx context.Context) (*ticket, error) {
	suspects := r.suspects != nil && r.suspects.Suspects()
	r.lock()
	wantAlone := suspects || r.suspects == nil && time.Since(r.lastAlone) > blindIdle
	wantAlone = wantAlone && (r.gaveUp.IsZero() || time.Since(r.gaveUp) > gateRest)
	r.unlock()
	t, err := r.gate.enter(ctx, wantAlone)
	if wantAlone && err == nil && !t.alone {
		r.lock()
		r.gaveUp = time.Now()
		r.unlock()
	}
	return t, err
}

// claim makes one claim and takes in hand what it brings.
func (r *Relay) claim(ctx context.Context, t *ticket) (int, error) {
	r.lock()
	req := ClaimRequest{Worker: r.opts.Worker, Limit: r.opts.Batch, Lease: r.opts.Lease, Idle: t.alone}
	req.Paused, req.PausedFor = r.pausedTopics()
	if t.alone {
		r.lastAlone, r.gaveUp = time.Now(), time.Time{}
	}
	r.unlock()

	began := time.Now()
	// A claim that took longer than its lease would be worth nothing.
	claimCtx, cancel := context.WithTimeout(ctx, r.opts.Lease)
	rows, err := r.store.Claim(claimCtx, req)
	cancel()
	took := time.Since(began)
	if err != nil {
		t.leave()
		if ctx.Err() == nil {
			r.storeFailed("claim", err)
		}
		return 0, err
	}
	r.storeAnswered("claim")
	if f := r.opts.Hooks.Claimed; f != nil {
		f(len(rows), took)
	}
	suspects := false
	for i := range rows {
		suspects = suspects || rows[i].Company > 0
	}
	maySend := t.decide(suspects)
	if len(rows) == 0 {
		t.leave()
		return 0, nil
	}
	r.lock()
	defer r.unlock()
	r.admit(&batch{ticket: t, claimed: began, renewed: began}, rows, maySend)
	return len(rows), nil
}

// admit takes claimed rows in hand and starts them on their way.
func (r *Relay) admit(b *batch, rows []Claimed, maySend bool) {
	items := make([]item, len(rows))
	b.items = make([]*item, len(rows))
	b.unanswered, b.open, b.attached = len(rows), len(rows), len(rows)
	r.batches[b] = struct{}{}
	r.attached++
	runs := map[string]*run{}
	var order []*run
	for n := range rows {
		i := &items[n]
		b.items[n] = i
		i.Claimed, i.batch = rows[n], b
		if i.Key != "" && !r.opts.Unordered {
			key := runs[i.Key]
			if key == nil {
				key = &run{}
				runs[i.Key] = key
				order = append(order, key)
			}
			i.run = key
			key.items = append(key.items, i)
		}
	}
	if !maySend {
		for _, i := range b.items {
			r.answer(i, Release(i.Receipt))
		}
		return
	}
	touched := map[*destination]struct{}{}
	for n := range b.items {
		if i := b.items[n]; i.run == nil && r.offer(b.items[n:n+1]) {
			touched[i.dest] = struct{}{}
		}
	}
	for _, n := range order {
		if d := r.advance(n); d != nil {
			touched[d] = struct{}{}
		}
	}
	for d := range touched {
		r.pump(d)
	}
}
