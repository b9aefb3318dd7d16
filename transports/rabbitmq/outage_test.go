package rabbitmq

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
)

// goroutines waits until no more than n are left, or fails with their stacks.
func goroutines(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > n {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, want at most %d\n%s", runtime.NumGoroutine(), n, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(5 * time.Millisecond) // polling what has no event
	}
}

// The answers are lost, the messages are not: Unknown, and in the queue
// (rabbitmq/amqp091-go#46, #92, #182 waited for ever).
func TestCutWithAnswersLost(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("cut", nil)
	p := newProxy(t, brokerURL(t))
	tr := newTransport(t, p.url(brokerURL(t)), nil)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(1))...)
	b.drain(q)
	p.Mute(true)
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for b.depth(q) < 100 {
			time.Sleep(time.Millisecond) // polling a queue
		}
		p.Cut()
	})
	start := time.Now()
	msgs := messages(100)
	for _, r := range publish(t, within(t, 20*time.Second), tr, Destination("", q), msgs) {
		wantFault(t, r, engine.Unknown, codeLost)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v to see a connection that was reset", d)
	}
	cutter.Wait()
	p.Mute(false)
	// With the same ids, as the relay would.
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), msgs)...)
	got := map[string]int{}
	for _, d := range b.drain(q) {
		got[d.MessageId]++
	}
	for i := range msgs {
		if n := got[msgs[i].ID.String()]; n != 2 {
			t.Errorf("message %d is %d times in the queue, want 2: Unknown and stored, then sent again", i, n)
		}
	}
}

// A broker that answers nothing: everything is Unknown at the deadline, and after
// Publish has returned nothing of it arrives any more.
func TestStalledBroker(t *testing.T) {
	for name, size := range map[string]int{"in the buffers": 10, "in a write": 4 << 20} {
		t.Run(name, func(t *testing.T) {
			b := dialBroker(t)
			q := b.queue("stalled", nil)
			p := newProxy(t, brokerURL(t))
			tr := newTransport(t, p.url(brokerURL(t)), nil)
			wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(1))...)
			p.Deaf(true)
			p.Mute(true)
			msgs := messages(20)
			for i := range msgs {
				msgs[i].Payload = make([]byte, size)
			}
			start := time.Now()
			unknown := 0
			for _, r := range publish(t, within(t, time.Second), tr, Destination("", q), msgs) {
				if r.Fault == nil {
					t.Fatal("confirmed by a broker that says nothing")
				}
				if r.Fault.Class == engine.Unknown {
					wantFault(t, r, engine.Unknown, codeTimeout)
					unknown++
				} else if r.Fault.Class != engine.Transient {
					t.Errorf("%v, want transient for what was not sent", r.Fault)
				}
			}
			if d := time.Since(start); d > 4*time.Second {
				t.Errorf("Publish returned %v after it was called, with a deadline of 1 s", d)
			}
			if unknown == 0 && size < 1000 {
				t.Error("nothing was Unknown")
			}
			p.Deaf(false)
			p.Mute(false)
			wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(1))...)
		})
	}
}

// Confirmations of one exchange do not come; nothing else notices.
func TestOneExchangeWithoutConfirms(t *testing.T) {
	b := dialBroker(t)
	slow, slowQ, q := b.exchange("slow", "fanout"), b.queue("slow", nil), b.queue("fast", nil)
	b.bind(slowQ, "", slow)
	p := newProxy(t, brokerURL(t))
	p.set(func() { p.noConfirm = func(exchange string) bool { return exchange == slow } })
	tr := newTransport(t, p.url(brokerURL(t)), &Options{Window: 50})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(200))...)
			}
		}
	})
	// Twice: the tags that never come back must not fill the window for ever.
	for range 2 {
		unknown := 0
		for _, r := range publish(t, within(t, 300*time.Millisecond), tr, slow, messages(70)) {
			if r.Fault != nil && r.Fault.Class == engine.Unknown {
				unknown++
			} else {
				wantFault(t, r, engine.Transient, codeNotSent) // beyond the window
			}
		}
		if unknown != 50 {
			t.Errorf("%d unknown, want the window's 50", unknown)
		}
	}
	// A call with more time on the same channel is not cut short by one with less.
	var long []engine.Result
	wg.Go(func() { long = publish(t, within(t, 2*time.Second), tr, slow, messages(1)) })
	publish(t, within(t, 100*time.Millisecond), tr, slow, messages(1))
	close(stop)
	wg.Wait()
	wantFault(t, long[0], engine.Unknown, codeTimeout)
	if n := p.Dials(); n != 1 {
		t.Errorf("%d connections, want 1: a slow exchange has cost the connection", n)
	}
	p.set(func() { p.noConfirm = nil })
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, slow, messages(100))...)
}

// A broker in alarm: what is not sent is Unavailable at once, what was sent is
// Unknown at the deadline; later calls send nothing until the alarm is over
// (rabbitmq/amqp091-go#111, #178, #122).
func TestBlocked(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("blocked", nil)
	p := newProxy(t, brokerURL(t))
	tr := newTransport(t, p.url(brokerURL(t)), nil)
	d := Destination("", q)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, d, messages(1))...)
	p.set(func() { p.alarm = true })
	count := map[engine.Class]int{}
	msgs := messages(5000)
	start := time.Now()
	for _, r := range publish(t, within(t, time.Second), tr, d, msgs) {
		if r.Fault == nil {
			t.Fatal("confirmed by a broker in alarm")
		}
		switch count[r.Fault.Class]++; r.Fault.Class {
		case engine.Unavailable:
			wantFault(t, r, engine.Unavailable, codeBlocked)
		default:
			wantFault(t, r, engine.Unknown, codeTimeout)
		}
	}
	t.Log(count)
	if count[engine.Unavailable] < 4000 || count[engine.Unknown] < 1 {
		t.Errorf("%v, want at most a window Unknown and the rest Unavailable", count)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("took %v, with a deadline of 1 s", took)
	}
	// The connection is another one by now, and the broker says that it is blocked
	// only to those that publish.
	for range 3 {
		start = time.Now()
		for _, r := range publish(t, within(t, 5*time.Second), tr, d, messages(100)) {
			wantFault(t, r, engine.Unavailable, codeBlocked)
		}
		if f := tr.Probe(within(t, 5*time.Second), d); f == nil || f.Class != engine.Unavailable || f.Code != codeBlocked {
			t.Errorf("Probe: %v, want unavailable (blocked)", f)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v to say that the broker is blocked", took)
		}
	}
	p.endAlarm()
	deadline := time.Now().Add(10 * time.Second)
	for {
		f := tr.Probe(within(t, 5*time.Second), d)
		if f == nil {
			break
		}
		if f.Code != codeBlocked || time.Now().After(deadline) {
			t.Fatalf("Probe after the alarm: %v", f)
		}
	}
	b.drain(q)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, d, messages(100))...)
	if n := len(b.drain(q)); n != 100 {
		t.Errorf("%d messages in the queue, want 100: what was Unavailable must not have been sent", n)
	}
}

// Close does not wait for a broker that reads nothing.
func TestCloseWhileBlocked(t *testing.T) {
	before := runtime.NumGoroutine()
	p := newProxy(t, brokerURL(t))
	tr, err := New(p.url(brokerURL(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.set(func() { p.alarm = true })
	done := make(chan struct{})
	go func() {
		defer close(done)
		msgs := messages(50)
		for i := range msgs {
			msgs[i].Payload = make([]byte, 1<<20)
		}
		for _, r := range publish(t, within(t, time.Minute), tr, "amq.topic", msgs) {
			if r.Fault == nil {
				t.Error("confirmed by a broker in alarm")
			}
		}
	}()
	for p.Open() == 0 {
		time.Sleep(time.Millisecond) // polling
	}
	start := time.Now()
	if err := tr.Close(within(t, 500*time.Millisecond)); err == nil {
		t.Error("Close cut off a call and said nothing")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v", d)
	}
	<-done
	if err := tr.Close(t.Context()); err != nil {
		t.Errorf("second Close: %v", err)
	}
	wantFault(t, publish(t, t.Context(), tr, "amq.topic", messages(1))[0], engine.Unavailable, codeClosed)
	if f := tr.Probe(t.Context(), "amq.topic"); f == nil || f.Code != codeClosed {
		t.Errorf("Probe after Close: %v", f)
	}
	p.Close()
	goroutines(t, before)
}

// Close lets a running call finish.
func TestCloseDuringPublish(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("close", nil)
	tr, err := New(brokerURL(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan struct{})
	var once sync.Once
	results := make([]engine.Result, 5000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tr.Publish(within(t, time.Minute), Destination("", q), messages(len(results)), func(i int, r engine.Result) {
			results[i] = r
			once.Do(func() { close(first) })
		})
	}()
	<-first
	if err := tr.Close(within(t, 30*time.Second)); err != nil {
		t.Errorf("Close: %v", err)
	}
	<-done
	wantConfirmed(t, results...)
	if n := len(b.drain(q)); n != len(results) {
		t.Errorf("%d messages in the queue, want %d", n, len(results))
	}
}

// A thousand lost connections leave nothing behind.
func TestReconnectsLeakNothing(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("reconnect", nil)
	p := newProxy(t, brokerURL(t))
	tr := newTransport(t, p.url(brokerURL(t)), nil)
	tr.redial = 0
	publishOne := func() {
		for {
			r := publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(1))[0]
			if r.Fault == nil {
				return
			}
			if r.Fault.Class == engine.Rejected || r.Fault.Class == engine.DestinationFailed {
				t.Fatal(r.Fault)
			}
		}
	}
	publishOne()
	before := runtime.NumGoroutine()
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		p.Cut()
		publishOne()
	}
	goroutines(t, before)
	deadline := time.Now().Add(5 * time.Second)
	for p.Open() > 1 {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections open, want 1", p.Open())
		}
		time.Sleep(5 * time.Millisecond) // polling
	}
	if n := p.Dials(); n < rounds {
		t.Errorf("%d connections were made, want at least %d", n, rounds)
	}
}

// What is published while connections are cut under it arrives, and whatever was
// confirmed is there.
func TestCutsUnderLoad(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("cuts", nil)
	p := newProxy(t, brokerURL(t))
	tr := newTransport(t, p.url(brokerURL(t)), nil)
	tr.redial = time.Millisecond
	var n atomic.Int32
	p.set(func() {
		p.onPublish = func(c *faultproxy.Conn) {
			if n.Add(1)%700 == 0 {
				c.Cut()
			}
		}
	})
	all := messages(4000)
	left := all
	for round := 0; len(left) > 0; round++ {
		if round == 50 {
			t.Fatalf("%d messages left after %d rounds", len(left), round)
		}
		var next []engine.Outgoing
		for i, r := range publish(t, within(t, 20*time.Second), tr, Destination("", q), left) {
			if r.Fault == nil {
				continue
			}
			switch r.Fault.Class {
			case engine.Unknown, engine.Unavailable, engine.Transient:
				next = append(next, left[i])
			default:
				t.Fatal(r.Fault)
			}
		}
		left = next
	}
	got := map[string]int{}
	for _, d := range b.drain(q) {
		got[d.MessageId]++
	}
	for i := range all {
		if got[all[i].ID.String()] == 0 {
			t.Fatalf("message %d was confirmed and is not in the queue", i)
		}
	}
}

func TestBrokerKilled(t *testing.T) {
	node := testservers.Control(t, server)
	name := unique("killed") // declared without a clean-up over a connection that will be dead
	tr := newTransport(t, brokerURL(t), &Options{Declare: &Topology{Queues: []Queue{{Name: name}}}})
	d := Destination("", name)
	msgs := messages(20_000)
	var confirmed atomic.Int32
	results := make([]engine.Result, len(msgs))
	killed := make(chan struct{})
	var once sync.Once
	go func() {
		<-killed
		node.Kill()
	}()
	tr.Publish(within(t, time.Minute), d, msgs, func(i int, r engine.Result) {
		results[i] = r
		if r.Fault == nil && confirmed.Add(1) == 2000 {
			once.Do(func() { close(killed) })
		}
	})
	once.Do(func() { close(killed) })
	count := map[engine.Class]int{}
	for _, r := range results {
		if r.Fault != nil {
			count[r.Fault.Class]++
			if r.Fault.Class != engine.Unknown && r.Fault.Class != engine.Unavailable && r.Fault.Class != engine.Transient {
				t.Errorf("%v from a broker that was killed", r.Fault)
			}
		}
	}
	t.Log(confirmed.Load(), count)
	node.Up()
	deadline := time.Now().Add(30 * time.Second)
	for {
		f := tr.Probe(within(t, 10*time.Second), d)
		if f == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(f)
		}
		time.Sleep(50 * time.Millisecond) // polling a server that comes up
	}
	b := dialBroker(t)
	stored := map[string]bool{}
	for _, got := range b.drain(name) {
		stored[got.MessageId] = true
	}
	for i, r := range results {
		if in := stored[msgs[i].ID.String()]; r.Fault == nil && !in {
			t.Fatalf("message %d was confirmed and did not survive the kill", i)
		} else if in && r.Fault != nil && r.Fault.Class != engine.Unknown {
			t.Fatalf("message %d: %v, and it is in the queue", i, r.Fault)
		}
	}
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, d, messages(100))...)
	b.do(func(ch *amqp.Channel) error { _, err := ch.QueueDelete(name, false, false, false); return err })
}

// Each way not to get in has a code of its own, is Unavailable, says where, and
// tells no secret.
func TestCannotConnect(t *testing.T) {
	const secret = "S3CRET"
	good, err := url.Parse(brokerURL(t))
	if err != nil {
		t.Fatal("the broker's URL can't be parsed")
	}
	listen := func(serve func(net.Conn)) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				wg.Go(func() { defer c.Close(); serve(c) })
			}
		})
		t.Cleanup(func() { ln.Close(); wg.Wait() })
		return ln.Addr().String()
	}
	read := func(c net.Conn) { // until the other side gives up
		for b := make([]byte, 512); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}
	hangUp := func(c net.Conn) {
		if _, err := c.Read(make([]byte, 8)); err != nil {
			t.Error(err)
		}
	}
	http := func(c net.Conn) {
		if _, err := c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); err != nil {
			t.Error(err)
		}
		read(c)
	}
	secure := listen(func(c net.Conn) { read(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String()
	ln.Close()
	noVHost := user(t, "", "", "")
	for _, c := range []struct {
		name, url, code string
		opts            Options
	}{
		{"refused", "amqp://u:" + secret + "@" + nobody, codeRefused, Options{}},
		{"name", "amqp://u:" + secret + "@no-such-host.invalid", codeDNS, Options{}},
		{"password", "amqp://guest:" + secret + "@" + good.Host, codeAuth, Options{}},
		{"user", "amqp://nobody:" + secret + "@" + good.Host, codeAuth, Options{}},
		{"no such vhost", brokerURL(t) + "no-such-vhost", codeVHost, Options{}},
		{"forbidden vhost", strings.TrimSuffix(noVHost, "/") + "/outward-none", codeVHost, Options{}},
		{"credentials", brokerURL(t), codeAuth, Options{Credentials: func(context.Context) (string, string, error) {
			return "", "", errors.New("vault is sealed")
		}}},
		{"token", brokerURL(t), codeAuth, Options{Credentials: func(context.Context) (string, string, error) { return "guest", secret, nil }}},
		{"TLS to a plain port", "amqps://u:" + secret + "@" + good.Host, codeTLS, Options{DialTimeout: 3 * time.Second}},
		{"untrusted certificate", "amqps://u:" + secret + "@" + secure, codeTLS, Options{}},
		{"silent", "amqp://u:" + secret + "@" + listen(read), codeTimeout, Options{DialTimeout: 200 * time.Millisecond}},
		{"silent TLS", "amqps://u:" + secret + "@" + listen(read), codeTimeout, Options{DialTimeout: 200 * time.Millisecond}},
		{"closes at once", "amqp://u:" + secret + "@" + listen(hangUp), codeHandshake, Options{}},
		{"speaks HTTP", "amqp://u:" + secret + "@" + listen(http), codeHandshake, Options{DialTimeout: 3 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			tr, err := New(c.url, &c.opts)
			if err != nil {
				t.Fatal(err)
			}
			faults := []*engine.Fault{tr.Probe(within(t, 10*time.Second), "amq.topic")}
			for _, r := range publish(t, within(t, 10*time.Second), tr, "amq.topic", messages(3)) {
				faults = append(faults, r.Fault)
			}
			for _, f := range faults {
				if f == nil || f.Class != engine.Unavailable || f.Code != c.code {
					t.Errorf("%v, want unavailable (%s)", f, c.code)
				} else if strings.Contains(f.Error(), secret) || !strings.Contains(f.Error(), tr.addr.hostPort()) {
					t.Errorf("%v: tells a secret, or not where", f)
				}
			}
			for _, f := range tr.Check(within(t, 10*time.Second)) {
				if f.Level != engine.Retry || strings.Contains(f.Text+f.Fix, secret) {
					t.Errorf("Check: %+v", f)
				}
			}
			if err := tr.Close(within(t, 5*time.Second)); err != nil {
				t.Error(err)
			}
			goroutines(t, before)
		})
	}
}

// selfSigned makes a certificate that nobody trusts.
func selfSigned(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A broker that is down is not hammered, however many ask.
func TestFailedDialsAreShared(t *testing.T) {
	var dials atomic.Int32
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-accepting })
	tr := newTransport(t, "amqp://"+ln.Addr().String(), nil)
	tr.redial = time.Hour
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				for _, r := range publish(t, within(t, 10*time.Second), tr, "amq.topic", messages(10)) {
					if r.Fault == nil || r.Fault.Class != engine.Unavailable {
						t.Errorf("%v, want unavailable", r.Fault)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := dials.Load(); n != 1 {
		t.Errorf("%d dials within the pause between two, want 1", n)
	}
}

// A connection that dies as soon as it is there counts as one that was not made.
func TestShortLivedConnectionsAreNotHammered(t *testing.T) {
	p := newProxy(t, brokerURL(t))
	p.set(func() { p.onPublish = func(c *faultproxy.Conn) { c.Cut() } })
	tr := newTransport(t, p.url(brokerURL(t)), nil)
	tr.redial = time.Hour
	for range 20 {
		for _, r := range publish(t, within(t, 10*time.Second), tr, "amq.topic", messages(10)) {
			if r.Fault == nil {
				t.Error("confirmed")
			}
		}
	}
	if n := p.Dials(); n != 1 {
		t.Errorf("%d dials, want 1", n)
	}
}

// An operator closes the connection: Unknown for what was sent (320), and on.
func TestConnectionClosedByOperator(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("forced", nil)
	name := unique("forced-conn")
	tr := newTransport(t, brokerURL(t), &Options{ConnectionName: name})
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(1))...)
	conn := connectionNamed(t, name)
	manage(t, "DELETE", "/connections/"+url.PathEscape(conn), nil)
	select {
	case <-tr.shared.current.dead:
	case <-time.After(5 * time.Second):
		t.Fatal("the connection is still there")
	}
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(10))...)
}

func TestEndedContext(t *testing.T) {
	tr := newTransport(t, brokerURL(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range publish(t, ctx, tr, "amq.topic", messages(3)) {
		wantFault(t, r, engine.Transient, codeNotSent)
	}
}

// A peer that is gone without a word is found by heartbeats, though the call has
// time left.
func TestHeartbeat(t *testing.T) {
	p := newProxy(t, brokerURL(t))
	tr := newTransport(t, p.url(brokerURL(t)), &Options{Heartbeat: time.Second, DialTimeout: time.Second})
	if f := tr.Probe(within(t, 10*time.Second), "amq.topic"); f != nil {
		t.Fatal(f)
	}
	p.Deaf(true)
	p.Mute(true)
	start := time.Now()
	for _, r := range publish(t, within(t, time.Minute), tr, "amq.default/"+unique("nobody"), messages(3)) {
		if r.Fault == nil || r.Fault.Class != engine.Unavailable && r.Fault.Class != engine.Unknown {
			t.Errorf("%v, want unavailable or unknown", r.Fault)
		}
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("a silent peer was found after %v, with heartbeats of 1 s", d)
	}
}

// When one exchange's messages hold up a whole connection, it gets another one.
func TestExchangeThatHoldsUpOthersIsMovedAway(t *testing.T) {
	b := dialBroker(t)
	q, x := b.queue("bystander", nil), b.exchange("culprit", "fanout")
	xq := b.queue("culprit", nil)
	b.bind(xq, "", x)
	p := newProxy(t, brokerURL(t))
	tr := newTransport(t, p.url(brokerURL(t)), nil)
	both := func() {
		t.Helper()
		wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(1))...)
		wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, x, messages(1))...)
	}
	both()
	p.Mute(true)
	wantFault(t, publish(t, within(t, 100*time.Millisecond), tr, x, messages(1))[0], engine.Unknown, codeTimeout)
	p.Mute(false)
	both()
	if n := p.Open(); n != 2 {
		t.Errorf("%d connections, want 2: one for the exchange that was cut, one for the others", n)
	}
}

// Many exchanges do not use up the connection's channels.
func TestIdleChannelsMakeRoom(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("room", nil)
	tr := newTransport(t, brokerURL(t), nil)
	tr.maxPipes = 3
	var exchanges []string
	for range 8 {
		x := b.exchange("room", "fanout")
		b.bind(q, "", x)
		exchanges = append(exchanges, x)
	}
	for range 3 {
		for _, x := range exchanges {
			wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, x, messages(3))...)
		}
	}
	s := tr.shared.current
	s.mu.Lock()
	n := len(s.pipes)
	s.mu.Unlock()
	if n > 3 {
		t.Errorf("%d channels, want at most 3", n)
	}
	if n := b.depth(q); n != 72 {
		t.Errorf("%d messages, want 72", n)
	}
}

func TestTLS(t *testing.T) {
	cert := selfSigned(t)
	u, err := url.Parse(brokerURL(t))
	if err != nil {
		t.Fatal("the broker's URL can't be parsed")
	}
	plain := u.Host
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", plain)
			if err != nil {
				client.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, err := io.Copy(to, from) // until either end closes
				t.Logf("a connection ended: %v", err)
				client.Close()
				server.Close()
			}
			wg.Go(func() { pass(server, client) })
			wg.Go(func() { pass(client, server) })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	roots := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(leaf)
	u.Scheme, u.Host = "amqps", ln.Addr().String()
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}

	b := dialBroker(t)
	q := b.queue("tls", nil)
	tr := newTransport(t, u.String(), &Options{TLS: config})
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(2000))...)
	if n := b.depth(q); n != 2000 {
		t.Errorf("%d messages, want 2000", n)
	}
	// This broker knows no EXTERNAL.
	external := newTransport(t, u.String(), &Options{TLS: config, External: true})
	if f := external.Probe(within(t, 10*time.Second), ""); f == nil || f.Code != codeSASL {
		t.Errorf("EXTERNAL: %v, want unavailable (sasl)", f)
	}
}
