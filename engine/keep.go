package engine

import (
	"context"
	"time"
)

// keepLoop looks after what is in hand: it renews leases, takes slow messages out
// of their lanes, and gives up places in a queue that does not move.
func (r *Relay) keepLoop(w *work) {
	beat := r.heartbeat("keep")
	every := min(max(min(r.opts.Lease/12, r.opts.Delivery.DetachAfter/4), 10*time.Millisecond), 250*time.Millisecond)
	for w.ctx.Err() == nil {
		beat.touch()
		sleep(w.ctx, every)
		r.shed(time.Now())
		r.renew(w)
	}
}

// shed takes what is slow out of the way of what is not.
func (r *Relay) shed(now time.Time) {
	r.lock()
	defer r.unlock()
	for b := range r.batches {
		if b.unanswered == 0 {
			continue
		}
		for _, i := range b.items {
			limit := r.delivery(i).DetachAfter
			switch i.state {
			case itemQueued:
				if now.Sub(b.claimed) >= limit {
					i.dest.congested = true
					r.putOff(i)
				}
			case itemSent:
				if !i.detached && !i.leaving && !i.lost && now.Sub(i.sent) >= limit {
					r.leave(i)
				}
			case itemWaiting:
				// A long run of one key, sent message by message, must not keep the other
				// keys of its lane waiting either: it goes on with the next claim.
				if i.run != nil && now.Sub(b.claimed) >= limit {
					r.closeRun(i.run)
				}
			}
		}
	}
}

// leave detaches a slow message, and with it all of its key that is out with it.
func (r *Relay) leave(i *item) {
	unit := []*item{i}
	if i.run != nil {
		unit = i.run.items
	}
	for _, j := range unit {
		if j.state != itemSent || j.detached || j.leaving || j.lost {
			continue
		}
		j.leaving = true
		r.outcomes = append(r.outcomes, outcome{j, Detach(j.Receipt, r.opts.Lease)})
	}
	r.closeRun(i.run)
	if r.work != nil {
		signal(r.work.settle)
	}
}

// renew extends every lease that is a third over, in one call.
func (r *Relay) renew(w *work) {
	r.lock()
	due := false
	now := time.Now()
	third := r.opts.Lease / 3
	var items []*item
	var receipts []Receipt
	for b := range r.batches {
		for _, i := range b.items {
			if i.state == itemDone || i.lost {
				continue
			}
			if age := now.Sub(r.leaseEnd(i).Add(-r.opts.Lease)); age >= third/2 {
				due = due || age >= third
				items = append(items, i)
				receipts = append(receipts, i.Receipt)
			}
		}
	}
	r.unlock()
	if !due {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(w.ctx, r.opts.SettleTimeout)
	lost, err := r.store.Extend(ctx, receipts, r.opts.Lease)
	cancel()
	if err != nil {
		if w.ctx.Err() == nil {
			r.storeFailed("extend", err)
		}
		return
	}
	r.storeAnswered("extend")
	gone := make(map[Receipt]struct{}, len(lost))
	for _, receipt := range lost {
		gone[receipt] = struct{}{}
	}
	r.lock()
	defer r.unlock()
	n := 0
	for _, i := range items {
		if i.state == itemDone {
			continue
		}
		if _, isLost := gone[i.Receipt]; !isLost {
			if i.detached {
				i.kept = began
			} else {
				i.batch.renewed = began
			}
			continue
		}
		if i.state == itemAnswered {
			continue // its outcome is on its way, and will tell
		}
		n += r.lose(i)
	}
	r.tellLost(n, "extend")
}

// lose stops work on a message whose lease is gone, and on what waits behind it in
// its key and so in its lane. What is sent already can't be called back: its outcome
// is still awaited, and settled in vain. It returns how many leases that were.
func (r *Relay) lose(i *item) (n int) {
	lost := []*item{i}
	if i.run != nil {
		i.run.closed = true
		lost = append(lost, i.run.items...)
	}
	for _, j := range lost {
		if j.lost || j != i && j.state >= itemSent {
			continue
		}
		j.lost = true
		n++
		if j.state < itemSent {
			r.done(j)
		}
	}
	return n
}
