package engine

import (
	"math/rand/v2"
	"time"
)

// A grudge is what the relay remembers of a message that failed without a
// contrast: whether its destination did anything for others in between.
type grudge struct {
	times             int    // failures with a success of the destination before each but the first
	failures          int    // failures in all
	successes, probes uint64 // the destination's, when it last failed
}

// maxGrudges bounds what is remembered; forgetting costs a few retries.
const maxGrudges = 10_000

// streakLimit is how many publishes in a row may fail without a contrast before
// the destination itself is taken for the cause.
const streakLimit = 3

// streak looks at a call in which something was refused or is unknown. If nothing
// sent since was confirmed, the destination may be the cause.
func (r *Relay) streak(c *call) {
	d := c.dest
	for _, f := range c.failed {
		if f.fault.Class > Unknown || f.fault.Code == CodeStopped || d.confirmed > f.item.mark {
			continue
		}
		d.streak++
		if d.streak >= streakLimit || d.trial {
			d.streak, d.trial = 0, false
			r.pauseFor(d.key, f.fault)
		}
		return
	}
}

// How often the destination must have done its work for others between two failures
// of a message, for a further failure to be the message's own. Where connections are
// cut again and again the same message can be the one under way several times, so a
// lost connection must come back with it more often.
const (
	grudgesWanted     = 2
	grudgesWantedLost = 6
)

// verdict decides what becomes of a message whose publish failed; confirmed is what
// may speak against it.
func (r *Relay) verdict(what failure, confirmed uint64) {
	i, f := what.item, what.fault
	if i.state >= itemAnswered {
		return
	}
	defer r.closeRun(i.run)
	d := i.dest
	wanted := grudgesWanted
	if what.lost {
		wanted = grudgesWantedLost
	}
	switch f.Class {
	case Rejected:
		r.bury(i, f)
		return
	case DestinationFailed, Unavailable:
		r.park(i, failed(d, i.Topic, f), f)
		return
	}
	if f.unsent() {
		r.answer(i, Release(i.Receipt))
		return
	}
	tries := i.Attempts
	charged := r.charge(i, confirmed, wanted) && f.Code != CodeNack
	if charged {
		tries++
	} else if g := r.grudges[i.ID]; g != nil {
		tries += g.failures - 1
	}
	if charged && r.spent(i, tries) {
		r.bury(i, f)
		return
	}
	if p := r.pauseOf(d, i.Topic); p != nil && !charged {
		r.park(i, p.Destination, f)
		return
	}
	wait := max(r.delivery(i).Backoff.wait(tries), f.RetryAfter)
	if fn := r.opts.Hooks.Retried; fn != nil {
		c := i.Claimed
		r.later(func() { fn(c, f, charged) })
	}
	r.answer(i, Reschedule(i.Receipt, wait, f, RescheduleOptions{Charge: charged, HoldKey: i.keyed()}))
}

// charge says whether a failure is the message's own: by contrast. It is if the
// destination confirmed another message that was sent after this one. Confirmation
// of one sent before tells nothing: a broker that dies, fills up or stalls has
// confirmed what came before. See [call.confirmed] for what does not count.
//
// A message that is always alone, or always the last, has no such neighbour. So it
// is also its own failure when it fails for the third time (with its connection, for
// the seventh) and the destination did its work for others between any two of these. A good probe counts as such work
// only while nobody but this message fails: an exchange is there and takes probes
// when its queues have lost their majority, and then everything fails.
func (r *Relay) charge(i *item, confirmed uint64, wanted int) bool {
	d := i.dest
	if confirmed > i.mark {
		return true
	}
	if d.failing.IsZero() {
		d.failing = i.ID
	}
	d.several = d.several || d.failing != i.ID
	g := r.grudges[i.ID]
	if g == nil {
		if len(r.grudges) >= maxGrudges {
			clear(r.grudges)
		}
		r.grudges[i.ID] = &grudge{failures: 1, successes: d.successes, probes: d.probes}
		return false
	}
	g.failures++
	if d.successes > g.successes || d.probes > g.probes && !d.several {
		g.times++
	}
	g.successes, g.probes = d.successes, d.probes
	return g.times >= wanted
}

// spent reports whether a message with so many charged attempts is dead.
func (r *Relay) spent(i *item, attempts int) bool {
	d := r.delivery(i)
	if attempts < d.MaxAttempts {
		return false
	}
	return i.FailingFor+time.Since(i.batch.claimed) >= d.MinAge
}

// bury makes a message dead.
func (r *Relay) bury(i *item, f Fault) {
	delete(r.grudges, i.ID)
	hold := i.keyed() && r.delivery(i).OnDead == Hold
	c := i.Claimed
	r.later(func() {
		r.log.Error("message is dead", "id", c.ID, "topic", c.Topic, "type", c.Type, "aggregate_id", c.AggregateID,
			"correlation_id", c.CorrelationID, "attempts", c.Attempts, "class", f.Class.String(), "code", f.Code, "error", f.Text(), "holds_key", hold)
		if fn := r.opts.Hooks.Buried; fn != nil {
			fn(c, f)
		}
	})
	r.answer(i, DeadLetter(i.Receipt, hold, f))
	r.closeRun(i.run)
}

// park puts a message aside until a pause ends. Nothing is charged.
func (r *Relay) park(i *item, pause string, f Fault) {
	if fn := r.opts.Hooks.Retried; fn != nil {
		c := i.Claimed
		r.later(func() { fn(c, f, false) })
	}
	r.answer(i, Reschedule(i.Receipt, 0, f, RescheduleOptions{HoldKey: i.keyed(), PausedFor: pause}))
	r.closeRun(i.run)
}

// jitter spreads a wait over its second half.
func jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.Int64N(int64(d/2)+1))
}
