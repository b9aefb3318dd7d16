package rabbitmq

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/envelope"
	"github.com/outward-dev/outward/transports/internal/settings"
)

// Options are a Transport's settings. The zero value of each is the default that
// stands beside it.
type Options struct {
	// Name tells this transport from others of a relay. Default "rabbitmq".
	Name string
	// Source is the CloudEvents source and the app-id of every message: a URI
	// reference such as "/orders". Default "/outward".
	Source string
	// ConnectionName is shown by the broker beside the connection. Default
	// "outward".
	ConnectionName string

	// TLS is used for amqps URLs. nil: the system's roots and the URL's host name.
	TLS *tls.Config
	// External logs in by the client certificate of TLS (SASL EXTERNAL) instead of
	// by user and password.
	External bool
	// Credentials is asked for user and password at every dial, in place of the
	// URL's: for tokens that expire. Its error is Unavailable, and its text is
	// passed on.
	Credentials func(context.Context) (user, password string, err error)

	// Heartbeat finds a peer that is gone without a word, within one and a half of
	// it. From 1 s to 60 s. Default 10 s.
	Heartbeat time.Duration
	// DialTimeout bounds connecting, with TLS and login, and opening a channel.
	// Default 10 s.
	DialTimeout time.Duration
	// WriteTimeout bounds one write to the socket. A broker that reads nothing
	// (an alarm, a stall) would otherwise hold the writer, and whoever waits for it,
	// for ever. Default 10 s.
	WriteTimeout time.Duration

	// Window is how many messages may be unconfirmed on one channel. More than 1000
	// gains nothing. From 1 to 65535. Default 1000.
	Window int
	// MaxBody is the largest payload in bytes that the broker takes: its
	// max_message_size. A larger one is Rejected before it is sent, since the broker
	// would close the channel over it. Default 16 MiB, RabbitMQ 4's own.
	MaxBody int

	// Declare is declared on each new connection. nil: nothing is ever declared.
	Declare *Topology
	// Destinations are looked at by Check.
	Destinations []string

	// Logger may be nil.
	Logger *slog.Logger
}

// Topology is what a Transport declares when it is asked to. Everything is
// durable: what is not would lose confirmed messages at a restart.
type Topology struct {
	Exchanges []Exchange
	Queues    []Queue
	Bindings  []Binding
}

// Exchange is a durable exchange.
type Exchange struct {
	Name string
	Kind string // "topic", "direct", "fanout", "headers" or a plugin's
	Args map[string]any
}

// Queue is a durable queue. Args may hold x-queue-type and the like.
type Queue struct {
	Name string
	Args map[string]any
}

// Binding routes from Exchange to Queue.
type Binding struct {
	Exchange, Queue, Key string
	Args                 map[string]any
}

// withDefaults checks o and fills it in. All faults are reported at once.
func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	var c settings.Checks
	c.Text(&v.Name, "rabbitmq")
	c.Source(&v.Source)
	c.Add(envelope.CheckShort("Source", v.Source))
	c.Text(&v.ConnectionName, "outward")
	c.Duration("Heartbeat", &v.Heartbeat, 10*time.Second, time.Second, time.Minute)
	c.Timeout("DialTimeout", &v.DialTimeout, 10*time.Second)
	c.Timeout("WriteTimeout", &v.WriteTimeout, 10*time.Second)
	c.Number("Window", &v.Window, 1000, 65535)
	c.Number("MaxBody", &v.MaxBody, engine.DefaultMaxPayload, 512<<20)
	if v.External && v.Credentials != nil {
		c.Addf("External and Credentials exclude each other")
	}
	for _, d := range v.Destinations {
		if _, err := parseDestination(d); err != nil {
			c.Addf("Destinations: %w", err)
		}
	}
	c.Add(v.Declare.check()...)
	c.Logger(&v.Logger)
	return v, c.Err()
}

// check reports what no broker could declare.
func (d *Topology) check() []error {
	if d == nil {
		return nil
	}
	var faults []error
	one := func(what, name string, args map[string]any) {
		if name == "" {
			faults = append(faults, fmt.Errorf("Declare: %s has no name", what))
		}
		if err := envelope.CheckShort("Declare: "+what, name); err != nil {
			faults = append(faults, err)
		}
		if err := amqp.Table(args).Validate(); err != nil {
			faults = append(faults, fmt.Errorf("Declare: %s %.80q: %w", what, name, err))
		}
	}
	for _, e := range d.Exchanges {
		one("exchange", e.Name, e.Args)
		one("an exchange's kind", e.Kind, nil)
	}
	for _, q := range d.Queues {
		one("queue", q.Name, q.Args)
	}
	for _, b := range d.Bindings {
		one("a binding's exchange", b.Exchange, b.Args)
		one("a binding's queue", b.Queue, nil)
		if err := envelope.CheckShort("Declare: a binding's key", b.Key); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}
