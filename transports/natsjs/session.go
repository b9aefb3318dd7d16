package natsjs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/dialing"
	"github.com/outward-dev/outward/transports/internal/faults"
	"github.com/outward-dev/outward/transports/internal/wire"
)

// A session is one connection to a server, from login to its end. It is never
// revived.
//
// Acknowledgements come on subjects of one wildcard subscription, each of which
// stands for one message. The library has this too, but its futures outlive the
// timeout of whoever waits, it takes whatever answers first for the answer, and it
// publishes again by itself.
type session struct {
	t      *Transport
	addr   *endpoint
	nc     *nats.Conn
	wire   *wire.Conn
	prefix string        // of the subjects on which answers come
	open   chan struct{} // closed when nc and wire are set
	dead   chan struct{} // closed when the connection has ended

	mu      sync.Mutex
	token   uint64
	pending map[uint64]*entry // by token, the last part of its answer's subject
	over    bool              // the connection has ended; nothing is pending any more
	leaving bool              // the server asked us to go: takes no more, closed when nothing is pending
	reason  string            // why we cut it, if we did
	notice  error             // what the server said last that explains an end
	end     error             // how it ended

	proved  atomic.Bool // something was acknowledged
	garbled atomic.Bool // it was logged that something else than a stream answers
}

// An entry is one message, or one question to JetStream, between its write and its
// answer. It does not refer to the message.
type entry struct {
	s       *session
	c       *call
	i       int
	token   uint64
	subject string
	garbled bool
	ask     chan answer // a question's; it has room for one
}

// An answer is what came back for a question.
type answer struct {
	data                  []byte
	unheard, denied, lost bool
}

func newSession(t *Transport, a *endpoint) *session {
	var b [9]byte
	rand.Read(b[:]) // never fails, by its documentation
	return &session{
		t: t, addr: a,
		prefix:  fmt.Sprintf("%s.%x.", t.opts.InboxPrefix, b),
		open:    make(chan struct{}),
		dead:    make(chan struct{}),
		pending: map[uint64]*entry{},
	}
}

// prepare listens for answers, and makes sure that we may.
func (s *session) prepare(ctx context.Context) *engine.Fault {
	host := s.addr.HostPort()
	if !s.nc.HeadersSupported() {
		return faults.Newf(engine.Unavailable, codeNoHeaders, "natsjs: the server at %s takes no headers; it needs to be 2.2 or newer", host)
	}
	sub, err := s.nc.Subscribe(s.prefix+"*", s.onAnswer)
	if err == nil {
		// There are never more answers than messages in the windows.
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return dialFault(host, err)
	}
	// The server says no before it answers the ping; and onError, which hears it too,
	// may have ended the connection before that answer is here.
	err = s.nc.FlushWithContext(ctx)
	s.mu.Lock()
	denied := s.reason == codePermission
	s.mu.Unlock()
	if denied || errors.Is(s.nc.LastError(), nats.ErrPermissionViolation) {
		return faults.Newf(engine.Unavailable, codePermission, "natsjs: %s: this user may not subscribe to %s>, where acknowledgements come", host, s.prefix)
	}
	if err != nil {
		return dialFault(host, dialing.Overdue(ctx, err))
	}
	return nil
}

// Usable implements [dialing.Session].
func (s *session) Usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over && !s.leaving && s.reason == ""
}

// Vain implements [dialing.Session]: a server that asks us to go when something is on
// its way has been of use.
func (s *session) Vain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.proved.Load() && (!s.leaving || s.token == 0)
}

// register makes e pending and returns the subject of its answer; false: the
// session takes no more.
func (s *session) register(e *entry) (reply string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.leaving || s.reason != "" {
		return "", false
	}
	s.token++
	e.s, e.token = s, s.token
	s.pending[e.token] = e
	return s.prefix + strconv.FormatUint(e.token, 36), true
}

// take ends e's being pending and reports whether it was: whoever takes it answers
// for it.
func (s *session) take(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(e)
}

func (s *session) takeLocked(e *entry) bool {
	if s.pending[e.token] != e {
		return false
	}
	delete(s.pending, e.token)
	if s.leaving && len(s.pending) == 0 && !s.over {
		s.t.life.Work.Go(s.Close)
	}
	return true
}

// onAnswer takes one answer. The library calls it from one goroutine of this
// subscription.
func (s *session) onAnswer(m *nats.Msg) {
	token, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, s.prefix), 36, 64)
	if err != nil {
		return
	}
	s.mu.Lock()
	e := s.pending[token]
	s.mu.Unlock()
	if e == nil {
		return // too late: it was reported as unknown
	}
	unheard := len(m.Data) == 0 && m.Header.Get("Status") == "503"
	if e.ask != nil {
		if (unheard || isAPIAnswer(m.Data)) && s.take(e) {
			e.ask <- answer{data: m.Data, unheard: unheard}
		}
		return
	}
	if unheard {
		if s.take(e) {
			e.c.unheardOf(e.i)
		}
		return
	}
	res, ok := readAck(e.subject, s.t.opts.Stream, m.Data)
	if !ok {
		// Somebody else has subscribed to the subject and answers whatever comes. The
		// stream's own word may still be on its way.
		s.mu.Lock()
		e.garbled = true
		s.mu.Unlock()
		if !s.garbled.Swap(true) {
			s.t.log.Warn("natsjs: something that is not a stream answers on the subject; it is not listened to", "subject", e.subject)
		}
		return
	}
	if s.take(e) {
		if res.Fault == nil {
			s.proved.Store(true)
		}
		e.c.settle(e.i, res)
	}
}

// onError takes what the library reports beside everything else.
func (s *session) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	s.t.log.Debug("natsjs: reported by the client", "server", s.addr.HostPort(), "error", err)
	if !errors.Is(err, nats.ErrPermissionViolation) {
		s.mu.Lock()
		s.notice = err
		s.mu.Unlock()
		return
	}
	if strings.Contains(err.Error(), "for Subscription to \""+s.prefix) {
		// What was allowed when we connected no longer is: no answer comes here any more.
		s.kill(codePermission)
		return
	}
	subject, ok := deniedSubject(err.Error(), s.prefix, s.subjectOf)
	if !ok {
		return
	}
	s.mu.Lock()
	var calls []*call
	for _, e := range s.pending {
		switch {
		case e.subject != subject:
		case e.ask != nil:
			if s.takeLocked(e) {
				e.ask <- answer{denied: true}
			}
		default:
			calls = append(calls, e.c)
		}
	}
	s.mu.Unlock()
	for _, c := range calls {
		c.deny(err)
	}
}

// subjectOf is the subject to which the message was published whose answer would
// come on reply.
func (s *session) subjectOf(reply string) (string, bool) {
	token, err := strconv.ParseUint(strings.TrimPrefix(reply, s.prefix), 36, 64)
	if err != nil {
		return "", false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pending[token]
	if e == nil {
		return "", false
	}
	return e.subject, true
}

// deniedSubject reads from a server's word which subject may not be published to.
// Its text is all there is.
func deniedSubject(text, prefix string, subjectOf func(reply string) (string, bool)) (string, bool) {
	if _, quoted, ok := strings.Cut(text, "Permissions Violation for Publish to "); ok {
		subject, err := strconv.Unquote(strings.TrimSpace(quoted))
		return subject, err == nil
	}
	if _, quoted, ok := strings.Cut(text, "Permissions Violation for Publish with Reply of "); ok {
		if reply, err := strconv.Unquote(strings.TrimSpace(quoted)); err == nil && strings.HasPrefix(reply, prefix) {
			return subjectOf(reply)
		}
	}
	return "", false
}

// onClosed is called once when the connection has ended.
func (s *session) onClosed(nc *nats.Conn) {
	<-s.open
	// Whatever ended it, nothing that the kernel still holds may go out.
	s.wire.Abort()
	s.mu.Lock()
	s.over = true
	s.end = nc.LastError()
	if s.notice != nil {
		s.end = s.notice // says more than the end of file that follows it
	}
	lost := s.pending
	s.pending = nil
	reason, end := s.reason, s.end
	s.mu.Unlock()
	if reason != codeClosed {
		s.t.log.Warn("natsjs: connection lost", "server", s.addr.HostPort(), "error", end, "reason", reason)
	}
	close(s.dead)
	for _, e := range lost {
		if e.ask != nil {
			e.ask <- answer{lost: true}
			continue
		}
		e.c.settle(e.i, engine.Result{Fault: s.lost(e)})
	}
}

// lost is what the end of the connection means for a message that was sent on it.
func (s *session) lost(e *entry) *engine.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != "" {
		return faults.Newf(engine.Unknown, s.reason, "natsjs: subject %q: the connection was cut before the acknowledgement came", e.subject)
	}
	return faults.Newf(engine.Unknown, codeLost, "natsjs: subject %q: connection lost before the acknowledgement came: %w", e.subject, s.endError())
}

// Fault implements [dialing.Session].
func (s *session) Fault() *engine.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	code := codeLost
	if s.end != nil && authError(s.end) {
		code = codeAuth
	}
	return faults.Newf(engine.Unavailable, code, "natsjs: connection to %s lost: %w", s.addr.HostPort(), s.endError())
}

// endError must be called with s.mu held.
func (s *session) endError() error {
	if s.end == nil {
		return nats.ErrConnectionClosed
	}
	return s.end
}

// kill cuts the connection at once; what was not acknowledged is Unknown for
// reason.
func (s *session) kill(reason string) {
	s.mu.Lock()
	if s.reason == "" {
		s.reason = reason
	}
	s.mu.Unlock()
	s.wire.Abort()
}

// Close says goodbye, for at most [wire.Grace]. Nothing should be pending.
func (s *session) Close() {
	// The library's Close waits for its lock, which a write may hold.
	timer := time.AfterFunc(wire.Grace, s.wire.Abort)
	defer timer.Stop()
	s.mu.Lock()
	if s.reason == "" {
		s.reason = codeClosed
	}
	s.mu.Unlock()
	s.nc.Close()
	<-s.dead
}

// leave is called when the server is about to shut down and wants its clients to
// go: nothing new is sent here, and what is on its way gets its answer.
func (s *session) leave() {
	<-s.open
	s.t.log.Info("natsjs: the server is shutting down; the next messages go over another connection", "server", s.addr.HostPort())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || s.over {
		return
	}
	s.leaving = true
	if len(s.pending) == 0 {
		s.t.life.Work.Go(s.Close)
	}
}

// drained reports whether the server has read everything that was written before
// the call. It reads a connection in order, so an answer to a ping proves it.
func (s *session) drained() bool {
	return wire.Drained(&s.t.life.Work, s.dead, func() bool { return s.nc.FlushTimeout(wire.Grace) == nil })
}
