package engine

import (
	"context"
	"time"
)

// A Transport publishes to one broker. All methods may be called concurrently.
type Transport interface {
	// Publish sends msgs to one destination and reports each of them exactly once,
	// by its index, as soon as its outcome is known, from any goroutine. It returns
	// after the last report, and when no byte of these messages can be sent any
	// more. A nil Result.Fault means that the broker took responsibility: its
	// strongest ordinary confirmation. One message's failure is its own.
	//
	// When ctx ends Publish aborts what it can, by closing the connection where the
	// client can't cancel, and reports the rest Unknown. It connects by itself and
	// never retries a message by itself. It keeps no reference to msgs after it has
	// returned and never changes them.
	Publish(ctx context.Context, destination string, msgs []Outgoing, report func(i int, res Result))

	// Describe says what this transport is. It does no I/O.
	Describe() TransportInfo

	// Close lets running calls of Publish finish until ctx ends, then cuts them off.
	// Publish reports Unavailable afterwards. A second Close does nothing.
	Close(ctx context.Context) error
}

// TransportInfo is what differs between transports in degree.
type TransportInfo struct {
	// Name tells two transports of one relay apart, in logs, pauses and metrics. It
	// has no colon, and is none of "transport", "topic" and "given_up".
	Name string
	// Kind is the client: "rabbitmq", "kafka", "nats", "webhook", "memory".
	Kind string
	// KeepsKeyOrder: within one call of Publish the transport itself stops a key at
	// its first failure, so a run of a key may be handed over in one go; what it did
	// not send for that reason it reports as Transient with [CodeStopped]. Without it
	// the relay sends the next message of a key only after the one before was
	// confirmed.
	KeepsKeyOrder bool
}

// Outgoing is a message on its way out.
type Outgoing struct {
	Message
	CreatedAt time.Time
	Resends   int
	Attempts  int // charged ones before this
}

// A Result is the outcome of one message.
type Result struct {
	Fault     *Fault // nil: confirmed
	Ack       string // the broker's word for it, for logs: "stream ORDERS seq 42"
	Duplicate bool   // the broker already had it, and counts it as confirmed
}

// A Prober is an optional ability of a Transport.
type Prober interface {
	// Probe looks, without publishing, whether destination would take messages now;
	// nil means yes. An empty destination asks only whether the broker takes anything
	// at all. Without this ability a paused destination is tried with its own messages.
	Probe(ctx context.Context, destination string) *Fault
}
