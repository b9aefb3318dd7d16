package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
	"github.com/outward-dev/outward/transports/internal/wire"
)

// A session is one connection to the broker, from login to its end. It is never
// revived.
type session struct {
	t     *Transport
	conn  *amqp.Connection
	wire  *wire.Gathered
	alone bool // carries one message at a time

	dead chan struct{} // closed when the connection has ended and end is set
	end  *amqp.Error

	mu      sync.Mutex
	reason  string // why we cut it, if we did
	pipes   map[string]*opening
	alarm   string        // the broker's reason while blocked is closed
	blocked chan struct{} // closed while the broker takes nothing
	free    atomic.Bool   // a canary has come through
	proved  atomic.Bool   // a message was confirmed
}

// opening is a pipe that is there or will be.
type opening struct {
	ready chan struct{}
	pipe  *pipe
	fault *engine.Fault
}

func newSession(t *Transport, c *amqp.Connection, w *wire.Gathered) *session {
	s := &session{
		t: t, conn: c, wire: w,
		dead: make(chan struct{}), pipes: map[string]*opening{}, blocked: make(chan struct{}),
	}
	// The library gives up on a listener that is not read for 5 s; this one is read
	// at once, and holds the only close that can come.
	closes := c.NotifyClose(make(chan *amqp.Error, 1))
	blocks := c.NotifyBlocked(make(chan amqp.Blocking, 16))
	t.life.Work.Go(func() { s.watch(closes, blocks) })
	return s
}

// watch follows what the broker says about the connection until its end.
func (s *session) watch(closes chan *amqp.Error, blocks chan amqp.Blocking) {
	for closes != nil {
		select {
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				continue
			}
			s.block(b)
		case err, ok := <-closes:
			if err != nil {
				s.end = err
			}
			if !ok {
				closes = nil
			}
		}
	}
	// Whatever ended it, the socket goes too: the library leaves it open where its
	// own flush has failed.
	s.wire.Abort()
	close(s.dead)
	s.mu.Lock()
	reason := s.reason
	s.mu.Unlock()
	if s.end != nil {
		s.t.log.Warn("rabbitmq: connection lost", "broker", s.t.addr.HostPort(), "error", s.end, "reason", reason)
	}
}

func (s *session) block(b amqp.Blocking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.isBlocked()
	switch {
	case b.Active && !was:
		s.alarm = b.Reason
		close(s.blocked)
		s.t.alarmed.Store(true)
		s.t.log.Warn("rabbitmq: the broker takes no messages", "broker", s.t.addr.HostPort(), "reason", b.Reason)
	case !b.Active && was:
		s.blocked = make(chan struct{})
		s.t.alarmed.Store(false)
		s.t.log.Info("rabbitmq: the broker takes messages again", "broker", s.t.addr.HostPort())
	}
}

// isBlocked reports whether the broker takes nothing. s.mu is held.
func (s *session) isBlocked() bool {
	select {
	case <-s.blocked:
		return true
	default:
		return false
	}
}

// blocking returns a channel that is closed while the broker takes nothing.
func (s *session) blocking() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked
}

func (s *session) blockedFault() *engine.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return faults.Newf(engine.Unavailable, codeBlocked, "rabbitmq: %s takes no messages: %s", s.t.addr.HostPort(), s.alarm)
}

func (s *session) ended() bool {
	select {
	case <-s.dead:
		return true
	default:
		return s.conn.IsClosed()
	}
}

// Usable implements [dialing.Session].
func (s *session) Usable() bool { return !s.ended() }

// Vain implements [dialing.Session].
func (s *session) Vain() bool { return !s.proved.Load() }

// Fault says how the session ended, for those who sent nothing on it. It must be
// called after dead is closed or while the connection is being closed.
func (s *session) Fault() *engine.Fault {
	select {
	case <-s.dead:
		if s.end != nil {
			return faults.Newf(engine.Unavailable, codeLost, "rabbitmq: connection to %s lost: %w", s.t.addr.HostPort(), s.end)
		}
	default:
	}
	return faults.Newf(engine.Unavailable, codeLost, "rabbitmq: connection to %s lost", s.t.addr.HostPort())
}

// kill cuts the connection at once; what was not confirmed is Unknown for reason.
func (s *session) kill(reason string) {
	s.mu.Lock()
	if s.reason == "" {
		s.reason = reason
	}
	s.mu.Unlock()
	s.wire.Abort()
}

// Close says goodbye, for at most [wire.Grace].
func (s *session) Close() {
	// The library's deadline does not bound its locks; cutting the socket does.
	timer := time.AfterFunc(wire.Grace, func() { s.kill(codeClosed) })
	defer timer.Stop()
	if err := s.conn.CloseDeadline(time.Now().Add(wire.Grace)); err != nil && !errors.Is(err, amqp.ErrClosed) {
		s.t.log.Debug("rabbitmq: close", "broker", s.t.addr.HostPort(), "error", err)
	}
	<-s.dead
}

// pipe returns the channel for an exchange. The boolean is true when the
// connection was lost meanwhile and another one may do.
func (s *session) pipe(ctx context.Context, exchange string) (*pipe, *engine.Fault, bool) {
	s.mu.Lock()
	o := s.pipes[exchange]
	if o == nil {
		s.makeRoom()
		o = &opening{ready: make(chan struct{})}
		s.pipes[exchange] = o
		s.t.life.Work.Go(func() {
			o.pipe, o.fault = s.open(exchange, o)
			if o.fault != nil {
				s.forget(exchange, o)
			}
			close(o.ready)
		})
	}
	s.mu.Unlock()
	select {
	case <-o.ready:
	case <-ctx.Done():
		return nil, faults.Newf(engine.Unavailable, codeTimeout, "rabbitmq: %s opened no channel in time: %w", s.t.addr.HostPort(), context.Cause(ctx)), false
	}
	return o.pipe, o.fault, o.fault != nil && s.ended()
}

// makeRoom closes an idle channel when there are many. s.mu is held.
func (s *session) makeRoom() {
	if len(s.pipes) < s.t.maxPipes {
		return
	}
	for exchange, o := range s.pipes {
		select {
		case <-o.ready:
		default:
			continue
		}
		if o.pipe != nil && o.pipe.retireIdle() {
			delete(s.pipes, exchange)
			return
		}
	}
}

// forget takes o out of the pipes, if it is still there.
func (s *session) forget(exchange string, o *opening) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipes[exchange] == o {
		delete(s.pipes, exchange)
	}
}

// open makes a channel in confirm mode, after a look whether its exchange is
// there: a missing exchange is then known before anything is sent to it.
func (s *session) open(exchange string, o *opening) (*pipe, *engine.Fault) {
	// The library's calls know no context.
	timer := time.AfterFunc(s.t.opts.DialTimeout, func() { s.kill(codeTimeout) })
	defer timer.Stop()
	ch, err := s.conn.Channel()
	if err != nil {
		return nil, s.openFault(exchange, err)
	}
	if exchange != "" {
		if err := ch.ExchangeDeclarePassive(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return nil, s.openFault(exchange, err)
		}
	}
	if err := ch.Confirm(false); err != nil {
		return nil, s.openFault(exchange, err)
	}
	return newPipe(s, exchange, ch, o), nil
}

// openFault classifies what went wrong before a channel could be used.
func (s *session) openFault(exchange string, err error) *engine.Fault {
	if s.conn.IsClosed() {
		return faults.Newf(engine.Unavailable, codeLost, "rabbitmq: connection to %s lost: %w", s.t.addr.HostPort(), err)
	}
	v := ending{exchange: exchange, lost: 1}
	if !errors.As(err, &v.err) {
		return faults.Newf(engine.Transient, codeLost, "rabbitmq: open a channel: %w", err)
	}
	f := v.verdict().fault
	if f.Class != engine.DestinationFailed {
		f.Class = engine.Transient // nothing was sent
	}
	return f
}

// drained reports whether the broker has read everything that was written before
// the call. It reads a connection in order, so an answer to anything asked now
// proves it.
func (s *session) drained() bool {
	s.mu.Lock()
	blocked := s.isBlocked()
	s.mu.Unlock()
	if blocked {
		return false // it reads nothing from a publisher it has blocked
	}
	return wire.Drained(&s.t.life.Work, s.dead, func() bool {
		ch, err := s.conn.Channel()
		if err == nil {
			s.t.life.Work.Go(func() { s.closeChannel(ch) })
		}
		return err == nil
	})
}

// closeChannel gives a channel back.
func (s *session) closeChannel(ch *amqp.Channel) {
	if err := ch.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) && !s.conn.IsClosed() {
		s.t.log.Debug("rabbitmq: close a channel", "broker", s.t.addr.HostPort(), "error", err)
	}
}
