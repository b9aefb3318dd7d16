package natsjs

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
)

// What the test server can't be brought to say is said by the proxy, in the words
// of a server that says it. The same against servers that are configured so is in
// conformance/matrix.

// deny has the proxy answer as a server that lets nobody publish to subject.
func deny(c *faultproxy.Conn, unit []byte, subject string) bool {
	fields := strings.Fields(string(unit[:bytes.IndexByte(unit, '\n')]))
	if len(fields) < 2 || !strings.HasSuffix(fields[0], "PUB") || fields[1] != subject && !strings.HasPrefix(fields[1], subject+".") {
		return true
	}
	c.Say(fmt.Appendf(nil, "-ERR 'Permissions Violation for Publish to %q'\r\n", fields[1]))
	return false
}

func TestPermissionDenied(t *testing.T) {
	s := dialServer(t)
	good, bad := s.stream("allowed", nil), s.stream("denied", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, &Options{Window: 100})
	p.Up(func(c *faultproxy.Conn, unit []byte) bool { return deny(c, unit, bad) })
	for range 2 {
		start := time.Now()
		for _, r := range publish(t, within(t, 20*time.Second), tr, bad, messages(500)) {
			wantFault(t, r, engine.DestinationFailed, codePermission)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("took %v to hear no", d)
		}
		wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, good, messages(500))...)
	}
	if p.Dials() != 1 {
		t.Errorf("%d connections, want 1", p.Dials())
	}
}

// The permission goes while messages are on their way: those before are in the
// stream, and none of what was in flight is called safe to send elsewhere.
func TestPermissionTakenAway(t *testing.T) {
	s := dialServer(t)
	name := s.stream("taken", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, &Options{Window: 10})
	var n atomic.Int32
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if isPublish(unit) && n.Add(1) > 50 {
			return deny(c, unit, name)
		}
		return true
	})
	count := map[string]int{}
	for _, r := range publish(t, within(t, 20*time.Second), tr, name, messages(100)) {
		if r.Fault == nil {
			count["confirmed"]++
			continue
		}
		if r.Fault.Code != codePermission {
			t.Error(r.Fault)
		}
		count[r.Fault.Class.String()]++
	}
	t.Log(count)
	if count["confirmed"] != 50 || count["unknown"] == 0 || count["unknown"] > 10 || count["destination_failed"] == 0 {
		t.Errorf("%v, want 50 confirmed, at most a window unknown and the rest destination_failed", count)
	}
}

// A user that may publish but not ask: silence is an election for a while, and then
// no stream; Probe leaves it to the next message; Check says what it can't see.
func TestMayNotAsk(t *testing.T) {
	s := dialServer(t)
	name := s.stream("mute", nil)
	missing := unique("missing")
	p, via := newProxy(t)
	tr := newTransport(t, via, &Options{Destinations: []string{name}})
	p.Up(func(c *faultproxy.Conn, unit []byte) bool { return deny(c, unit, "$JS.API") })
	wantWell(t, tr, "")
	wantWell(t, tr, name)
	wantWell(t, tr, missing)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(3))...)
	wantFault(t, publish(t, within(t, 20*time.Second), tr, missing, messages(3))[0], engine.Transient, codeNoResponders)
	tr.mu.Lock()
	tr.unheard[missing] = tr.unheard[missing].Add(-silence)
	tr.mu.Unlock()
	wantFault(t, publish(t, within(t, 20*time.Second), tr, missing, messages(3))[0], engine.DestinationFailed, codeNoStream)
	if fs := tr.Check(within(t, 10*time.Second)); !has(fs, engine.Note, "not_asked") {
		t.Errorf("Check: %+v", fs)
	}
}

// The user may not hear the answers: found before anything is sent, and later when
// it comes later.
func TestMayNotSubscribe(t *testing.T) {
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	tr.line.Redial = time.Millisecond
	wantWell(t, tr, "")
	first := current(t, tr)
	refuse := func(c *faultproxy.Conn) {
		c.Say(fmt.Appendf(nil, "-ERR 'Permissions Violation for Subscription to %q'\r\n", first.prefix+"*"))
	}
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if isPublish(unit) {
			refuse(c)
			return false
		}
		return true
	})
	wantFault(t, publish(t, within(t, 20*time.Second), tr, "outward-test-nowhere", messages(1))[0], engine.Unknown, codePermission)
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if bytes.HasPrefix(unit, []byte("SUB ")) {
			refuse(c)
			return false
		}
		return true
	})
	eventually(t, "the redial", func() bool {
		r := publish(t, within(t, 20*time.Second), tr, "outward-test-nowhere", messages(1))[0]
		return r.Fault != nil && r.Fault.Class == engine.Unavailable && r.Fault.Code == codePermission
	})
}

// silent answers every request to JetStream as a server does that has none.
func silent(c *faultproxy.Conn, unit []byte) bool {
	fields := strings.Fields(string(unit[:bytes.IndexByte(unit, '\n')]))
	if len(fields) < 3 || fields[0] != "PUB" || !strings.HasPrefix(fields[1], "$JS.API.") {
		return true
	}
	c.Say(fmt.Appendf(nil, "HMSG %s 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", fields[2]))
	return false
}

func TestNoJetStream(t *testing.T) {
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	p.Up(silent)
	wantProbe(t, tr, "", engine.Unavailable, codeNoJetStream)
	wantProbe(t, tr, "outward-test-nowhere", engine.Unavailable, codeNoJetStream)
	for _, r := range publish(t, within(t, 20*time.Second), tr, "outward-test-nowhere", messages(20)) {
		wantFault(t, r, engine.Unavailable, codeNoJetStream)
	}
}

// JetStream is there and answers with its own numbers, or garbage, or nothing.
func TestAPIRefusals(t *testing.T) {
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	body := ""
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		fields := strings.Fields(string(unit[:bytes.IndexByte(unit, '\n')]))
		if len(fields) < 3 || fields[0] != "PUB" || !strings.HasPrefix(fields[1], "$JS.API.") {
			return true
		}
		if body != "" {
			c.Say(fmt.Appendf(nil, "MSG %s 1 %d\r\n%s\r\n", fields[2], len(body), body))
		}
		return false
	})
	for answer, want := range map[string]string{
		`{"type":"io.nats.jetstream.api.v1.x","error":{"code":503,"err_code":10039,"description":"not for you"}}`: "10039",
		`{"type":"io.nats.jetstream.api.v1.x","error":{"code":503,"err_code":10076,"description":"off"}}`:         "10076",
		`{"type":"something else"}`: codeTimeout,
		``:                          codeTimeout,
	} {
		p.Up(func(c *faultproxy.Conn, unit []byte) bool {
			fields := strings.Fields(string(unit[:bytes.IndexByte(unit, '\n')]))
			if len(fields) < 3 || fields[0] != "PUB" || !strings.HasPrefix(fields[1], "$JS.API.") {
				return true
			}
			if answer != "" {
				c.Say(fmt.Appendf(nil, "MSG %s 1 %d\r\n%s\r\n", fields[2], len(answer), answer))
			}
			return false
		})
		f := tr.Probe(within(t, 300*time.Millisecond), "")
		wantFault(t, engine.Result{Fault: f}, engine.Unavailable, want)
	}
}

// No stream answers although there is one, as while a cluster elects its leader.
func TestElection(t *testing.T) {
	s := dialServer(t)
	name := s.stream("election", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if !isPublish(unit) {
			return true
		}
		c.Say(fmt.Appendf(nil, "HMSG %s 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", strings.Fields(string(unit))[2]))
		return false
	})
	for _, r := range publish(t, within(t, 20*time.Second), tr, name, messages(100)) {
		wantFault(t, r, engine.Transient, codeNoResponders)
		if r.Fault != nil && r.Fault.RetryAfter == 0 {
			t.Error("no RetryAfter")
		}
	}
	p.Up(nil)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(10))...)
}

// A server that shuts down asks its clients to go: what is on its way is answered,
// the next message goes over another connection, and nothing is Unknown.
func TestLameDuck(t *testing.T) {
	s := dialServer(t)
	name := s.stream("lameduck", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	var n atomic.Int32
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if isPublish(unit) && n.Add(1)%1000 == 0 {
			c.Say([]byte(`INFO {"ldm":true,"headers":true,"max_payload":1048576,"proto":1}` + "\r\n"))
		}
		return true
	})
	wantConfirmed(t, publish(t, within(t, 30*time.Second), tr, name, messages(5500))...)
	// The last one may have been asked to go as well.
	eventually(t, "one connection at most", func() bool { return p.Open() <= 1 })
	if p.Dials() < 3 {
		t.Errorf("%d connections, want one more each time", p.Dials())
	}
	if n := s.depth(name); n != 5500 {
		t.Errorf("%d messages, want 5500", n)
	}
}

// The login expires while messages are on their way: they are Unknown, and the
// reason is told.
func TestLoginExpires(t *testing.T) {
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if isPublish(unit) {
			c.Say([]byte("-ERR 'Authentication Expired'\r\n"))
			c.Cut()
			return false
		}
		return true
	})
	r := publish(t, within(t, 20*time.Second), tr, "outward-test-nowhere", messages(1))[0]
	wantFault(t, r, engine.Unknown, codeLost)
}

func has(fs []engine.Finding, level engine.Level, code string) bool {
	for _, f := range fs {
		if f.Level == level && f.Code == code && f.Text != "" && f.Fix != "" {
			return true
		}
	}
	return false
}
