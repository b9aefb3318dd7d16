package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/envelope"
	"github.com/outward-dev/outward/transports/internal/faults"
	"github.com/outward-dev/outward/transports/internal/lifetime"
)

// A Transport publishes to one virtual host of one RabbitMQ. It connects when it
// is first used and again when a connection is lost. It may be shared.
type Transport struct {
	addr     *endpoint
	opts     Options
	log      *slog.Logger
	maxPipes int // channels of a connection; past it an idle one makes room

	life    *lifetime.Lifetime
	alarmed atomic.Bool // a broker in alarm was met and has not been seen well since

	suspects suspects

	shared *line

	mu   sync.Mutex
	solo map[string]*line // by exchange
}

var (
	_ engine.Transport = (*Transport)(nil)
	_ engine.Prober    = (*Transport)(nil)
	_ engine.Checker   = (*Transport)(nil)
)

// New returns a Transport for the broker at url,
// amqp[s]://[user[:password]@]host[:port][/vhost], with reserved characters
// percent-encoded. It reports everything that is wrong with url and opts at once,
// in words that contain no part of the URL, and starts nothing. opts may be nil.
func New(url string, opts *Options) (*Transport, error) {
	addr, errURL := parseURL(url)
	o, errOpts := opts.withDefaults()
	if errURL == nil && o.TLS != nil && !addr.tls {
		errURL = errors.New("Options.TLS is set and the URL is not amqps://")
	}
	if errURL == nil && o.External && !addr.tls {
		errURL = errors.New("Options.External needs an amqps:// URL")
	}
	if err := errors.Join(errURL, errOpts); err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	t := &Transport{
		addr: addr, opts: o, log: o.Logger, life: lifetime.New(),
		maxPipes: 512, solo: map[string]*line{},
	}
	t.shared = t.newLine()
	return t, nil
}

// Describe implements [engine.Transport].
func (t *Transport) Describe() engine.TransportInfo {
	// KeepsKeyOrder is false: messages of one channel are taken in order, but one
	// that is returned, refused or lost does not stop those behind it, and they are
	// in their queues by the time its failure is known.
	return engine.TransportInfo{Name: t.opts.Name, Kind: "rabbitmq"}
}

// Publish implements [engine.Transport]. destination is what [Destination]
// writes. Calls for one exchange share a channel and its window.
func (t *Transport) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(i int, res engine.Result)) {
	if len(msgs) == 0 {
		return
	}
	failAll := func(f *engine.Fault) {
		for i := range msgs {
			report(i, engine.Result{Fault: faults.Again(f)})
		}
	}
	d, err := parseDestination(destination)
	if err != nil {
		failAll(faults.Newf(engine.DestinationFailed, codeDestination, "rabbitmq: %w", err))
		return
	}
	if !t.life.Enter() {
		failAll(faults.NewClosed("rabbitmq"))
		return
	}
	defer t.life.Leave()
	ctx, done := t.life.Bind(ctx)
	defer done()

	c := newCall(len(msgs), report)
	c.run(ctx, func() {
		var alone []int
		for i := range msgs {
			if t.suspects.has(msgs[i].ID) {
				alone = append(alone, i)
				continue
			}
			key, pub, f := t.prepare(d, &msgs[i])
			if f == nil {
				f = t.send(ctx, c, i, d.exchange, key, pub)
			}
			if f == nil {
				continue
			}
			c.finish(i, engine.Result{Fault: f})
			if stops(f) {
				// Nothing that follows would fare better, and each would take as long.
				for j := i + 1; j < len(msgs); j++ {
					c.finish(j, engine.Result{Fault: faults.Again(f)})
				}
				for _, j := range alone {
					c.finish(j, engine.Result{Fault: faults.Again(f)})
				}
				return
			}
		}
		t.tryAlone(ctx, d, msgs, alone, c)
	})
}

// stops reports whether a fault before the wire concerns every message of a call.
func stops(f *engine.Fault) bool {
	return f.Class == engine.Unavailable || f.Class == engine.DestinationFailed || f.Code == codeNotSent
}

// prepare writes a message for the wire and refuses what the broker, or the
// client library, could only answer by closing a channel or the connection and
// losing everybody else's messages with it.
func (t *Transport) prepare(d target, m *engine.Outgoing) (string, amqp.Publishing, *engine.Fault) {
	refuse := func(code string, err error) (string, amqp.Publishing, *engine.Fault) {
		return "", amqp.Publishing{}, faults.New(engine.Rejected, code, fmt.Errorf("rabbitmq: %w", err))
	}
	if m.ID.IsZero() {
		return refuse(codeMalformed, errors.New("the message has no id"))
	}
	key := d.key
	if key == "" {
		key = m.Topic
	}
	if err := envelope.CheckShort("the routing key", key); err != nil {
		return refuse(codeMalformed, err)
	}
	if len(m.Payload) > t.opts.MaxBody {
		return refuse(codeTooLarge, fmt.Errorf("payload is %d bytes long; the limit is %d", len(m.Payload), t.opts.MaxBody))
	}
	a := envelope.ForAMQP(m, t.opts.Source)
	if err := a.Check(); err != nil {
		return refuse(codeMalformed, err)
	}
	if n := a.FrameSize(); n > frameMax {
		return refuse(codeTooLarge, fmt.Errorf("properties and headers take %d bytes; an AMQP frame holds %d", n, frameMax))
	}
	// user-id and expiration are never set: the broker closes the channel over a
	// wrong one. Nor is immediate: it closes the connection.
	return key, amqp.Publishing{
		Headers:       a.Headers,
		ContentType:   a.ContentType,
		DeliveryMode:  amqp.Persistent,
		CorrelationId: a.CorrelationID,
		MessageId:     a.MessageID,
		Timestamp:     a.Timestamp,
		Type:          a.Type,
		AppId:         a.AppID,
		Body:          m.Payload,
	}, nil
}

// send puts a message on the wire, on a new channel or connection if need be. nil:
// it will be settled.
func (t *Transport) send(ctx context.Context, c *call, i int, exchange, key string, pub amqp.Publishing) *engine.Fault {
	for {
		if ctx.Err() != nil {
			return notSent(ctx)
		}
		p, f := t.pipe(ctx, exchange)
		if f != nil {
			return f
		}
		if f, gone := sendOn(ctx, p, c, i, key, pub); !gone {
			return f
		}
	}
}

// sendOn is [pipe.send] with its error taken apart.
func sendOn(ctx context.Context, p *pipe, c *call, i int, key string, pub amqp.Publishing) (f *engine.Fault, gone bool) {
	err := p.send(ctx, c, i, key, pub)
	switch {
	case err == nil:
		return nil, false
	case errors.Is(err, errGone):
		return nil, true
	case errors.As(err, &f):
		return f, false
	}
	return faults.New(engine.Transient, codeWrite, err), false
}

func notSent(ctx context.Context) *engine.Fault { return faults.NewNotSent("rabbitmq", ctx) }

// pipe returns a channel for exchange that is, as far as is known, open and not
// blocked.
func (t *Transport) pipe(ctx context.Context, exchange string) (*pipe, *engine.Fault) {
	for {
		s, f := t.line(exchange).Session(ctx)
		if f != nil {
			return nil, f
		}
		if f := s.ready(ctx); f != nil {
			return nil, f
		}
		p, f, lost := s.pipe(ctx, exchange)
		if lost {
			select {
			case <-s.dead: // so that the next round sees it
			case <-ctx.Done():
				return nil, f
			}
			continue
		}
		return p, f
	}
}

// line returns the way to the broker for an exchange.
func (t *Transport) line(exchange string) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.solo[exchange]; l != nil {
		return l
	}
	return t.shared
}

// maxSolo bounds the connections that are opened for single exchanges.
const maxSolo = 32

// isolate gives an exchange a connection of its own from now on, after a
// connection that it shared had to be cut on its account: the broker throttles a
// whole connection when one of its queues can't keep up, and what is behind one
// exchange must not stop another.
func (t *Transport) isolate(s *session, exchange string) {
	s.mu.Lock()
	company := len(s.pipes) > 0 // the exchange's own pipe has been retired by now
	blocked := s.isBlocked()
	s.mu.Unlock()
	if s.alone || blocked || !company {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.solo[exchange] == nil && len(t.solo) < maxSolo {
		t.solo[exchange] = t.newLine()
		t.log.Warn("rabbitmq: an exchange that holds up others gets a connection of its own", "exchange", exchangeName(exchange))
	}
}

// tryAlone sends suspects one after another over a connection of their own.
func (t *Transport) tryAlone(ctx context.Context, d target, msgs []engine.Outgoing, suspects []int, c *call) {
	var s *session
	defer func() {
		if s != nil {
			s.Close()
		}
	}()
	for n, i := range suspects {
		key, pub, f := t.prepare(d, &msgs[i])
		if f == nil && (s == nil || s.ended()) {
			s, f = t.dialAlone(ctx, d.exchange)
		}
		var res engine.Result
		if f == nil {
			f, res = s.try(ctx, d.exchange, key, pub)
		}
		if f != nil {
			res = engine.Result{Fault: f}
		}
		c.finish(i, res)
		if f != nil && stops(f) {
			for _, j := range suspects[n+1:] {
				c.finish(j, engine.Result{Fault: faults.Again(f)})
			}
			return
		}
	}
}

// dialAlone makes a connection for one message at a time. It asks the ordinary way
// first, which knows when the broker is out of reach or blocked and does not let
// itself be hurried.
func (t *Transport) dialAlone(ctx context.Context, exchange string) (*session, *engine.Fault) {
	ordinary, f := t.line(exchange).Session(ctx)
	if f != nil {
		return nil, f
	}
	if f := ordinary.ready(ctx); f != nil {
		return nil, f
	}
	s, f := t.dial(ctx)
	if f != nil {
		return nil, f
	}
	s.alone = true
	return s, nil
}

// try sends one message and waits for its outcome. A fault says that it was not
// sent; otherwise the result stands.
func (s *session) try(ctx context.Context, exchange, key string, pub amqp.Publishing) (*engine.Fault, engine.Result) {
	for {
		p, f, _ := s.pipe(ctx, exchange)
		if f != nil {
			return f, engine.Result{}
		}
		var res engine.Result
		var unsent *engine.Fault
		gone := false
		c := newCall(1, func(_ int, r engine.Result) { res = r })
		c.run(ctx, func() {
			if unsent, gone = sendOn(ctx, p, c, 0, key, pub); unsent != nil || gone {
				c.finish(0, engine.Result{})
			}
		})
		if gone && !s.ended() {
			continue
		}
		if gone {
			unsent = s.Fault()
		}
		return unsent, res
	}
}

// Close implements [engine.Transport].
func (t *Transport) Close(ctx context.Context) error {
	return t.life.Close(ctx, "rabbitmq", func() {
		var goodbyes sync.WaitGroup
		goodbyes.Go(t.shared.Close)
		t.mu.Lock()
		for _, l := range t.solo {
			goodbyes.Go(l.Close)
		}
		t.mu.Unlock()
		goodbyes.Wait()
	})
}
