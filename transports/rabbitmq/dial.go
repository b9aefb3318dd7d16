package rabbitmq

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
)

// AMQP limits that are asked for. They are RabbitMQ's own defaults.
const (
	channelMax = 2047
	frameMax   = 131072
)

// A line is the way to the broker: one connection at a time, made when it is
// needed and made again when it is lost.
type line struct {
	t *Transport

	mu      sync.Mutex
	current *session
	dialing chan struct{} // closed when the attempt under way has ended
	fault   *engine.Fault // how the last attempt ended
	notYet  time.Time     // no attempt before this
}

// session returns the line's connection. Callers share an attempt; for a while
// after one has failed they all get its fault, so that a broker that comes back
// meets no stampede.
func (l *line) session(ctx context.Context) (*session, *engine.Fault) {
	for {
		l.mu.Lock()
		if l.current != nil && !l.current.ended() {
			s := l.current
			l.mu.Unlock()
			return s, nil
		}
		if l.current != nil {
			if time.Since(l.current.opened) < l.t.redial && !l.current.proved.Load() {
				// It died young and had done nothing: treated like a failed attempt.
				l.fault, l.notYet = l.current.fault(), time.Now().Add(l.t.redial)
			}
			l.current = nil
		}
		if l.dialing == nil {
			if time.Now().Before(l.notYet) {
				f := *l.fault
				l.mu.Unlock()
				return nil, &f
			}
			l.dialing = make(chan struct{})
			l.t.wg.Go(l.dial)
		}
		done := l.dialing
		l.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, faultf(engine.Unavailable, codeTimeout, "rabbitmq: connect to %s: no connection in time: %w", l.t.addr.hostPort(), context.Cause(ctx))
		}
		l.mu.Lock()
		s, f := l.current, l.fault
		l.mu.Unlock()
		if s == nil && f != nil {
			copied := *f
			return nil, &copied
		}
	}
}

// dial makes one attempt.
func (l *line) dial() {
	s, f := l.t.dial(l.t.cut)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.fault = s, f
	if f != nil {
		l.notYet = time.Now().Add(l.t.redial)
	}
	close(l.dialing)
	l.dialing = nil
}

// dial opens a connection. The library's own recovery stays off: on a channel
// that it has reopened, confirmations can belong to the message before.
func (t *Transport) dial(ctx context.Context) (*session, *engine.Fault) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.DialTimeout)
	defer cancel()
	host := t.addr.hostPort()

	// A new value each time: the library blanks the password of the one it used.
	var auth amqp.Authentication
	if t.opts.External {
		auth = &amqp.ExternalAuth{}
	} else {
		user, password := t.addr.login()
		if t.opts.Credentials != nil {
			var err error
			if user, password, err = t.opts.Credentials(ctx); err != nil {
				return nil, faultf(engine.Unavailable, codeAuth, "rabbitmq: connect to %s: credentials: %w", host, err)
			}
		}
		auth = &amqp.PlainAuth{Username: user, Password: password}
	}

	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, dialFault(host, err)
	}
	w := &wire{Conn: tcp, timeout: t.opts.WriteTimeout}
	stop := context.AfterFunc(ctx, w.abort)
	defer stop()
	var conn net.Conn = w
	if t.addr.tls {
		cfg := t.opts.TLS.Clone()
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if cfg.ServerName == "" {
			cfg.ServerName = t.addr.host
		}
		secure := tls.Client(w, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			w.abort()
			return nil, dialFault(host, overdue(ctx, err))
		}
		conn = secure
	}
	properties := amqp.NewConnectionProperties()
	properties["product"] = "Outward"
	properties.SetClientConnectionName(t.opts.ConnectionName)
	c, err := amqp.Open(conn, amqp.Config{
		SASL:       []amqp.Authentication{auth},
		Vhost:      t.addr.vhost,
		Heartbeat:  t.opts.Heartbeat,
		ChannelMax: channelMax,
		FrameSize:  frameMax,
		Locale:     "en_US",
		Properties: properties,
	})
	if err != nil {
		// The library leaves its reader running on a connection that it gave up.
		w.abort()
		return nil, dialFault(host, overdue(ctx, err))
	}
	s := newSession(t, c, w)
	if !stop() {
		// The time ran out at the last moment and the connection is being cut.
		<-s.dead
		return nil, dialFault(host, context.Cause(ctx))
	}
	s.declare(t.opts.Declare)
	return s, nil
}

// overdue says that the time was over, where err is only what that looked like
// from inside.
func overdue(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}
