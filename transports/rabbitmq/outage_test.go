package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/transporttest"
)

func TestOutages(t *testing.T) { transporttest.Outages(t, harness) }

func TestBrokerHarmed(t *testing.T) { transporttest.ServerHarmed(t, harness, server) }

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

// A confirmation does not wait for that of an earlier message.
func TestConfirmationsOvertake(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("overtake", nil)
	p := newProxy(t, brokerURL(t))
	withheld := make(chan struct{}, 1)
	p.set(func() {
		p.noConfirm = func(string) bool {
			withheld <- struct{}{}
			return true
		}
	})
	tr := newTransport(t, p.url(brokerURL(t)), nil)
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	var first []engine.Result
	var wg sync.WaitGroup
	wg.Go(func() { first = publish(t, ctx, tr, Destination("", q), messages(1)) })
	<-withheld
	p.set(func() { p.noConfirm = nil })
	for range 3 { // one at a time: a confirmation of several would be one of the first, too
		wantConfirmed(t, publish(t, within(t, 5*time.Second), tr, Destination("", q), messages(1))...)
	}
	cancel()
	wg.Wait()
	wantFault(t, first[0], engine.Unknown, codeTimeout)
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

// Close does not wait for a broker in alarm.
func TestCloseWhileBlocked(t *testing.T) {
	s, p := subject(t, transporttest.Conditions{})
	transporttest.CloseWhileStalled(t, s, func() { p.set(func() { p.alarm = true }) })
}

// Each way not to get in has a code of its own, is Unavailable, says where, and
// tells no secret.
func TestCannotConnect(t *testing.T) {
	const secret = "S3CRET"
	good, err := url.Parse(brokerURL(t))
	if err != nil {
		t.Fatal("the broker's URL can't be parsed")
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
		transporttest.Silent(c)
	}
	secure := transporttest.Listen(t, func(c net.Conn) {
		transporttest.Silent(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{transporttest.SelfSigned(t)}}))
	})
	noVHost := user(t, "", "", "")
	var ways []transporttest.NoWay
	for _, c := range []struct {
		name, url, code string
		opts            Options
	}{
		{"refused", "amqp://u:" + secret + "@" + transporttest.Nobody(t), codeRefused, Options{}},
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
		{"silent", "amqp://u:" + secret + "@" + transporttest.Listen(t, transporttest.Silent), codeTimeout, Options{DialTimeout: 200 * time.Millisecond}},
		{"silent TLS", "amqps://u:" + secret + "@" + transporttest.Listen(t, transporttest.Silent), codeTimeout, Options{DialTimeout: 200 * time.Millisecond}},
		{"closes at once", "amqp://u:" + secret + "@" + transporttest.Listen(t, hangUp), codeHandshake, Options{}},
		{"speaks HTTP", "amqp://u:" + secret + "@" + transporttest.Listen(t, http), codeHandshake, Options{DialTimeout: 3 * time.Second}},
	} {
		ways = append(ways, transporttest.NoWay{Name: c.name, Code: c.code, New: func(log *slog.Logger) (engine.Transport, string, error) {
			c.opts.Logger = log
			tr, err := New(c.url, &c.opts)
			if err != nil {
				return nil, "", err
			}
			tr.shared.Redial = time.Minute
			return tr, tr.addr.HostPort(), nil
		}})
	}
	transporttest.CannotConnect(t, secret, ways...)
}

// An operator closes the connection: Unknown for what was sent (320), and on.
func TestConnectionClosedByOperator(t *testing.T) {
	b := dialBroker(t)
	q := b.queue("forced", nil)
	name := unique("forced-conn")
	tr := newTransport(t, brokerURL(t), &Options{ConnectionName: name})
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(1))...)
	conn := connectionNamed(t, name)
	session := current(t, tr)
	manage(t, "DELETE", "/connections/"+url.PathEscape(conn), nil)
	select {
	case <-session.dead:
	case <-time.After(5 * time.Second):
		t.Fatal("the connection is still there")
	}
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, Destination("", q), messages(10))...)
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
	s := current(t, tr)
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
	cert := transporttest.SelfSigned(t)
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
