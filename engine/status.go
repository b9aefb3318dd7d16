package engine

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Status is how a relay does, for probes and pages. It holds no ids and no
// secrets.
type Status struct {
	Name string
	// Ready: the relay has reached its table and asked it for work at least once.
	Ready bool
	// StoreErrors are the operations of the store that failed when they were last
	// tried, each with its error; empty while the store answers. StoreErrorSince is
	// when the first of them began to fail.
	StoreErrors     []string
	StoreErrorSince time.Time
	// Pauses that this relay knows of, by destination.
	Pauses []Pause
	// InHand is how many messages are claimed and not settled.
	InHand int
	// Lost is how many leases were lost so far.
	Lost int
	// Stuck names the loops of the relay that should have made progress within the
	// last minute and did not; "publish" stands for calls of a transport.
	Stuck []string
}

// stuckAfter is when a loop counts as stuck. Every wait of a loop is shorter, and
// every call that it makes is bounded.
const stuckAfter = time.Minute

// A heartbeat is kept by the monotonic clock: a clock that is set must not look
// like a loop that hangs.
type heartbeat struct {
	began time.Time
	last  atomic.Int64 // since began
}

func (h *heartbeat) touch() { h.last.Store(int64(time.Since(h.began))) }

func (h *heartbeat) silent() time.Duration { return time.Since(h.began) - time.Duration(h.last.Load()) }

// heartbeat returns the named loop's, begun anew.
func (r *Relay) heartbeat(loop string) *heartbeat {
	h := &heartbeat{began: time.Now()}
	r.lock()
	defer r.unlock()
	r.loops[loop] = h
	return h
}

// Status returns how the relay does now. It may be called at any time.
func (r *Relay) Status() Status {
	r.lock()
	defer r.unlock()
	s := r.status
	for _, p := range r.pauses {
		s.Pauses = append(s.Pauses, p.Pause)
	}
	slices.SortFunc(s.Pauses, func(a, b Pause) int { return strings.Compare(a.Destination, b.Destination) })
	for operation, e := range r.storeErrors {
		s.StoreErrors = append(s.StoreErrors, operation+": "+e.text)
		if s.StoreErrorSince.IsZero() || e.since.Before(s.StoreErrorSince) {
			s.StoreErrorSince = e.since
		}
	}
	slices.Sort(s.StoreErrors)
	for b := range r.batches {
		s.InHand += b.open
	}
	if r.work != nil {
		for loop, h := range r.loops {
			if h.silent() > stuckAfter {
				s.Stuck = append(s.Stuck, loop)
			}
		}
		for _, d := range r.destinations {
			if d.hung > 0 {
				s.Stuck = append(s.Stuck, "publish")
				break
			}
		}
		slices.Sort(s.Stuck)
	}
	return s
}

// A storeError is an operation of the store that failed when it was last tried.
type storeError struct {
	text  string
	since time.Time
}

// storeFailed takes note that a call of the store failed. It is logged when a row
// of failures begins, not each time.
func (r *Relay) storeFailed(operation string, err error) {
	r.lock()
	defer r.unlock()
	known, again := r.storeErrors[operation]
	if !again {
		known.since = time.Now()
	}
	known.text = storable(err.Error())
	r.storeErrors[operation] = known
	r.later(func() {
		if !again {
			r.log.Error("the database fails; trying again", "operation", operation, "error", err)
		}
		if f := r.opts.Hooks.StoreFailed; f != nil {
			f(operation, err)
		}
	})
}

// storeAnswered takes note that a call of the store succeeded.
func (r *Relay) storeAnswered(operation string) {
	r.lock()
	defer r.unlock()
	if operation == "claim" || operation == "pauses" {
		r.status.Ready = true
	}
	if known, failed := r.storeErrors[operation]; failed {
		delete(r.storeErrors, operation)
		r.later(func() {
			r.log.Info("the database answers again", "operation", operation, "after", time.Since(known.since).Round(time.Millisecond))
		})
	}
}
