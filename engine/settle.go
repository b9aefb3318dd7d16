package engine

import (
	"context"
	"time"
)

const (
	settleLinger = 5 * time.Millisecond // outcomes gather for so long, unless a batch is complete
	settleMost   = 5000                 // settlements in one call
	settleRetry  = 100 * time.Millisecond
)

// settleLoop takes outcomes to the store, one call at a time: so what is settled of
// a key is settled in the order in which it happened.
func (r *Relay) settleLoop(w *work) {
	beat := r.heartbeat("settle")
	retry := settleRetry
	for w.ctx.Err() == nil {
		beat.touch()
		sleep(w.ctx, time.Second, w.settle)
		sleep(w.ctx, settleLinger, w.urgent)
		outs, more := r.takeOutcomes()
		if more {
			signal(w.settle)
			signal(w.urgent)
		}
		if len(outs) == 0 {
			continue
		}
		if err := r.settle(w, outs); err != nil {
			r.giveBack(outs)
			if w.ctx.Err() != nil {
				return
			}
			r.storeFailed("settle", err)
			signal(w.settle)
			sleep(w.ctx, jitter(retry))
			retry = min(2*retry, r.opts.Poll.Max)
			continue
		}
		r.storeAnswered("settle")
		retry = settleRetry
	}
}

// takeOutcomes takes what is to be settled next.
func (r *Relay) takeOutcomes() (outs []outcome, more bool) {
	r.lock()
	defer r.unlock()
	n := min(len(r.outcomes), settleMost)
	outs = make([]outcome, 0, n)
	for _, o := range r.outcomes[:n] {
		if o.Kind == Detached && o.item.state != itemSent {
			o.item.leaving = false // it has its outcome by now
			continue
		}
		outs = append(outs, o)
	}
	// In the same memory: it would else grow anew from nothing for every settlement.
	left := copy(r.outcomes, r.outcomes[n:])
	clear(r.outcomes[left:])
	r.outcomes = r.outcomes[:left]
	return outs, len(r.outcomes) > 0
}

// giveBack puts outcomes whose fate is unknown to the front. Repeating them is
// right: what took effect is not done twice.
func (r *Relay) giveBack(outs []outcome) {
	r.lock()
	defer r.unlock()
	r.outcomes = append(outs, r.outcomes...)
}

// settle makes one call of the store and draws the consequences.
func (r *Relay) settle(w *work, outs []outcome) error {
	ss := make([]Settlement, len(outs))
	for n, o := range outs {
		ss[n] = o.Settlement
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(w.ctx, r.opts.SettleTimeout)
	lost, err := r.store.Settle(ctx, ss...)
	cancel()
	if err != nil {
		return err
	}
	took := time.Since(began)
	gone := make(map[Receipt]struct{}, len(lost))
	for _, receipt := range lost {
		gone[receipt] = struct{}{}
	}
	r.lock()
	defer r.unlock()
	if f := r.opts.Hooks.Settled; f != nil {
		r.later(func() { f(len(outs)-len(lost), took) })
	}
	n := 0
	for _, o := range outs {
		_, isLost := gone[o.Receipt]
		if isLost {
			n += r.lose(o.item)
		}
		switch {
		case o.Kind != Detached:
			r.done(o.item)
		case isLost:
		case o.item.state != itemDone && !o.item.detached:
			o.item.leaving, o.item.detached, o.item.kept = false, true, began
			r.detach(o.item.batch)
		}
	}
	r.tellLost(n, "settle")
	return nil
}

// tellLost counts leases that were lost: a late worker noticed that it is one.
func (r *Relay) tellLost(n int, operation string) {
	if n == 0 {
		return
	}
	r.status.Lost += n
	r.later(func() {
		r.log.Warn("leases lost: others have taken over these messages, or will", "count", n, "operation", operation)
		if f := r.opts.Hooks.Lost; f != nil {
			f(n, operation)
		}
	})
}
