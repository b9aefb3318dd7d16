package rabbitmq

import (
	"context"
	"maps"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
	"github.com/outward-dev/outward/transports/internal/transporttest"
)

// server is the broker that tests use. No test of this package is parallel.
var server = "rabbitmq4"

// What every transport's tests have.
var (
	unique        = transporttest.Unique
	message       = transporttest.Message
	messages      = transporttest.Messages
	within        = transporttest.Within
	wantFault     = transporttest.WantFault
	wantConfirmed = transporttest.WantConfirmed
)

func publish(t testing.TB, ctx context.Context, tr *Transport, destination string, msgs []engine.Outgoing) []engine.Result {
	t.Helper()
	return transporttest.Publish(t, ctx, tr, destination, msgs)
}

// harness is the way to this transport for the tests that are the same for all.
var harness = &transporttest.Harness{
	New: func(t *testing.T, c transporttest.Conditions) *transporttest.Subject {
		s, _ := subject(t, c)
		return s
	},
	At: func(t *testing.T, address string, redial time.Duration) engine.Transport {
		tr := newTransport(t, "amqp://"+address, nil)
		tr.shared.Redial = redial
		return tr
	},
	Large: 4 << 20,
}

// subject is a transport to a queue of its own. The proxy is nil for a direct one.
func subject(t *testing.T, c transporttest.Conditions) (*transporttest.Subject, *proxy) {
	t.Helper()
	b := dialBroker(t)
	q := b.queue("subject", nil)
	stored := map[string]int{}
	s := &transporttest.Subject{
		Destination: Destination("", q),
		Depth:       func() int { return b.depth(q) },
		Stored: func() map[string]int {
			for _, d := range b.drain(q) {
				stored[d.MessageId]++
			}
			return maps.Clone(stored)
		},
	}
	url := brokerURL(t)
	var p *proxy
	if !c.Direct {
		p = newProxy(t, url)
		url = p.url(url)
		s.Proxy = p.Proxy
		s.OnPublish = func(f func(*faultproxy.Conn)) { p.set(func() { p.onPublish = f }) }
	}
	tr := newTransport(t, url, nil)
	if c.Redial != 0 {
		tr.shared.Redial = c.Redial
	}
	s.Transport = tr
	return s, p
}

type clause struct {
	name string
	f    func(*testing.T)
}

func onEachBroker(t *testing.T, clauses []clause) {
	for _, name := range []string{"rabbitmq4", "rabbitmq3"} {
		t.Run(name, func(t *testing.T) {
			testservers.URL(t, name)
			defer func(old string) { server = old }(server)
			server = name
			for _, c := range clauses {
				t.Run(c.name, c.f)
			}
		})
	}
}

// brokerURL returns the URL of a real broker, or skips.
func brokerURL(t testing.TB) string {
	t.Helper()
	return testservers.URL(t, server)
}

// broker is a plain connection to the real broker, for setting up and looking.
type broker struct {
	t    testing.TB
	conn *amqp.Connection
}

func dialBroker(t testing.TB) *broker {
	t.Helper()
	conn, err := amqp.Dial(brokerURL(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t, conn}
	t.Cleanup(func() { b.conn.Close() })
	return b
}

// do runs f on a channel of its own and fails the test on an error. After the
// broker was killed it connects again.
func (b *broker) do(f func(ch *amqp.Channel) error) {
	b.t.Helper()
	if b.conn.IsClosed() {
		var err error
		if b.conn, err = amqp.Dial(brokerURL(b.t)); err != nil {
			b.t.Fatal(err)
		}
	}
	ch, err := b.conn.Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	defer ch.Close()
	if err := f(ch); err != nil {
		b.t.Fatal(err)
	}
}

// queue declares a durable queue and deletes it at the end.
func (b *broker) queue(prefix string, args amqp.Table) string {
	b.t.Helper()
	name := unique(prefix)
	b.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	b.t.Cleanup(func() {
		b.do(func(ch *amqp.Channel) error { _, err := ch.QueueDelete(name, false, false, false); return err })
	})
	return name
}

// exchange declares a durable exchange and deletes it at the end.
func (b *broker) exchange(prefix, kind string) string {
	b.t.Helper()
	name := unique(prefix)
	b.do(func(ch *amqp.Channel) error { return ch.ExchangeDeclare(name, kind, true, false, false, false, nil) })
	b.t.Cleanup(func() { b.do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) }) })
	return name
}

func (b *broker) bind(queue, key, exchange string) {
	b.t.Helper()
	b.do(func(ch *amqp.Channel) error { return ch.QueueBind(queue, key, exchange, false, nil) })
}

// depth counts the messages of a queue.
func (b *broker) depth(queue string) int {
	b.t.Helper()
	var q amqp.Queue
	b.do(func(ch *amqp.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	})
	return q.Messages
}

// drain takes everything out of a queue.
func (b *broker) drain(queue string) []amqp.Delivery {
	b.t.Helper()
	var all []amqp.Delivery
	b.do(func(ch *amqp.Channel) error {
		for {
			d, ok, err := ch.Get(queue, true)
			if err != nil || !ok {
				return err
			}
			all = append(all, d)
		}
	})
	return all
}

// newTransport returns a transport that is closed at the end.
func newTransport(t testing.TB, url string, opts *Options) *Transport {
	t.Helper()
	tr, err := New(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	transporttest.CloseAfter(t, tr)
	return tr
}

// current is the transport's connection.
func current(t testing.TB, tr *Transport) *session {
	t.Helper()
	s, f := tr.shared.Session(within(t, 10*time.Second))
	if f != nil {
		t.Fatal(f)
	}
	return s
}

func TestPublishConfirmed(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("confirmed", nil)
	tr := newTransport(t, brokerURL(t), nil)
	msgs := messages(2500)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), msgs)...)
	got := b.drain(q)
	if len(got) != len(msgs) {
		t.Fatalf("%d messages in the queue, want %d", len(got), len(msgs))
	}
	for i, d := range got {
		if d.MessageId != msgs[i].ID.String() {
			t.Fatalf("message %d is %s, want %s", i, d.MessageId, msgs[i].ID)
		}
	}
}

func TestPublishMissingAndUnroutable(t *testing.T) {
	b := dialBroker(t)
	q, x := b.queue("ok", nil), b.exchange("unroutable", "topic")
	tr := newTransport(t, brokerURL(t), nil)
	ctx := within(t, 20*time.Second)
	for _, r := range publish(t, ctx, tr, unique("missing"), messages(5)) {
		wantFault(t, r, engine.DestinationFailed, "404")
	}
	for _, r := range publish(t, ctx, tr, x, messages(5)) {
		wantFault(t, r, engine.DestinationFailed, "no_route")
	}
	wantConfirmed(t, publish(t, ctx, tr, Destination("", q), messages(5))...)
}
