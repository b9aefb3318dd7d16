package natsjs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/wire"
)

// A call is one call of Publish: messages for one subject.
type call struct {
	subject string
	gate    *gate
	report  func(int, engine.Result)
	entries []*entry      // what was sent; the sending goroutine's own
	trouble chan struct{} // closed when it is of no use to send more
	wake    chan struct{} // has an element when something for wait has changed
	// writing is the session whose connection this call writes to at this moment.
	writing atomic.Pointer[session]

	mu        sync.Mutex
	inFlight  int   // sent and not answered
	confirmed bool  // the stream took one of them
	unheard   []int // nobody listens on the subject: not stored, and not yet reported
	denied    error // the server said that we may not publish there
}

func newCall(subject string, g *gate, report func(int, engine.Result)) *call {
	return &call{subject: subject, gate: g, report: report, trouble: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// sending counts a message in, before it is written.
func (c *call) sending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight++
}

// unsent takes sending back.
func (c *call) unsent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.landed()
}

// landed must be called with c.mu held.
func (c *call) landed() {
	if c.inFlight--; c.inFlight == 0 {
		c.stir()
	}
}

func (c *call) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// settle reports a message that was sent.
func (c *call) settle(i int, r engine.Result) {
	c.gate.leave()
	c.report(i, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Fault == nil {
		c.confirmed = true
	}
	c.landed()
}

// unheardOf notes that the server has nobody to give message i to. What that means
// is asked once for all.
func (c *call) unheardOf(i int) {
	c.gate.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unheard) == 0 && c.denied == nil {
		close(c.trouble)
	}
	c.unheard = append(c.unheard, i)
	c.landed()
}

// deny notes that we may not publish to the subject. The server doesn't say which
// of the messages it means.
func (c *call) deny(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.denied == nil {
		if len(c.unheard) == 0 {
			close(c.trouble)
		}
		c.denied = err
	}
	c.stir()
}

// troubled reports whether it is of no use to send more.
func (c *call) troubled() bool {
	select {
	case <-c.trouble:
		return true
	default:
		return false
	}
}

// wait returns when every message that was sent has been answered, or waiting is
// over: ctx has ended, or the server said no and those it did not mean have had
// the time to be answered.
func (c *call) wait(ctx context.Context) {
	var late <-chan time.Time
	for {
		c.mu.Lock()
		n, denied := c.inFlight, c.denied != nil
		c.mu.Unlock()
		if n == 0 {
			return
		}
		if denied && late == nil {
			timer := time.NewTimer(wire.Grace)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-c.wake:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// abandon gives up waiting for what was sent and not answered, after it has made
// sure that none of it can still be on its way to the server, and reports it. The
// connection is shared, so it is cut only if the server can't show that it has read
// all of it.
func (c *call) abandon(report func(e *entry) engine.Result) {
	c.mu.Lock()
	n := c.inFlight
	c.mu.Unlock()
	if n == 0 {
		return
	}
	asked := map[*session]bool{}
	for _, e := range c.entries {
		if asked[e.s] || !e.outstanding() {
			continue
		}
		asked[e.s] = true
		if !e.s.drained() {
			e.s.kill(codeTimeout)
			<-e.s.dead
		}
	}
	for _, e := range c.entries {
		if e.s.take(e) {
			c.settle(e.i, report(e))
		}
	}
	for { // those that were answered meanwhile
		c.mu.Lock()
		n := c.inFlight
		c.mu.Unlock()
		if n == 0 {
			return
		}
		<-c.wake
	}
}

// outstanding reports whether e has no answer yet.
func (e *entry) outstanding() bool {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	return e.s.pending[e.token] == e
}

// A gate is the window of one subject: calls for it share it, so that a stream that
// does not answer holds up its own subjects only.
type gate struct {
	slots chan struct{}
	users int // calls that have it; under the transport's lock
}

func (g *gate) leave() { <-g.slots }
