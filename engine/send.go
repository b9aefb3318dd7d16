package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	maxCall      = 1000                   // messages in one call of Publish
	maxUnit      = 64                     // messages of one key in one go
	busyCalls    = 4                      // so many calls at once, and what comes is gathered
	gather       = time.Millisecond       // for so long
	stopped      = 100 * time.Millisecond // a timer that is later than that tells that the process was not running
	congestWait  = time.Second            // when a message that found no room comes again, at least
	congestMost  = 30 * time.Second       // and at most
	congestAfter = 2                      // windows' worth of messages in hand that a slow destination may have
)

// offer puts a unit of messages on its way: into the queue of its destination,
// which it reports, or to the outcome that needs no publish. Of a unit with more
// than one message all go the same way.
func (r *Relay) offer(unit []*item) bool {
	i := unit[0]
	if i.route == nil {
		i.route = r.routeOf(i.Topic)
	}
	if f := r.unfit(i); f != nil {
		r.bury(i, *f)
		return false
	}
	if i.route == nil {
		f := Fault{Class: DestinationFailed, Code: CodeNoRoute, Err: fmt.Errorf("no route matches topic %q", i.Topic)}
		r.pauseFor(TopicPause(i.Topic), f)
		r.park(i, TopicPause(i.Topic), f)
		return false
	}
	i.dest = r.destinationOf(i.route, i.Topic)
	if p := r.pauseOf(i.dest, i.Topic); p != nil {
		r.meetPause(i, p)
		return false
	}
	d := i.dest
	if d.congested && d.inFlight+d.queued >= congestAfter*d.window {
		r.putOff(i)
		return false
	}
	for _, i := range unit {
		i.dest, i.state = d, itemQueued
	}
	d.queue = append(d.queue, unit)
	d.queued += len(unit)
	return true
}

// unfit returns why a message can't be sent at all, or nil.
func (r *Relay) unfit(i *item) *Fault {
	switch {
	case i.Bad != nil:
		return &Fault{Class: Rejected, Code: CodeBadRow, Err: i.Bad}
	case i.Crashes >= r.delivery(i).MaxCrashes:
		return &Fault{Class: Rejected, Code: CodeKillsRelay,
			Err: fmt.Errorf("%d relays died with this message alone in hand", i.Crashes)}
	}
	return nil
}

// putOff gives up the place of a message that found no room at its destination in
// time: it leaves its lane, and nothing is charged. It stays away for as long as the
// destination has been slow: with a fixed wait the backlog of a slow destination
// would come back as fast as it is moved out of the way, and what lies behind it
// would never be seen.
func (r *Relay) putOff(i *item) {
	d, now := i.dest, time.Now()
	if now.Sub(d.slowSeen) > congestMost {
		d.slowSince = now
	}
	d.slowSeen = now
	wait := min(max(now.Sub(d.slowSince), congestWait), congestMost)
	r.answer(i, Reschedule(i.Receipt, jitter(wait),
		Fault{Class: Transient, Code: "window_full", Err: fmt.Errorf("destination %q is slow", d.key)},
		RescheduleOptions{HoldKey: i.keyed()}))
	r.closeRun(i.run)
}

// advance puts the next messages of a key on their way, if it is their turn, and
// returns the destination that got some.
func (r *Relay) advance(n *run) *destination {
	if n.closed || n.pending > 0 || n.next == len(n.items) {
		return nil
	}
	if w := r.work; w == nil || w.draining {
		r.closeRun(n)
		return nil
	}
	end := n.next + 1
	first := n.items[n.next]
	if first.route = r.routeOf(first.Topic); first.route != nil && first.route.broker.info.KeepsKeyOrder && r.unfit(first) == nil {
		first.dest = r.destinationOf(first.route, first.Topic)
		for end < len(n.items) && end-n.next < min(maxUnit, first.dest.window) && r.follows(n.items[end], first) {
			end++
		}
	}
	unit := n.items[n.next:end]
	n.next++ // where the first gets another outcome than a publish, the rest is given back
	if !r.offer(unit) {
		r.closeRun(n)
		return nil
	}
	n.next, n.pending = end, len(unit)
	return first.dest
}

// follows reports whether i can go out in one call with first.
func (r *Relay) follows(i, first *item) bool {
	i.route = r.routeOf(i.Topic)
	if i.route == nil || i.route.delivery != first.route.delivery || r.unfit(i) != nil {
		return false
	}
	i.dest = r.destinationOf(i.route, i.Topic)
	return i.dest == first.dest && r.pauseOf(i.dest, i.Topic) == nil
}

// pump hands over what the window of d has room for. Where several calls are under
// way it first gathers what comes within a moment: with one message of each key
// out at a time, every confirmation would else be a call of its own.
func (r *Relay) pump(d *destination) {
	w := r.work
	if w == nil || w.draining || d.timer || len(d.queue) == 0 {
		return
	}
	if d.calls >= busyCalls {
		if wait := gather - time.Since(d.pumped); wait > 0 {
			d.timer = true
			time.AfterFunc(wait, func() {
				r.lock()
				defer r.unlock()
				d.timer = false
				r.pump(d)
			})
			return
		}
	}
	now := time.Now()
	for group := r.nextCall(d, now); len(group) > 0; group = r.nextCall(d, now) {
		for _, i := range group {
			d.sent++
			i.state, i.mark, i.sent = itemSent, d.sent, now
		}
		d.inFlight += len(group)
		d.calls++
		d.pumped = now
		w.publishes.Go(func() { r.publish(w, d, group, group[0].route.delivery.ConfirmTimeout) })
	}
	if len(d.queue) == 0 {
		d.queue, d.congested = nil, false
	}
}

// nextCall takes from the queue of d what may go out in one call: as much as the
// window has room for, and of one delivery. What is no longer to be sent is dropped
// on the way, so that it stands in nobody's way.
func (r *Relay) nextCall(d *destination, now time.Time) (group []*item) {
	for len(d.queue) > 0 && len(group) < maxCall {
		unit := d.queue[0]
		queued := unit[0].state == itemQueued
		leased := now.Before(r.leaseEnd(unit[0]))
		if queued && leased {
			if n := d.inFlight + len(group); n > 0 && n+len(unit) > d.window {
				break
			}
			if len(group) > 0 && unit[0].route.delivery != group[0].route.delivery {
				break
			}
			group = append(group, unit...)
		}
		d.queue = d.queue[1:]
		d.queued -= len(unit)
		if queued && !leased { // it may be another's by now: not sent
			r.withdraw(unit)
		}
	}
	return group
}

// withdraw gives a queued unit back unsent.
func (r *Relay) withdraw(unit []*item) {
	for _, i := range unit {
		r.answer(i, Release(i.Receipt))
		r.closeRun(i.run)
	}
}

// A call is one call of Publish.
type call struct {
	dest     *destination
	items    []*item
	timeout  time.Duration
	reported []bool
	late     bool   // its time is over
	seen     uint64 // then: what the destination had confirmed by that moment
	failed   []failure
	over     bool
}

type failure struct {
	item  *item
	fault Fault
	lost  bool // with the connection
}

// publish is one call of the transport, from its start to the verdict on what
// failed in it.
func (r *Relay) publish(w *work, d *destination, group []*item, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(w.sends, timeout)
	defer cancel()
	// Nothing but a new process frees the window and the gate of a call that does
	// not return: it must be seen.
	hung := time.AfterFunc(timeout+stuckAfter, func() {
		r.lock()
		defer r.unlock()
		d.hung++
		r.later(func() {
			r.log.Error("a transport does not return from Publish although its context has ended", "destination", d.key, "messages", len(group))
		})
	})
	c := &call{dest: d, items: group, timeout: timeout, reported: make([]bool, len(group))}
	began := time.Now()
	defer context.AfterFunc(ctx, func() {
		r.lock()
		defer r.unlock()
		c.late = true
		if time.Since(began) < timeout+stopped { // else the process stood still, and heard nobody
			c.seen = d.confirmed
		}
	})()
	out := make([]Outgoing, len(group))
	for n, i := range group {
		out[n] = Outgoing{Message: i.Message, CreatedAt: i.CreatedAt, Resends: i.Resends, Attempts: i.Attempts}
	}
	missing := r.contained(ctx, c, out)

	r.lock()
	defer r.unlock()
	c.over = true
	if !hung.Stop() {
		d.hung--
	}
	for n, i := range group {
		if !c.reported[n] {
			c.failed = append(c.failed, failure{item: i, fault: missing})
			r.told(c, n, Result{Fault: &missing})
		}
	}
	d.inFlight -= len(group)
	d.calls--
	r.judge(w, c)
	r.pump(d)
}

// contained calls the transport and returns the fault of messages about which it
// said nothing: a transport that panics or forgets must not take the relay along.
func (r *Relay) contained(ctx context.Context, c *call, out []Outgoing) (missing Fault) {
	missing = Fault{Class: Unknown, Code: CodeNoReport, Err: fmt.Errorf("transport %q returned without a word about it", c.dest.broker.info.Name)}
	defer func() {
		if p := recover(); p != nil {
			missing = Fault{Class: Unknown, Code: CodePanic, Err: fmt.Errorf("transport %q panicked: %v", c.dest.broker.info.Name, p)}
			r.log.Error("transport panicked", "transport", c.dest.broker.info.Name, "panic", fmt.Sprint(p))
		}
	}()
	c.dest.broker.transport.Publish(ctx, c.dest.name, out, func(n int, res Result) { r.report(c, n, res) })
	return missing
}

// report takes the outcome of one message. A confirmation counts at once; a
// failure is judged when the call has ended: until then bytes of the message may
// be on their way, and what happens to its neighbours is evidence.
func (r *Relay) report(c *call, n int, res Result) {
	r.lock()
	defer r.unlock()
	if n < 0 || n >= len(c.items) || c.over || c.reported[n] {
		over := c.over
		r.later(func() {
			r.log.Error("transport reported a message that it does not have, or twice",
				"transport", c.dest.broker.info.Name, "index", n, "of", len(c.items), "after its return", over)
		})
		return
	}
	c.reported[n] = true
	r.told(c, n, res)
	i := c.items[n]
	if res.Fault != nil {
		c.failed = append(c.failed, failure{i, *res.Fault, lostConnection(res.Fault, time.Since(i.sent) < c.timeout)})
		if res.Fault.Class >= DestinationFailed { // stop what is queued behind it without waiting for the end of the call
			r.pauseFor(failed(c.dest, i.Topic, *res.Fault), *res.Fault)
		}
		return
	}
	d := c.dest
	d.confirmed = max(d.confirmed, i.mark)
	d.successes++
	d.streak, d.trial = 0, false
	d.failing, d.several = ID{}, false
	delete(r.grudges, i.ID)
	r.answer(i, MarkPublished(i.Receipt))
	if i.run != nil {
		i.run.pending--
		if next := r.advance(i.run); next != nil {
			r.pump(next)
		}
	}
}

// lostConnection reports whether a message failed because what it was sent over did.
// An outcome that is unknown before the message's own time is over became so with a
// connection or a channel, whatever word the broker had for that.
func lostConnection(f *Fault, early bool) bool {
	return f.Class == Unknown && early || f.Class == Transient && (f.Code == CodeLost || f.Code == CodeWrite)
}

// confirmed is what the destination confirmed, by its number, that may speak against
// a message. Nothing does that went over another connection. And once a message's
// time is over nobody listens to its own confirmation any more: a broker that stalled
// for a little longer than that confirms it together with those sent later.
func (c *call) confirmed(f failure) uint64 {
	switch {
	case f.lost:
		return 0
	case f.fault.Class == Unknown && c.late:
		return c.seen
	}
	return c.dest.confirmed
}

// told passes an outcome on to the hook.
func (r *Relay) told(c *call, n int, res Result) {
	if f := r.opts.Hooks.Published; f != nil {
		i := c.items[n]
		out := Outgoing{Message: i.Message, CreatedAt: i.CreatedAt, Resends: i.Resends, Attempts: i.Attempts}
		took := time.Since(i.sent)
		r.later(func() { f(out, c.dest.key, res, took) })
	}
}

// judge decides about what failed in a call, in the order of the messages.
func (r *Relay) judge(w *work, c *call) {
	slices.SortFunc(c.failed, func(a, b failure) int { return cmp.Compare(a.item.Receipt.Seq, b.item.Receipt.Seq) })
	if len(c.failed) > 0 && !w.aborted { // what the relay itself has cut off says nothing about a destination
		r.streak(c)
	}
	for _, f := range c.failed {
		if w.aborted && f.fault.Class == Unknown {
			r.done(f.item) // sent and unresolved: its lease stays
			r.closeRun(f.item.run)
			continue
		}
		r.verdict(f, c.confirmed(f))
	}
}
