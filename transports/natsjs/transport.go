package natsjs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/envelope"
	"github.com/outward-dev/outward/transports/internal/faults"
	"github.com/outward-dev/outward/transports/internal/lifetime"
	"github.com/outward-dev/outward/transports/internal/wire"
)

// A Transport publishes to the JetStream of one account. It connects when it is
// first used and again when a connection is lost, without end. It may be shared.
type Transport struct {
	addrs []*endpoint
	opts  Options
	log   *slog.Logger

	life  *lifetime.Lifetime
	line  *line
	first int // the server that the next dial begins with; the line's

	mu      sync.Mutex
	gates   map[string]*gate     // by subject, those in use
	seen    map[string]bool      // subjects that were published to, some of them
	unheard map[string]time.Time // subjects nobody listens to, since when; where JetStream can't be asked
}

var (
	_ engine.Transport = (*Transport)(nil)
	_ engine.Prober    = (*Transport)(nil)
	_ engine.Checker   = (*Transport)(nil)
)

// maxSeen bounds the subjects that are remembered for Check and for their silence.
const maxSeen = 200

// New returns a Transport for the servers at url: one or more
// nats://[user:password@|token@]host[:port], or tls://, with commas between them
// and reserved characters percent-encoded. List every server of a cluster, or a
// name that stands for them: those that a cluster advertises are not used. New
// reports everything that is wrong with url and opts at once, in words that contain
// no part of a URL, and starts nothing. opts may be nil.
func New(url string, opts *Options) (*Transport, error) {
	addrs, errURL := parseURLs(url)
	o, errOpts := opts.withDefaults()
	if errURL == nil && o.logins() > 0 && addrs[0].Login != nil {
		errURL = errors.New("a URL has a user or a token, and Options another way to log in; use one")
	}
	if err := errors.Join(errURL, errOpts); err != nil {
		return nil, fmt.Errorf("natsjs: %w", err)
	}
	t := &Transport{
		addrs: addrs, opts: o, log: o.Logger, life: lifetime.New(),
		gates: map[string]*gate{}, seen: map[string]bool{}, unheard: map[string]time.Time{},
	}
	t.line = t.newLine()
	return t, nil
}

// Describe implements [engine.Transport].
func (t *Transport) Describe() engine.TransportInfo {
	// KeepsKeyOrder is false. A connection is read in order, but a message that is
	// refused does not stop those behind it, which are stored by the time its failure
	// is known. The one thing by which JetStream can chain messages
	// (Nats-Expected-Last-Msg-Id) looks at the stream's last message, so it needs a
	// stream with a single writer, and no relay can promise that.
	return engine.TransportInfo{Name: t.opts.Name, Kind: "nats"}
}

// servers names the servers in errors.
func (t *Transport) servers() string {
	names := make([]string, len(t.addrs))
	for i, a := range t.addrs {
		names[i] = a.HostPort()
	}
	return strings.Join(names, ", ")
}

// window returns the window of a subject; done gives it back.
func (t *Transport) window(subject string) (g *gate, done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g = t.gates[subject]
	if g == nil {
		g = &gate{slots: make(chan struct{}, t.opts.Window)}
		t.gates[subject] = g
	}
	g.users++
	if len(t.seen) < maxSeen {
		t.seen[subject] = true
	}
	return g, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if g.users--; g.users == 0 {
			delete(t.gates, subject)
		}
	}
}

// Publish implements [engine.Transport]. destination is a subject. Calls for one
// subject share its window.
func (t *Transport) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(i int, res engine.Result)) {
	if len(msgs) == 0 {
		return
	}
	if err := CheckSubject(destination); err != nil {
		for i := range msgs {
			// A topic that is no subject is the message's own and will never do. A subject
			// of the route's is a mistake of the configuration, and nobody dies of that.
			class := engine.DestinationFailed
			if msgs[i].Topic == destination {
				class = engine.Rejected
			}
			report(i, engine.Result{Fault: faults.Newf(class, codeSubject, "natsjs: %w", err)})
		}
		return
	}
	if !t.life.Enter() {
		for i := range msgs {
			report(i, engine.Result{Fault: faults.NewClosed("natsjs")})
		}
		return
	}
	defer t.life.Leave()
	g, leave := t.window(destination)
	defer leave()
	ctx, done := t.life.Bind(ctx)
	defer done()

	c := newCall(destination, g, report)
	sent := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() {
		wire.Guard(ctx, sent, func() {
			if s := c.writing.Load(); s != nil {
				s.kill(codeTimeout)
			}
		})
	})
	next, stop := t.sendAll(ctx, c, msgs)
	close(sent)
	guard.Wait()
	for i := next; i < len(msgs) && stop != nil; i++ {
		report(i, engine.Result{Fault: faults.Again(stop)})
	}
	c.wait(ctx)
	t.conclude(ctx, c)
	if c.confirmed {
		t.heard(destination)
	}
	rest := stop == nil && next < len(msgs)
	if !rest && len(c.unheard) == 0 {
		return
	}
	f := t.trouble(ctx, c)
	for _, i := range c.unheard {
		report(i, engine.Result{Fault: faults.Again(f)})
	}
	for i := next; i < len(msgs) && rest; i++ {
		report(i, engine.Result{Fault: faults.Again(f)})
	}
}

// sendAll sends what can be sent. It returns the index of the first message that
// was not, and why; without a reason it is the call's trouble.
func (t *Transport) sendAll(ctx context.Context, c *call, msgs []engine.Outgoing) (next int, stop *engine.Fault) {
	for i := range msgs {
		if c.troubled() {
			return i, nil
		}
		msg, f := t.prepare(c.subject, &msgs[i])
		if f == nil {
			var ok bool
			if f, ok = t.send(ctx, c, i, msg); !ok {
				return i, nil
			}
		}
		if f == nil {
			continue
		}
		c.report(i, engine.Result{Fault: f})
		if f.Class != engine.Rejected {
			// Nothing that follows would fare better, and each would take as long.
			return i + 1, f
		}
	}
	return len(msgs), nil
}

// prepare writes a message for the wire and refuses what the server, the stream or
// the client library could never take.
func (t *Transport) prepare(subject string, m *engine.Outgoing) (*nats.Msg, *engine.Fault) {
	if m.ID.IsZero() {
		return nil, faults.New(engine.Rejected, codeMalformed, errors.New("natsjs: the message has no id"))
	}
	n := envelope.ForNATS(m, t.opts.Source)
	if t.opts.Stream != "" {
		n.Set(envelope.NATSExpectedStream, t.opts.Stream)
	}
	if err := n.Check(); err != nil {
		return nil, faults.Newf(engine.Rejected, codeMalformed, "natsjs: %w", err)
	}
	if n.Size() > envelope.MaxNATSHeaders {
		return nil, faults.Newf(engine.Rejected, codeTooLarge, "natsjs: headers take %d bytes; a stream stores %d", n.Size(), envelope.MaxNATSHeaders)
	}
	return &nats.Msg{Subject: subject, Header: n.Headers, Data: m.Payload}, nil
}

// send puts a message on the wire, on a new connection if need be. nil: it will be
// settled. A fault: it was not sent. false: nor was it, and the call is in trouble.
func (t *Transport) send(ctx context.Context, c *call, i int, msg *nats.Msg) (f *engine.Fault, ok bool) {
	select {
	case c.gate.slots <- struct{}{}:
	default:
		select {
		case c.gate.slots <- struct{}{}:
		case <-c.trouble:
			return nil, false
		case <-ctx.Done():
			return notSent(ctx), true
		}
	}
	refuse := func(f *engine.Fault) (*engine.Fault, bool) {
		c.gate.leave()
		return f, true
	}
	for {
		if ctx.Err() != nil {
			return refuse(notSent(ctx))
		}
		s, f := t.line.Session(ctx)
		if f != nil {
			return refuse(f)
		}
		e := &entry{c: c, i: i, subject: c.subject}
		c.sending()
		var registered bool
		if msg.Reply, registered = s.register(e); !registered {
			c.unsent()
			continue // the line gives another one
		}
		c.writing.Store(s)
		err := s.nc.PublishMsg(msg)
		c.writing.Store(nil)
		if err == nil {
			c.entries = append(c.entries, e)
			return nil, true
		}
		f, gone := s.unsent(err, len(msg.Data))
		if f == nil && !gone {
			// A write failed, and whether that was before or after the last byte of this
			// message does not matter: it counts as sent. Nothing follows it.
			s.kill(codeLost)
			c.entries = append(c.entries, e)
			return nil, true
		}
		if !s.take(e) {
			return nil, true // the end of the connection has settled it
		}
		c.unsent()
		if f != nil {
			return refuse(f)
		}
		select {
		case <-s.dead:
		case <-ctx.Done():
		}
	}
}

// unsent says what it means that the library took no message: a fault, or that the
// connection was gone before. With neither it may have written some of it.
func (s *session) unsent(err error, size int) (f *engine.Fault, gone bool) {
	switch {
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionDraining):
		return nil, true
	case errors.Is(err, nats.ErrMaxPayload):
		return faults.Newf(engine.Rejected, codeTooLarge, "natsjs: headers and a payload of %d bytes are more than the server's max_payload of %d", size, s.nc.MaxPayload()), false
	case errors.Is(err, nats.ErrBadHeaderMsg), errors.Is(err, nats.ErrBadSubject):
		return faults.Newf(engine.Rejected, codeMalformed, "natsjs: refused by the client: %w", err), false
	case errors.Is(err, nats.ErrHeadersNotSupported):
		return faults.Newf(engine.Unavailable, codeNoHeaders, "natsjs: the server at %s takes no headers", s.addr.HostPort()), false
	}
	return nil, false
}

func notSent(ctx context.Context) *engine.Fault { return faults.NewNotSent("natsjs", ctx) }

// conclude gives up on what was sent and has no answer. When it returns nothing of
// the call can be sent any more.
func (t *Transport) conclude(ctx context.Context, c *call) {
	c.abandon(func(e *entry) engine.Result {
		c.mu.Lock()
		denied, confirmed := c.denied, c.confirmed
		c.mu.Unlock()
		e.s.mu.Lock()
		garbled := e.garbled
		e.s.mu.Unlock()
		var f *engine.Fault
		switch {
		case denied != nil && confirmed:
			// What was sent before the permission went may be in the stream.
			f = permission(engine.Unknown, c.subject, denied)
		case denied != nil:
			f = permission(engine.DestinationFailed, c.subject, denied)
		case garbled:
			f = faults.Newf(engine.Unknown, codeBadAck, "natsjs: subject %q: no acknowledgement in time, but an answer that is none: something other than a stream listens there", c.subject)
		default:
			f = faults.Newf(engine.Unknown, codeTimeout, "natsjs: subject %q: no acknowledgement in time: %w", c.subject, context.Cause(ctx))
		}
		return engine.Result{Fault: f}
	})
}

func permission(class engine.Class, subject string, err error) *engine.Fault {
	return faults.Newf(class, codePermission, "natsjs: subject %q: this user may not publish there: %w", subject, err)
}

// trouble says what is wrong with the call's subject. Everything that was sent has
// been answered.
func (t *Transport) trouble(ctx context.Context, c *call) *engine.Fault {
	c.mu.Lock()
	denied := c.denied // the server's word may still be on its way here
	c.mu.Unlock()
	if denied != nil {
		return permission(engine.DestinationFailed, c.subject, denied)
	}
	return t.nobody(ctx, c.subject)
}

// Close implements [engine.Transport].
func (t *Transport) Close(ctx context.Context) error {
	return t.life.Close(ctx, "natsjs", t.line.Close)
}
