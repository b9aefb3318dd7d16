package rabbitmq

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
)

// TestLooking is what can be learnt without publishing, on each version of the
// broker.
func TestLooking(t *testing.T) {
	onEachBroker(t, []clause{
		{"Probe", testProbe},
		{"ProbeExclusiveQueue", testProbeExclusiveQueue},
		{"DeclareAndCheck", testDeclareAndCheck},
		{"DeclaresNothingByItself", testDeclaresNothingByItself},
	})
}

func testProbe(t *testing.T) {
	b := dialBroker(t)
	q, x := b.queue("probe", nil), b.exchange("probe", "direct")
	tr := newTransport(t, brokerURL(t), nil)
	missing := unique("missing")
	for destination, want := range map[string]string{
		"":                            "",
		"amq.default":                 "",
		Destination("", q):            "",
		Destination("", missing):      "404",
		x:                             "",
		Destination(x, "unroutable"):  "", // can't be asked; the next message is the trial
		missing:                       "404",
		Destination(missing, "key"):   "404",
		Destination("amq.topic", "k"): "",
	} {
		f := tr.Probe(within(t, 10*time.Second), destination)
		switch {
		case want == "" && f != nil:
			t.Errorf("%q: %v, want nil", destination, f)
		case want != "" && (f == nil || f.Class != engine.DestinationFailed || f.Code != want):
			t.Errorf("%q: %v, want destination_failed (%s)", destination, f, want)
		}
	}
	// A probe that says no has cost nobody anything.
	wantConfirmed(t, publish(t, within(t, 10*time.Second), tr, Destination("", q), messages(1))...)
	b.do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(x, false, false) })
	if f := tr.Probe(within(t, 10*time.Second), x); f == nil || f.Code != "404" {
		t.Errorf("after the exchange was deleted: %v", f)
	}
}

// A queue that belongs to one connection alone takes messages from all.
func testProbeExclusiveQueue(t *testing.T) {
	b := dialBroker(t)
	name := unique("exclusive")
	b.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, false, true, true, false, nil)
		return err
	})
	tr := newTransport(t, brokerURL(t), nil)
	if f := tr.Probe(within(t, 10*time.Second), Destination("", name)); f != nil {
		t.Error(f)
	}
	wantConfirmed(t, publish(t, within(t, 10*time.Second), tr, Destination("", name), messages(1))...)
}

func TestProbeStalledBroker(t *testing.T) {
	p := newProxy(t, brokerURL(t))
	tr := newTransport(t, p.url(brokerURL(t)), nil)
	if f := tr.Probe(within(t, 10*time.Second), "amq.topic"); f != nil {
		t.Fatal(f)
	}
	p.Mute(true)
	start := time.Now()
	if f := tr.Probe(within(t, 300*time.Millisecond), "amq.topic"); f == nil || f.Class != engine.Unavailable || f.Code != codeTimeout {
		t.Errorf("%v, want unavailable (timeout)", f)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("took %v", d)
	}
}

func testDeclareAndCheck(t *testing.T) {
	b := dialBroker(t)
	x, q, clash, missing := unique("declared"), unique("declared"), b.exchange("clash", "direct"), unique("missing")
	t.Cleanup(func() {
		b.do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(x, false, false) })
		b.do(func(ch *amqp.Channel) error { _, err := ch.QueueDelete(q, false, false, false); return err })
	})
	good := &Topology{
		Exchanges: []Exchange{{Name: x, Kind: "topic"}},
		Queues:    []Queue{{Name: q, Args: map[string]any{"x-queue-type": "quorum"}}},
		Bindings:  []Binding{{Exchange: x, Queue: q, Key: "order.*"}},
	}
	tr := newTransport(t, brokerURL(t), &Options{Declare: good, Destinations: []string{x, Destination("", q)}})
	if found := tr.Check(within(t, 20*time.Second)); len(found) != 0 {
		t.Errorf("Check: %+v, want nothing", found)
	}
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, x, messages(10))...)
	if n := len(b.drain(q)); n != 10 {
		t.Errorf("%d messages in the declared queue, want 10", n)
	}

	bad := *good
	bad.Exchanges = append([]Exchange{{Name: clash, Kind: "topic"}}, good.Exchanges...)
	tr2 := newTransport(t, brokerURL(t), &Options{Declare: &bad, Destinations: []string{missing, x}})
	found := tr2.Check(within(t, 20*time.Second))
	if len(found) != 2 || found[0].Code != "declare" || found[0].Level != engine.Warning || !strings.Contains(found[0].Text, clash) ||
		found[1].Code != "404" || found[1].Level != engine.Warning || !strings.Contains(found[1].Text, missing) {
		t.Errorf("Check: %+v, want the clash and the missing exchange", found)
	}
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr2, x, messages(1))...)
}

// Nothing is declared unasked.
func testDeclaresNothingByItself(t *testing.T) {
	b := dialBroker(t)
	name := unique("unasked")
	tr := newTransport(t, brokerURL(t), &Options{Destinations: []string{Destination("", name)}})
	tr.Check(within(t, 10*time.Second))
	publish(t, within(t, 10*time.Second), tr, Destination("", name), messages(1))
	ch, err := b.conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err == nil {
		t.Error("the queue has been declared")
	}
}

func TestNewReportsEverythingAtOnce(t *testing.T) {
	_, err := New("amqp://u:S3CRET@/", &Options{
		Source: "%zz", Heartbeat: time.Hour, Window: -1, MaxBody: 1 << 40, External: true,
		DialTimeout: -1, WriteTimeout: -1, Destinations: []string{"a/b/c"},
		Declare: &Topology{
			Exchanges: []Exchange{{Kind: "topic"}}, Queues: []Queue{{Name: "q", Args: map[string]any{"x": struct{}{}}}},
			Bindings: []Binding{{Exchange: "x", Key: strings.Repeat("k", 256)}},
		},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"names no host", "Source", "Heartbeat", "Window", "MaxBody", "DialTimeout", "WriteTimeout", `"a/b/c"`,
		"exchange has no name", `queue "q"`, "a binding's queue has no name", "binding's key",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "S3CRET") {
		t.Errorf("the error tells the password: %v", err)
	}
	if _, err := New("amqp://h", &Options{External: true}); err == nil {
		t.Error("External without TLS was accepted")
	}
}

func TestDescribe(t *testing.T) {
	tr := newTransport(t, "amqp://127.0.0.1:1", nil)
	if got, want := tr.Describe(), (engine.TransportInfo{Name: "rabbitmq", Kind: "rabbitmq"}); got != want {
		t.Errorf("Describe: %+v, want %+v", got, want)
	}
}
