package natsjs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/transports/internal/transporttest"
)

func TestOutages(t *testing.T) { transporttest.Outages(t, harness) }

func TestServerHarmed(t *testing.T) { transporttest.ServerHarmed(t, harness, "nats") }

// One acknowledgement is lost: its message is Unknown at the deadline and nobody
// else, the connection stays, and nothing is left of it (nats.go#1819).
func TestOneAnswerLost(t *testing.T) {
	s := dialServer(t)
	name := s.stream("onelost", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(1))...)
	var once atomic.Bool
	p.Down(func(_ *faultproxy.Conn, unit []byte) bool {
		return !bytes.Contains(unit, []byte(`"seq":5`)) || once.Swap(true)
	})
	count := map[string]int{}
	for _, r := range publish(t, within(t, time.Second), tr, name, messages(9)) {
		if r.Fault == nil {
			count["confirmed"]++
			continue
		}
		wantFault(t, r, engine.Unknown, codeTimeout)
		count["unknown"]++
	}
	if count["confirmed"] != 8 || count["unknown"] != 1 {
		t.Errorf("%v, want 8 confirmed and 1 unknown", count)
	}
	if n := p.Dials(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if n := len(current(t, tr).pending); n != 0 {
		t.Errorf("%d messages still pending", n)
	}
}

// One subject whose stream does not answer holds up no other, on the same
// connection.
func TestSilentSubjectStopsNoOther(t *testing.T) {
	s := dialServer(t)
	good := s.stream("good", nil)
	silent := s.stream("silent", func(c *jetstream.StreamConfig) { c.NoAck = true })
	p, via := newProxy(t)
	tr := newTransport(t, via, &Options{Window: 10})
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, good, messages(1))...)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		for i, r := range publish(t, ctx, tr, silent, messages(50)) {
			if i < 10 {
				wantFault(t, r, engine.Unknown, codeTimeout)
			} else {
				wantFault(t, r, engine.Transient, codeNotSent)
			}
		}
	})
	eventually(t, "a full window", func() bool { return s.depth(silent) == 10 })
	for range 5 {
		wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, good, messages(500))...)
	}
	cancel()
	wg.Wait()
	if n := p.Dials(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if n := len(tr.gates); n != 0 {
		t.Errorf("%d windows left", n)
	}
}

// A server that says nothing any more is found without anybody publishing.
func TestSilentPeerIsFound(t *testing.T) {
	p, via := newProxy(t)
	tr := newTransport(t, via, &Options{PingInterval: 100 * time.Millisecond})
	wantWell(t, tr, "")
	first := current(t, tr)
	p.Deaf(true)
	select {
	case <-first.dead:
	case <-time.After(10 * time.Second):
		t.Fatal("a dead peer was not noticed")
	}
	p.Deaf(false)
	eventually(t, "another connection", func() bool { return tr.Probe(within(t, 5*time.Second), "") == nil })
}

// Each way not to get in has a code of its own, is Unavailable, says where, and
// tells no secret, in the log neither.
func TestCannotConnect(t *testing.T) {
	const secret = "S3CRET"
	good, err := url.Parse(serverURL(t))
	if err != nil {
		t.Fatal("the server's URL can't be parsed")
	}
	// Whether the other side is still there is the other side's test.
	tell := func(c net.Conn, text string) { _, _ = c.Write([]byte(text)) }
	hear := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }
	http := func(c net.Conn) { tell(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); transporttest.Silent(c) }
	// pretend is a server that is introduced, and answers a login with a line.
	pretend := func(info, answer string) string {
		return transporttest.Listen(t, func(c net.Conn) {
			tell(c, "INFO {"+info+"}\r\n")
			hear(c)
			tell(c, answer)
			transporttest.Silent(c)
		})
	}
	const headers = `"headers":true,"max_payload":1048576,"proto":1`
	secure := transporttest.Listen(t, func(c net.Conn) {
		tell(c, `INFO {"tls_required":true,`+headers+"}\r\n")
		transporttest.Silent(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{transporttest.SelfSigned(t)}}))
	})
	nobody := transporttest.Nobody(t)
	var ways []transporttest.NoWay
	for _, c := range []struct {
		name, url, code string
		opts            Options
	}{
		{"refused", "nats://u:" + secret + "@" + nobody, codeRefused, Options{}},
		{"name", "nats://u:" + secret + "@no-such-host.invalid", codeDNS, Options{}},
		{"unknown user", "nats://u:" + secret + "@" + pretend(headers, "-ERR 'Authorization Violation'\r\n"), codeAuth, Options{}},
		{"unknown token", "nats://" + secret + "@" + pretend(headers, "-ERR 'Authorization Violation'\r\n"), codeAuth, Options{}},
		{"expired", "nats://" + pretend(headers, "-ERR 'Authentication Expired'\r\n"), codeAuth, Options{}},
		{"too many", "nats://" + pretend(headers, "-ERR 'maximum connections exceeded'\r\n"), codeLimit, Options{}},
		{"no headers", "nats://" + pretend(`"max_payload":1048576,"proto":1`, "PONG\r\n"), codeNoHeaders, Options{}},
		{"credentials", serverURL(t), codeAuth, Options{Credentials: func(context.Context) (string, string, error) {
			return "", "", errors.New("vault is sealed")
		}}},
		{"token", serverURL(t), codeAuth, Options{Token: func(context.Context) (string, error) { return "", errors.New("vault is sealed") }}},
		{"no creds file", serverURL(t), codeAuth, Options{CredsFile: filepath.Join(t.TempDir(), "none.creds")}},
		{"no nkey file", serverURL(t), codeAuth, Options{NKeyFile: filepath.Join(t.TempDir(), "none.nk")}},
		{"TLS to a plain port", "tls://u:" + secret + "@" + good.Host, codeTLS, Options{}},
		{"TLS by option to a plain port", "nats://u:" + secret + "@" + good.Host, codeTLS, Options{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}},
		{"untrusted certificate", "tls://u:" + secret + "@" + secure, codeTLS, Options{}},
		{"untrusted certificate, asked for by the server", "nats://u:" + secret + "@" + secure, codeTLS, Options{}},
		{"silent", "nats://u:" + secret + "@" + transporttest.Listen(t, transporttest.Silent), codeTimeout, Options{DialTimeout: 200 * time.Millisecond}},
		{"silent TLS", "tls://u:" + secret + "@" + transporttest.Listen(t, transporttest.Silent), codeTimeout, Options{DialTimeout: 200 * time.Millisecond, TLSFirst: true}},
		{"closes at once", "nats://u:" + secret + "@" + transporttest.Listen(t, func(net.Conn) {}), codeHandshake, Options{}},
		{"speaks HTTP", "nats://u:" + secret + "@" + transporttest.Listen(t, http), codeHandshake, Options{}},
		{"the one that is there says why", "nats://u:" + secret + "@" + nobody + ",nats://" + pretend(headers, "-ERR 'Authorization Violation'\r\n"), codeAuth, Options{}},
	} {
		ways = append(ways, transporttest.NoWay{Name: c.name, Code: c.code, New: func(log *slog.Logger) (engine.Transport, string, error) {
			c.opts.Logger = log
			tr, err := New(c.url, &c.opts)
			if err != nil {
				return nil, "", err
			}
			tr.line.Redial = time.Minute
			return tr, tr.addrs[len(tr.addrs)-1].HostPort(), nil
		}})
	}
	transporttest.CannotConnect(t, secret, ways...)
}

// Of several servers the next one is tried, at once when one is gone.
func TestSeveralServers(t *testing.T) {
	s := dialServer(t)
	name := s.stream("several", nil)
	a, viaA := newProxy(t)
	b, viaB := newProxy(t)
	tr := newTransport(t, "nats://127.0.0.1:1,"+viaA+", "+viaB, nil)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(10))...)
	if a.Dials() != 1 || b.Dials() != 0 {
		t.Errorf("%d and %d connections, want the second of the list", a.Dials(), b.Dials())
	}
	a.Close()
	eventually(t, "published by way of another server", func() bool {
		r := publish(t, within(t, 20*time.Second), tr, name, messages(1))[0]
		return r.Fault == nil
	})
	if b.Dials() == 0 {
		t.Error("the third server was never asked")
	}
}
