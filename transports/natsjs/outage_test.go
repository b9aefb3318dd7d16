package natsjs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// The answers are lost, the messages are not: Unknown, and in the stream. With the
// same ids the stream then says that it has them.
func TestCutWithAnswersLost(t *testing.T) {
	s := dialServer(t)
	name := s.stream("cut", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(1))...)
	s.purge(name)
	p.Mute(true)
	var cutter sync.WaitGroup
	cutter.Go(func() {
		eventually(t, "100 messages in the stream", func() bool { return s.depth(name) == 100 })
		p.Cut()
	})
	start := time.Now()
	msgs := messages(100)
	for _, r := range publish(t, within(t, 20*time.Second), tr, name, msgs) {
		wantFault(t, r, engine.Unknown, codeLost)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v to see a connection that was reset", d)
	}
	cutter.Wait()
	p.Mute(false)
	for _, r := range publish(t, within(t, 20*time.Second), tr, name, msgs) {
		wantConfirmed(t, r)
		if !r.Duplicate {
			t.Error("the stream did not know a message that it has")
		}
	}
	if n := s.depth(name); n != 100 {
		t.Errorf("%d messages in the stream, want 100", n)
	}
}

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
	if n := len(tr.line.current.pending); n != 0 {
		t.Errorf("%d messages still pending", n)
	}
}

// A server that answers nothing: everything is Unknown at the deadline, and after
// Publish has returned nothing of it arrives any more.
func TestStalledServer(t *testing.T) {
	for what, c := range map[string]struct {
		size   int
		cancel bool
	}{"in the buffers": {10, false}, "in a write": {1 << 19, false}, "cancelled": {10, true}} {
		t.Run(what, func(t *testing.T) {
			s := dialServer(t)
			name := s.stream("stalled", nil)
			p, via := newProxy(t)
			tr := newTransport(t, via, nil)
			wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(1))...)
			p.Deaf(true)
			p.Mute(true)
			msgs := messages(40)
			for i := range msgs {
				msgs[i].Payload = make([]byte, c.size)
			}
			ctx := within(t, 500*time.Millisecond)
			if c.cancel {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(500*time.Millisecond, cancel)
			}
			start := time.Now()
			unknown := 0
			for _, r := range publish(t, ctx, tr, name, msgs) {
				switch {
				case r.Fault != nil && r.Fault.Class == engine.Transient:
					wantFault(t, r, engine.Transient, codeNotSent)
				default:
					wantFault(t, r, engine.Unknown, codeTimeout)
					unknown++
				}
			}
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("took %v, with a deadline of 500 ms", took)
			}
			if unknown == 0 {
				t.Error("nothing was sent")
			}
			// What the proxy had read by then may arrive; what Publish still had may not.
			before := s.depth(name)
			p.Deaf(false)
			p.Mute(false)
			wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(1))...)
			eventually(t, "the old connection's end", func() bool { return p.Open() == 1 })
			if n := s.depth(name); n > before+1+1+(1<<17)/(c.size+300) {
				t.Errorf("%d messages in the stream, %d before: they went out after Publish had returned", n, before)
			}
		})
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

// What is published while connections are cut under it arrives, and whatever was
// confirmed is there.
func TestCutsUnderLoad(t *testing.T) {
	s := dialServer(t)
	name := s.stream("cuts", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	tr.redial = time.Millisecond
	var n atomic.Int32
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if isPublish(unit) && n.Add(1)%700 == 0 {
			c.Cut()
		}
		return true
	})
	all := messages(4000)
	left := all
	for round := 0; len(left) > 0; round++ {
		if round == 50 {
			t.Fatalf("%d messages left after %d rounds", len(left), round)
		}
		var next []engine.Outgoing
		for i, r := range publish(t, within(t, 20*time.Second), tr, name, left) {
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
	got := s.stored(name)
	for i := range all {
		if n := got[all[i].ID.String()]; n != 1 {
			t.Fatalf("message %d was confirmed and is %d times in the stream", i, n)
		}
	}
}

// Unavailable means that it is nowhere, and every other word but Unknown too.
func TestNothingIsStoredThatIsNotUnknown(t *testing.T) {
	s := dialServer(t)
	name := s.stream("proof", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	var n atomic.Int32
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if isPublish(unit) && n.Add(1)%50 == 0 {
			c.Cut()
		}
		return true
	})
	msgs := messages(1000)
	results := publish(t, within(t, 20*time.Second), tr, name, msgs)
	p.Close()
	got := s.stored(name)
	for i, r := range results {
		in := got[msgs[i].ID.String()] > 0
		if r.Fault == nil != in && (r.Fault == nil || r.Fault.Class != engine.Unknown) {
			t.Errorf("message %d: %v, in the stream: %v", i, r.Fault, in)
		}
	}
}

// Hundreds of lost connections leave nothing behind.
func TestReconnectsLeakNothing(t *testing.T) {
	s := dialServer(t)
	name := s.stream("reconnect", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	tr.redial = 0
	publishOne := func() {
		for {
			r := publish(t, within(t, 20*time.Second), tr, name, messages(1))[0]
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
	const rounds = 300
	for range rounds {
		p.Cut()
		publishOne()
	}
	goroutines(t, before)
	eventually(t, "one connection", func() bool { return p.Open() == 1 })
	if n := p.Dials(); n < rounds {
		t.Errorf("%d connections were made, want at least %d", n, rounds)
	}
}

// A server that says nothing any more is found without anybody publishing.
func TestSilentPeerIsFound(t *testing.T) {
	p, via := newProxy(t)
	tr := newTransport(t, via, &Options{PingInterval: 100 * time.Millisecond})
	wantWell(t, tr, "")
	first := tr.line.current
	p.Deaf(true)
	select {
	case <-first.dead:
	case <-time.After(10 * time.Second):
		t.Fatal("a dead peer was not noticed")
	}
	p.Deaf(false)
	eventually(t, "another connection", func() bool { return tr.Probe(within(t, 5*time.Second), "") == nil })
}

// Close lets a running call finish.
func TestCloseDuringPublish(t *testing.T) {
	s := dialServer(t)
	name := s.stream("close", nil)
	tr, err := New(serverURL(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan struct{})
	var once sync.Once
	results := make([]engine.Result, 5000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tr.Publish(within(t, time.Minute), name, messages(len(results)), func(i int, r engine.Result) {
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
	if n := s.depth(name); n != len(results) {
		t.Errorf("%d messages in the stream, want %d", n, len(results))
	}
}

// Close does not wait for a server that reads nothing, and leaves nothing behind.
func TestCloseWhileStalled(t *testing.T) {
	u, err := url.Parse(serverURL(t))
	if err != nil {
		t.Fatal("the server's URL can't be parsed")
	}
	before := runtime.NumGoroutine()
	p := faultproxy.New(t, u.Host)
	u.Host = p.Addr()
	tr, err := New(u.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantWell(t, tr, "")
	p.Deaf(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		msgs := messages(50)
		for i := range msgs {
			msgs[i].Payload = make([]byte, 1<<19)
		}
		for _, r := range publish(t, within(t, time.Minute), tr, "outward-test-nowhere", msgs) {
			if r.Fault == nil {
				t.Error("confirmed by a server that reads nothing")
			}
		}
	}()
	eventually(t, "a message on its way", func() bool {
		s := tr.line.current
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pending) > 0
	})
	start := time.Now()
	if err := tr.Close(within(t, 300*time.Millisecond)); err == nil {
		t.Error("Close cut off a call and said nothing")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v", d)
	}
	<-done
	if err := tr.Close(t.Context()); err != nil {
		t.Errorf("second Close: %v", err)
	}
	wantFault(t, publish(t, t.Context(), tr, "a", messages(1))[0], engine.Unavailable, codeClosed)
	wantProbe(t, tr, "a", engine.Unavailable, codeClosed)
	if fs := tr.Check(t.Context()); len(fs) != 1 || fs[0].Level != engine.Fatal {
		t.Errorf("Check after Close: %+v", fs)
	}
	p.Close()
	goroutines(t, before)
}

func TestEndedContext(t *testing.T) {
	tr := newTransport(t, serverURL(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range publish(t, ctx, tr, "outward-test-nowhere", messages(3)) {
		wantFault(t, r, engine.Transient, codeNotSent)
	}
}

func TestServerKilledAndPaused(t *testing.T) {
	control := testservers.Control(t, "nats")
	url := serverURL(t)
	s := dialAt(t, url)
	name := s.stream("killed", nil)
	tr := newTransport(t, url, nil)
	msgs := messages(20_000)
	var confirmed atomic.Int32
	results := make([]engine.Result, len(msgs))
	killed := make(chan struct{})
	var once sync.Once
	var killer sync.WaitGroup
	killer.Go(func() {
		<-killed
		control.Kill()
	})
	tr.Publish(within(t, time.Minute), name, msgs, func(i int, r engine.Result) {
		results[i] = r
		if r.Fault == nil && confirmed.Add(1) == 2000 {
			once.Do(func() { close(killed) })
		}
	})
	once.Do(func() { close(killed) })
	killer.Wait()
	count := map[engine.Class]int{}
	for _, r := range results {
		if r.Fault != nil {
			count[r.Fault.Class]++
			if r.Fault.Class != engine.Unknown && r.Fault.Class != engine.Unavailable {
				t.Errorf("%v from a server that was killed", r.Fault)
			}
		}
	}
	t.Log(confirmed.Load(), count)
	// Refused, or reset while the port is still being taken down.
	if f := tr.Probe(within(t, 10*time.Second), name); f == nil || f.Class != engine.Unavailable {
		t.Errorf("Probe of a killed server: %v", f)
	}
	control.Up()
	eventually(t, "the server answers", func() bool { return tr.Probe(within(t, 10*time.Second), name) == nil })
	eventually(t, "the test is connected", func() bool { return s.nc.IsConnected() })
	stored := s.stored(name)
	for i, r := range results {
		if in := stored[msgs[i].ID.String()] > 0; r.Fault == nil && !in {
			t.Fatalf("message %d was confirmed and did not survive the kill", i)
		} else if in && r.Fault != nil && r.Fault.Class != engine.Unknown {
			t.Fatalf("message %d: %v, and it is in the stream", i, r.Fault)
		}
	}
	// Everything again with the same ids: the dedup window has survived too.
	wantConfirmed(t, publish(t, within(t, 30*time.Second), tr, name, msgs)...)
	if got := s.depth(name); got != len(msgs) {
		t.Errorf("%d messages in the stream, want %d", got, len(msgs))
	}

	control.Pause()
	eventually(t, "the server is frozen", func() bool { return s.nc.FlushTimeout(100*time.Millisecond) != nil })
	start := time.Now()
	for _, r := range publish(t, within(t, 500*time.Millisecond), tr, name, messages(10)) {
		wantFault(t, r, engine.Unknown, codeTimeout)
	}
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("took %v with a frozen server and a deadline of 500 ms", d)
	}
	f := tr.Probe(within(t, time.Second), name)
	if f == nil || f.Class != engine.Unavailable {
		t.Errorf("Probe of a frozen server: %v", f)
	}
	control.Resume()
	eventually(t, "the server answers again", func() bool { return tr.Probe(within(t, 10*time.Second), name) == nil })
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(10))...)
}

// Each way not to get in has a code of its own, is Unavailable, says where, and
// tells no secret, in the log neither.
func TestCannotConnect(t *testing.T) {
	const secret = "S3CRET"
	good, err := url.Parse(serverURL(t))
	if err != nil {
		t.Fatal("the server's URL can't be parsed")
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
	// Whether the other side is still there is the other side's test.
	tell := func(c net.Conn, text string) { _, _ = c.Write([]byte(text)) }
	hear := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }
	// pretend is a server that is introduced, and answers a login with a line.
	pretend := func(info, answer string) string {
		return listen(func(c net.Conn) {
			tell(c, "INFO {"+info+"}\r\n")
			hear(c)
			tell(c, answer)
			read(c)
		})
	}
	const headers = `"headers":true,"max_payload":1048576,"proto":1`
	secure := listen(func(c net.Conn) {
		tell(c, `INFO {"tls_required":true,`+headers+"}\r\n")
		read(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}))
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String()
	ln.Close()
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
		{"silent", "nats://u:" + secret + "@" + listen(read), codeTimeout, Options{DialTimeout: 200 * time.Millisecond}},
		{"silent TLS", "tls://u:" + secret + "@" + listen(read), codeTimeout, Options{DialTimeout: 200 * time.Millisecond, TLSFirst: true}},
		{"closes at once", "nats://u:" + secret + "@" + listen(func(net.Conn) {}), codeHandshake, Options{}},
		{"speaks HTTP", "nats://u:" + secret + "@" + listen(func(c net.Conn) { tell(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); read(c) }), codeHandshake, Options{}},
		{"the one that is there says why", "nats://u:" + secret + "@" + nobody + ",nats://" + pretend(headers, "-ERR 'Authorization Violation'\r\n"), codeAuth, Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			var log bytes.Buffer
			c.opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			tr, err := New(c.url, &c.opts)
			if err != nil {
				t.Fatal(err)
			}
			tr.redial = time.Minute
			faults := []*engine.Fault{tr.Probe(within(t, 10*time.Second), "outward-test")}
			for _, r := range publish(t, within(t, 10*time.Second), tr, "outward-test", messages(3)) {
				faults = append(faults, r.Fault)
			}
			for _, f := range faults {
				if f == nil || f.Class != engine.Unavailable || f.Code != c.code {
					t.Errorf("%v, want unavailable (%s)", f, c.code)
				} else if strings.Contains(f.Error(), secret) || !strings.Contains(f.Error(), tr.addrs[len(tr.addrs)-1].hostPort()) {
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
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log tells a secret: %s", log.String())
			}
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

// A server that is down is not hammered, however many ask.
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
	tr := newTransport(t, "nats://"+ln.Addr().String(), nil)
	tr.redial = time.Hour
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				for _, r := range publish(t, within(t, 10*time.Second), tr, "outward-test", messages(10)) {
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
	p, via := newProxy(t)
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if isPublish(unit) {
			c.Cut()
		}
		return true
	})
	tr := newTransport(t, via, nil)
	tr.redial = time.Hour
	for range 20 {
		for _, r := range publish(t, within(t, 10*time.Second), tr, "outward-test-nowhere", messages(10)) {
			if r.Fault == nil {
				t.Error("confirmed")
			}
		}
	}
	if n := p.Dials(); n != 1 {
		t.Errorf("%d dials, want 1", n)
	}
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
