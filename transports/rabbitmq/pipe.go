package rabbitmq

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// A pipe is one channel in confirm mode, for one exchange. Many calls of Publish
// share it; it takes a window of messages at a time.
type pipe struct {
	s        *session
	o        *opening
	exchange string
	ch       *amqp.Channel
	slots    chan struct{} // one per message sent and not settled
	turn     chan struct{} // held while writing: the library's channels are not for sharing
	sent     chan *entry   // for settleLoop; has room for the window, so it never blocks
	gone     chan struct{} // closed when the pipe takes no more
	dead     chan struct{} // closed when the channel has ended and verdict is set

	verdict *engine.Fault

	mu        sync.Mutex
	returns   chan amqp.Return
	pending   map[string]*entry // by message id
	live      int               // of pending, those whose call still waits
	retired   bool              // gone is closed; the channel is closed when live is 0
	confirmed bool
}

// An entry is a message between its write and its outcome. It does not refer to
// the message: a call may have gone while its entry waits for the channel's end.
type entry struct {
	p         *pipe
	c         *call
	i         int
	id        string
	confirm   *amqp.DeferredConfirmation
	returned  *amqp.Return
	abandoned bool
	settled   chan struct{} // made by the first who waits for this id
}

func newPipe(s *session, exchange string, ch *amqp.Channel, o *opening) *pipe {
	p := &pipe{
		s: s, o: o, exchange: exchange, ch: ch,
		slots:   make(chan struct{}, s.t.opts.Window),
		turn:    make(chan struct{}, 1),
		sent:    make(chan *entry, s.t.opts.Window),
		gone:    make(chan struct{}),
		dead:    make(chan struct{}),
		pending: map[string]*entry{},
	}
	// A return that finds this buffer full for 5 s is dropped by the library, and
	// the ack that follows would look like a success. There are never more returns
	// in it than messages in the window, since the slot of each is given back only
	// after the buffer was drained.
	p.returns = ch.NotifyReturn(make(chan amqp.Return, s.t.opts.Window))
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	s.t.life.Work.Go(func() { p.watch(closes) })
	s.t.life.Work.Go(p.settleLoop)
	return p
}

// watch waits for the channel's end and decides what it means for what was sent.
func (p *pipe) watch(closes chan *amqp.Error) {
	var end *amqp.Error
	for err := range closes {
		end = err
	}
	p.s.forget(p.exchange, p.o)
	p.s.mu.Lock()
	reason := p.s.reason
	p.s.mu.Unlock()

	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse()
	// Nothing is settled without a confirmation before dead is closed, so whatever
	// is here and not confirmed is what was lost.
	var lost []string
	for id, e := range p.pending {
		if e.confirm == nil || !e.confirm.Acked() {
			lost = append(lost, id)
		}
	}
	v := ending{
		exchange: p.exchange, err: end, reason: reason, connection: p.s.conn.IsClosed(),
		lost: len(lost), confirmed: p.confirmed, alone: p.s.alone,
	}.verdict()
	if v.suspect {
		p.s.t.suspects.add(lost)
		p.s.t.log.Warn("rabbitmq: the broker refused one of several messages; they will be sent one by one",
			"exchange", exchangeName(p.exchange), "messages", len(lost), "error", end)
	}
	p.verdict = v.fault
	close(p.dead)
}

// errGone: the pipe takes no more and nothing was sent; another one may.
var errGone = errors.New("rabbitmq: channel closed")

// send writes one message. nil: it is on its way and will be settled. errGone:
// it was not sent, and another pipe may take it. Otherwise a *engine.Fault: it was
// not sent.
func (p *pipe) send(ctx context.Context, c *call, i int, key string, msg amqp.Publishing) error {
	select {
	case p.slots <- struct{}{}:
	default:
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return notSent(ctx)
		case <-p.gone:
			return errGone
		case <-p.s.blocking():
			return p.s.blockedFault()
		}
	}
	e := &entry{p: p, c: c, i: i, id: msg.MessageId}
	if err := p.enter(ctx, e); err != nil {
		<-p.slots
		return err
	}
	// From here on the entry counts as sent until it is proven not to be.
	c.writing.Store(p.s)
	confirm, err := p.ch.PublishWithDeferredConfirm(p.exchange, key, true, false, msg)
	c.writing.Store(nil)
	if err != nil {
		<-p.turn
		return p.unsent(e, err)
	}
	p.mu.Lock()
	e.confirm = confirm
	p.mu.Unlock()
	p.sent <- e
	<-p.turn
	c.entries = append(c.entries, e)
	return nil
}

// enter takes the turn to write and registers e, which a return may name before
// the write has come back.
func (p *pipe) enter(ctx context.Context, e *entry) error {
	for {
		select {
		case p.turn <- struct{}{}:
		case <-ctx.Done():
			return notSent(ctx)
		case <-p.gone:
			return errGone
		case <-p.s.blocking():
			return p.s.blockedFault()
		}
		var wait chan struct{}
		p.mu.Lock()
		other := p.pending[e.id]
		gone := p.retired
		switch {
		case gone:
		case other != nil:
			if other.settled == nil {
				other.settled = make(chan struct{})
			}
			wait = other.settled
		default:
			p.pending[e.id] = e
			p.live++
		}
		p.mu.Unlock()
		var err error
		switch {
		case gone:
			err = errGone
		case wait != nil:
		case ctx.Err() != nil:
			err = notSent(ctx)
		default:
			select {
			case <-p.s.blocking():
				err = p.s.blockedFault()
			default:
				return nil
			}
		}
		<-p.turn
		if err != nil {
			if !gone {
				p.remove(e)
			}
			return err
		}
		// The same id is on its way already, from a call that overlaps this one. A
		// return names nothing but the id, so one has to wait for the other.
		select {
		case <-wait:
		case <-ctx.Done():
			return notSent(ctx)
		}
	}
}

// unsent takes back an entry whose write failed. The library reports an error
// only when the last byte of the message was not handed to the connection, and a
// message that is not complete is none.
func (p *pipe) unsent(e *entry, err error) error {
	if errors.Is(err, amqp.ErrClosed) {
		<-p.dead
		p.remove(e)
		<-p.slots
		return errGone
	}
	// A failed flush does not make the library close, and what follows a broken
	// frame would be read as part of it.
	p.s.wire.Abort()
	<-p.dead
	p.remove(e)
	<-p.slots
	return faults.Newf(engine.Transient, codeWrite, "rabbitmq: write to %s: %w", p.s.t.addr.HostPort(), err)
}

// remove takes e out of the pending ones and closes a retired pipe after the last.
func (p *pipe) remove(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(e)
}

func (p *pipe) removeLocked(e *entry) {
	if p.pending[e.id] != e {
		return
	}
	delete(p.pending, e.id)
	if e.settled != nil {
		close(e.settled)
	}
	if !e.abandoned {
		p.live--
		p.closeIfDone()
	}
}

// overtakeAfter is how long a confirmation may wait for that of an earlier message.
// Confirmations come in order but where a message went to another queue.
const overtakeAfter = 5 * time.Millisecond

// settleLoop settles what was sent, until the channel has ended. It waits for the
// earliest message alone and looks at the others when that takes long: a goroutine
// for each would cost more than all else that is done here with a message.
func (p *pipe) settleLoop() {
	var waiting []*entry
	late := time.NewTimer(overtakeAfter)
	defer late.Stop()
	for {
		var first <-chan struct{}
		var overtaken <-chan time.Time
		if len(waiting) > 0 {
			first, overtaken = waiting[0].confirm.Done(), late.C
		}
		select {
		case e := <-p.sent:
			waiting = append(waiting, e)
			for range len(p.sent) {
				waiting = append(waiting, <-p.sent)
			}
			continue
		case <-first:
			n := 0
			for n < len(waiting) && waiting[n].settleIfKnown() {
				n++
			}
			clear(waiting[:n])
			waiting = waiting[n:]
		case <-overtaken:
			waiting = slices.DeleteFunc(waiting, (*entry).settleIfKnown)
		case <-p.dead:
			p.settleLast(waiting)
			return
		}
		late.Reset(overtakeAfter)
	}
}

// settleLast settles what is left when the channel has ended; nothing waits any more.
func (p *pipe) settleLast(waiting []*entry) {
	for _, e := range waiting {
		e.settle()
	}
	// Who is writing at this moment may still add one; those who come later are refused.
	for writing := true; writing; {
		select {
		case e := <-p.sent:
			e.settle()
		case p.turn <- struct{}{}:
			writing = false
		}
	}
	<-p.turn
	for len(p.sent) > 0 {
		(<-p.sent).settle()
	}
}

// settleIfKnown settles e if its outcome is there.
func (e *entry) settleIfKnown() bool {
	select {
	case <-e.confirm.Done():
		e.settle()
		return true
	default:
		return false
	}
}

// settle waits for the outcome of a message that was sent, and reports it.
func (e *entry) settle() {
	p := e.p
	<-e.confirm.Done()
	acked := e.confirm.Acked()
	// Not acked means refused while the channel is open, and nothing at all once it
	// is closed: the library answers false for whatever was still outstanding.
	cut := !acked && p.ch.IsClosed()
	if cut {
		<-p.dead
	}
	p.mu.Lock()
	p.drain()
	if acked && !p.confirmed {
		p.confirmed = true
		p.s.proved.Store(true)
	}
	p.removeLocked(e)
	returned, abandoned := e.returned, e.abandoned
	p.mu.Unlock()
	<-p.slots

	if acked || returned != nil {
		p.s.t.suspects.remove(e.id)
		if p.s.t.alarmed.Load() {
			p.s.t.alarmed.Store(false)
		}
	}
	if abandoned {
		return
	}
	var f *engine.Fault
	switch {
	case returned != nil:
		// Before the confirmation is looked at: an unroutable message is acknowledged.
		f = faults.Newf(engine.DestinationFailed, codeNoRoute, "rabbitmq: exchange %q has no queue for routing key %q: %d %s",
			exchangeName(p.exchange), returned.RoutingKey, returned.ReplyCode, returned.ReplyText)
	case acked:
	case cut:
		copied := *p.verdict
		f = &copied
		if f.Class == engine.Rejected {
			p.s.t.suspects.remove(e.id)
		}
	default:
		f = faults.Newf(engine.Transient, codeNack, "rabbitmq: exchange %q: refused by the broker; a queue may be full", exchangeName(p.exchange))
	}
	e.c.finish(e.i, engine.Result{Fault: f, Ack: ackWord(f)})
}

func ackWord(f *engine.Fault) string {
	if f != nil {
		return ""
	}
	return "confirmed"
}

// drain hands out what was returned. The broker sends a return before the
// confirmation of the same message and the library delivers both from one
// goroutine, so when a confirmation is known its return is in the buffer. p.mu is
// held.
func (p *pipe) drain() {
	for {
		select {
		case r, ok := <-p.returns:
			if !ok {
				p.returns = nil
				return
			}
			if e := p.pending[r.MessageId]; e != nil {
				r.Body = nil
				e.returned = &r
				continue
			}
			p.s.t.log.Error("rabbitmq: a message was returned that is not outstanding", "id", r.MessageId, "exchange", exchangeName(p.exchange))
		default:
			return
		}
	}
}

// abandon gives up waiting for e and reports whether the caller now has to
// report it. Its tag stays outstanding: it can't be cancelled.
func (e *entry) abandon() bool {
	p := e.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[e.id] != e || e.abandoned {
		return false
	}
	e.abandoned = true
	p.live--
	p.closeIfDone()
	return true
}

// retire takes the pipe out of use; others that wait on it may go on waiting.
func (p *pipe) retire() {
	p.s.forget(p.exchange, p.o)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse()
	p.closeIfDone()
}

// refuse lets nothing more in. p.mu is held.
func (p *pipe) refuse() {
	if !p.retired {
		p.retired = true
		close(p.gone)
	}
}

// retireIdle retires the pipe if nothing is outstanding on it. The session's lock
// is held.
func (p *pipe) retireIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) > 0 || p.retired {
		return false
	}
	p.refuse()
	p.closeIfDone()
	return true
}

// closeIfDone closes a retired pipe that nobody waits on. p.mu is held.
func (p *pipe) closeIfDone() {
	if p.retired && p.live == 0 && !p.ch.IsClosed() {
		p.s.t.life.Work.Go(func() { p.s.closeChannel(p.ch) })
	}
}
