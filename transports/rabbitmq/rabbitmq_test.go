package rabbitmq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// server is the broker that tests use. No test of this package is parallel.
var server = "rabbitmq4"

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

// unique returns a name that no other test uses.
func unique(prefix string) string {
	var b [6]byte
	rand.Read(b[:])
	return "outward-test." + prefix + "." + hex.EncodeToString(b[:])
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
	t.Cleanup(func() { conn.Close() })
	return &broker{t, conn}
}

// do runs f on a channel of its own and fails the test on an error.
func (b *broker) do(f func(ch *amqp.Channel) error) {
	b.t.Helper()
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
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := tr.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return tr
}

// message is an ordinary message.
func message(body string) engine.Outgoing {
	return engine.Outgoing{
		Message: engine.Message{
			ID: engine.NewID(), Topic: "order.submitted", Type: "order.submitted.v1",
			Payload: []byte(body), OccurredAt: time.Now(),
		},
		CreatedAt: time.Now(),
	}
}

func messages(n int) []engine.Outgoing {
	msgs := make([]engine.Outgoing, n)
	for i := range msgs {
		msgs[i] = message(`{"n":1}`)
	}
	return msgs
}

// publish publishes and returns the result of each message, after it has checked
// that each was reported exactly once and none after Publish had returned.
func publish(t testing.TB, ctx context.Context, tr *Transport, destination string, msgs []engine.Outgoing) []engine.Result {
	t.Helper()
	var mu sync.Mutex
	returned := false
	results := make([]engine.Result, len(msgs))
	counts := make([]int, len(msgs))
	tr.Publish(ctx, destination, msgs, func(i int, r engine.Result) {
		mu.Lock()
		defer mu.Unlock()
		if returned {
			t.Errorf("message %d was reported after Publish had returned", i)
		}
		counts[i]++
		results[i] = r
	})
	mu.Lock()
	defer mu.Unlock()
	returned = true
	for i, n := range counts {
		if n != 1 {
			t.Errorf("message %d was reported %d times", i, n)
		}
	}
	return results
}

// within returns a context that ends after d.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// wantFault fails unless r has a fault of that class and code.
func wantFault(t testing.TB, r engine.Result, class engine.Class, code string) {
	t.Helper()
	if r.Fault == nil {
		t.Errorf("confirmed, want %v (%s)", class, code)
	} else if r.Fault.Class != class || r.Fault.Code != code {
		t.Errorf("%v, want %v (%s)", r.Fault, class, code)
	}
}

func wantConfirmed(t testing.TB, rs ...engine.Result) {
	t.Helper()
	for i, r := range rs {
		if r.Fault != nil {
			t.Errorf("message %d: %v, want confirmed", i, r.Fault)
		}
	}
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
