package rabbitmq

import (
	"context"
	"crypto/tls"
	"net"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/dialing"
	"github.com/outward-dev/outward/transports/internal/faults"
	"github.com/outward-dev/outward/transports/internal/wire"
)

// AMQP limits that are asked for. They are RabbitMQ's own defaults.
const (
	channelMax = 2047
	frameMax   = 131072
)

// A line is the way to the broker.
type line = dialing.Line[*session]

func (t *Transport) newLine() *line {
	return &line{
		Dial:   func() (*session, *engine.Fault) { return t.dial(t.life.Context()) },
		Redial: dialing.Redial,
		Work:   &t.life.Work,
		Peer:   "rabbitmq: connect to " + t.addr.HostPort(),
	}
}

// dial opens a connection. The library's own recovery stays off: on a channel
// that it has reopened, confirmations can belong to the message before.
func (t *Transport) dial(ctx context.Context) (*session, *engine.Fault) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.DialTimeout)
	defer cancel()
	host := t.addr.HostPort()

	// A new value each time: the library blanks the password of the one it used.
	var auth amqp.Authentication
	if t.opts.External {
		auth = &amqp.ExternalAuth{}
	} else {
		user, password := t.addr.login()
		if t.opts.Credentials != nil {
			var err error
			if user, password, err = t.opts.Credentials(ctx); err != nil {
				return nil, faults.Newf(engine.Unavailable, codeAuth, "rabbitmq: connect to %s: credentials: %w", host, err)
			}
		}
		auth = &amqp.PlainAuth{Username: user, Password: password}
	}

	tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, dialFault(host, err)
	}
	w := wire.Gather(&wire.Conn{Conn: tcp, Timeout: t.opts.WriteTimeout})
	stop := context.AfterFunc(ctx, w.Abort)
	defer stop()
	var conn net.Conn = w
	if t.addr.tls {
		cfg := t.opts.TLS.Clone()
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if cfg.ServerName == "" {
			cfg.ServerName = t.addr.Host
		}
		secure := tls.Client(w, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			w.Abort()
			return nil, dialFault(host, dialing.Overdue(ctx, err))
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
		w.Abort()
		return nil, dialFault(host, dialing.Overdue(ctx, err))
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
