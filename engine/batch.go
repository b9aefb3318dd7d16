package engine

import "time"

// A batch is one claim in the relay's hands.
type batch struct {
	items      []*item
	ticket     *ticket
	claimed    time.Time // before the claim was sent
	renewed    time.Time // before the last extension that succeeded was sent
	unanswered int       // messages without an outcome
	open       int       // messages that are not settled
	attached   int       // of these, those that still occupy their lane
}

// A run is the messages of one key in one batch, in their order.
type run struct {
	items   []*item
	next    int // the first that was not handed to a transport
	pending int // handed over and not confirmed
	closed  bool
}

type itemState uint8

const (
	itemWaiting  itemState = iota // for its turn in its run
	itemQueued                    // for room in the destination's window
	itemSent                      // handed to the transport
	itemAnswered                  // its outcome waits to be settled
	itemDone                      // settled, lost, or left to its lease
)

// An item is one claimed message.
type item struct {
	Claimed
	batch    *batch
	run      *run // nil: no order is asked for
	route    *route
	dest     *destination
	state    itemState
	detached bool      // settled as such: it has a lease of its own
	leaving  bool      // a Detach is on its way to the store
	lost     bool      // its lease is gone: nothing is done to keep it
	mark     uint64    // its number among what was sent to the destination
	sent     time.Time // when it was handed over
	kept     time.Time // detached: when its lease was last set
}

func (i *item) keyed() bool { return i.run != nil }

// delivery is what the item's route says, or the relay where no route matches.
func (r *Relay) delivery(i *item) *Delivery {
	if i.route != nil {
		return i.route.delivery
	}
	return &r.opts.Delivery
}

// leaseEnd is when the item's lease runs out, by the local monotonic clock and
// counted from before the database granted it: never later than the real end.
func (r *Relay) leaseEnd(i *item) time.Time {
	if i.detached {
		return i.kept.Add(r.opts.Lease)
	}
	return i.batch.renewed.Add(r.opts.Lease)
}

// An outcome is a settlement on its way to the store.
type outcome struct {
	item *item
	Settlement
}

// answer takes what became of an item. It is final, except for a Detach, which
// leave makes.
func (r *Relay) answer(i *item, s Settlement) {
	if i.state >= itemAnswered {
		return
	}
	i.state = itemAnswered
	b := i.batch
	b.unanswered--
	r.unsettled++
	r.outcomes = append(r.outcomes, outcome{i, s})
	if w := r.work; w != nil {
		signal(w.settle)
		if b.unanswered == 0 || len(r.outcomes) >= r.opts.Batch {
			signal(w.urgent)
		}
	}
}

// done ends an item: it is settled, lost, or left to its lease.
func (r *Relay) done(i *item) {
	if i.state == itemDone {
		return
	}
	b := i.batch
	if i.state < itemAnswered {
		b.unanswered--
	} else {
		r.unsettled--
	}
	i.state = itemDone
	b.open--
	if !i.detached {
		r.detach(b)
	}
	if b.open == 0 {
		// Not before it is settled: what the next one does to the process would else be
		// blamed on what the table still has in hand.
		b.ticket.leave()
		delete(r.batches, b)
	}
	if w := r.work; w != nil && len(r.batches) == 0 {
		signal(w.idle)
	}
}

// detach counts one message less in the lanes of b. A batch that has only
// detached messages left no longer occupies a place in flight, so that a slow
// destination cannot use them all up.
func (r *Relay) detach(b *batch) {
	b.attached--
	if b.attached == 0 {
		r.attached--
		if r.work != nil {
			signal(r.work.free)
		}
	}
}

// closeRun stops a key for the rest of the claim: what was not sent is given back.
// Whatever is not a confirmation does this, also where a dead message lets its key
// pass and where a slow one is only detached: the database alone knows what the
// key's next message is now.
func (r *Relay) closeRun(n *run) {
	if n == nil || n.closed {
		return
	}
	n.closed = true
	for _, i := range n.items[n.next:] {
		r.answer(i, Release(i.Receipt))
	}
	n.next = len(n.items)
}
