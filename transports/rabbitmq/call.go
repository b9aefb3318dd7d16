package rabbitmq

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
	"github.com/outward-dev/outward/transports/internal/wire"
)

// A call is one call of Publish, or one message's trial.
type call struct {
	report  func(int, engine.Result)
	left    atomic.Int64
	done    chan struct{} // closed after the last report
	entries []*entry      // what was sent; the sending goroutine's own
	// writing is the session whose socket this call writes to at this moment.
	writing atomic.Pointer[session]
}

func newCall(n int, report func(int, engine.Result)) *call {
	c := &call{report: report, done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// finish reports one message.
func (c *call) finish(i int, r engine.Result) {
	c.report(i, r)
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

// run calls send, which writes what there is to write, and waits until every
// message has been reported. When ctx ends it makes sure that no byte can be sent
// any more and reports the rest Unknown.
func (c *call) run(ctx context.Context, send func()) {
	sent := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() {
		wire.Guard(ctx, sent, func() {
			if s := c.writing.Load(); s != nil {
				s.kill(codeTimeout)
			}
		})
	})
	send()
	close(sent)
	guard.Wait()
	select {
	case <-c.done:
		return
	case <-ctx.Done():
	}
	c.silence()
	for _, e := range c.entries {
		if e.abandon() {
			c.finish(e.i, engine.Result{Fault: faults.Newf(engine.Unknown, codeTimeout,
				"rabbitmq: exchange %q: no confirmation in time: %w", exchangeName(e.p.exchange), context.Cause(ctx))})
		}
	}
	<-c.done // what was settled meanwhile
}

// silence makes sure that none of the call's outstanding messages can still be
// on its way to the broker. The pipe is taken out of use, because a tag can't be
// cancelled and would hold its slot for ever. The connection is shared, so it is
// cut only if the broker can't show that it has read all of it.
func (c *call) silence() {
	seen := map[*pipe]bool{}
	asked := map[*session]bool{}
	for _, e := range c.entries {
		p := e.p
		if seen[p] || !e.outstanding() {
			continue
		}
		seen[p] = true
		p.retire()
		if asked[p.s] || p.s.ended() {
			continue
		}
		asked[p.s] = true
		if !p.s.drained() {
			p.s.t.isolate(p.s, p.exchange)
			p.s.kill(codeTimeout)
			<-p.s.dead
		}
	}
}

// outstanding reports whether e has no outcome yet.
func (e *entry) outstanding() bool {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	return e.p.pending[e.id] == e
}
