// Package dialing makes a transport's connections: one at a time, when it is needed
// and again when it is lost, shared by all who ask, and without a stampede.
package dialing

import (
	"context"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// Redial is the pause after an attempt that failed. It is short: what asks too often
// are calls that are on their way when a broker goes, and the relay pauses on its own
// account after that.
const Redial = 200 * time.Millisecond

// A Session is one connection, from login to its end. It is never revived.
type Session interface {
	// Usable reports whether it takes messages.
	Usable() bool
	// Vain reports, of one that is not usable, whether it was of no use: nothing was
	// confirmed on it, and it was not its turn to go.
	Vain() bool
	// Fault says how it ended, for those who sent nothing on it.
	Fault() *engine.Fault
	// Close says goodbye and returns when the connection has ended.
	Close()
}

// A Line is the way to a broker. It may be shared.
type Line[S Session] struct {
	// Dial makes one attempt. It is not called again before it has returned.
	Dial func() (S, *engine.Fault)
	// Redial: no attempt sooner than this after one that failed. [Redial], except in
	// tests.
	Redial time.Duration
	// Work gets the goroutines of the attempts.
	Work *sync.WaitGroup
	// Peer is what is said of an attempt, "rabbitmq: connect to HOST:PORT".
	Peer string

	mu      sync.Mutex
	current S
	open    bool          // there is a current one
	since   time.Time     // when it was made
	dialing chan struct{} // closed when the attempt under way has ended
	fault   *engine.Fault // how the last attempt ended
	notYet  time.Time     // no attempt before this
}

// Session returns the line's connection. Callers share an attempt; for a while
// after one has failed they all get its fault, so that a broker that comes back
// meets no stampede.
func (l *Line[S]) Session(ctx context.Context) (S, *engine.Fault) {
	var none S
	for {
		l.mu.Lock()
		if l.open && l.current.Usable() {
			s := l.current
			l.mu.Unlock()
			return s, nil
		}
		if l.open {
			if time.Since(l.since) < l.Redial && l.current.Vain() {
				// It died young and had done nothing: treated like a failed attempt.
				l.fault, l.notYet = l.current.Fault(), time.Now().Add(l.Redial)
			}
			l.current, l.open = none, false
		}
		if l.dialing == nil {
			if time.Now().Before(l.notYet) {
				f := faults.Again(l.fault)
				l.mu.Unlock()
				return none, f
			}
			l.dialing = make(chan struct{})
			l.Work.Go(l.dial)
		}
		done := l.dialing
		l.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return none, faults.Newf(engine.Unavailable, faults.Timeout, "%s: no connection in time: %w", l.Peer, context.Cause(ctx))
		}
		l.mu.Lock()
		open, f := l.open, l.fault
		l.mu.Unlock()
		if !open && f != nil {
			return none, faults.Again(f)
		}
	}
}

// dial makes one attempt.
func (l *Line[S]) dial() {
	s, f := l.Dial()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.open, l.since, l.fault = s, f == nil, time.Now(), f
	if f != nil {
		l.notYet = time.Now().Add(l.Redial)
	}
	close(l.dialing)
	l.dialing = nil
}

// Close ends the connection. Nobody may be asking for one, and what Dial is bound to
// has ended.
func (l *Line[S]) Close() {
	l.mu.Lock()
	dialing := l.dialing
	l.mu.Unlock()
	if dialing != nil {
		<-dialing
	}
	l.mu.Lock()
	s, open := l.current, l.open
	l.mu.Unlock()
	if open {
		s.Close()
	}
}
