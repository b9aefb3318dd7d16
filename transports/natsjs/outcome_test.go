package natsjs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/transports/internal/envelope"
)

func TestRoundTrip(t *testing.T) {
	s := dialServer(t)
	name := s.stream("roundtrip", nil)
	tr := newTransport(t, serverURL(t), &Options{Source: "/orders", Stream: name})
	for what, body := range map[string][]byte{
		"nil": nil, "empty": {}, "text": []byte("{\"a\": \"quote \\\" backslash \\\\ \u00e9 e\u0301 😀 \n line\"}"),
		"bytes": {0, 1, 2, 0xff, '\r', '\n'}, "protocol": []byte("\r\nPUB x 1\r\n\r\n-ERR\r\n"), "NUL": {0},
		"900 KB": bytes.Repeat([]byte("012345678"), 100_000),
	} {
		m := message("")
		m.Payload, m.Key, m.CorrelationID, m.ContentType = body, `k "😀"`, " c-1\r\n", "text/plain; charset=utf-8"
		m.OccurredAt = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
		m.CreatedAt = m.OccurredAt.Add(time.Microsecond)
		m.Headers = map[string]string{
			"traceparent": "00-x-y-01", "Mixed-Case": "  blanks at both ends\t ", "lines": "a\r\nb: c\nd\r", "percent": "100% %41",
			"emoji": "v\"\n\\😀", "empty": "", "ce-tenant": "t 1",
			"outward-key": "forged", "ce-id": "forged", "Nats-Msg-Id": "forged", "nats-rollup": "all", "Nats-Rollup": "all",
			"Nats-Expected-Stream": "forged", "Status": "503", "Content-Type": "application/cloudevents",
		}
		wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, []engine.Outgoing{m})...)
		got := s.read(name)
		s.purge(name)
		if len(got) != 1 {
			t.Fatalf("%s: %d messages, want 1", what, len(got))
		}
		if !bytes.Equal(got[0].Data, body) {
			t.Errorf("%s: the body has changed (%d bytes, want %d)", what, len(got[0].Data), len(body))
		}
		if got[0].Subject != name {
			t.Errorf("%s: subject %q", what, got[0].Subject)
		}
		headers := map[string]string{}
		for k, v := range got[0].Header {
			text, err := envelope.NATSDecode(strings.Join(v, "|"))
			if err != nil {
				t.Errorf("%s: header %s: %v", what, k, err)
			}
			headers[k] = text
		}
		want := map[string]string{
			"traceparent": "00-x-y-01", "Mixed-Case": "  blanks at both ends\t ", "lines": "a\r\nb: c\nd\r", "percent": "100% %41",
			"emoji": "v\"\n\\😀", "empty": "", "ce-tenant": "t 1",
			"Nats-Msg-Id": m.ID.String(), "Nats-Expected-Stream": name,
			"ce-specversion": "1.0", "ce-id": m.ID.String(), "ce-source": "/orders", "ce-type": m.Type,
			"ce-time": "2026-03-01T12:00:00.123456Z", "ce-partitionkey": m.Key, "ce-datacontenttype": m.ContentType,
			"outward-topic": m.Topic, "outward-key": m.Key, "outward-correlation-id": m.CorrelationID,
			"outward-created-at": "2026-03-01T12:00:00.123457Z",
		}
		if !maps.Equal(headers, want) {
			t.Errorf("%s: headers\n got %q\nwant %q", what, headers, want)
		}
	}
}

// The stream has it: confirmed, and known as a repeat.
func TestDuplicate(t *testing.T) {
	s := dialServer(t)
	name := s.stream("duplicate", nil)
	tr := newTransport(t, serverURL(t), nil)
	msgs := messages(3)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, msgs)...)
	for i, r := range publish(t, within(t, 20*time.Second), tr, name, msgs) {
		wantConfirmed(t, r)
		if want := fmt.Sprintf("stream %s seq %d duplicate", name, i+1); !r.Duplicate || r.Ack != want {
			t.Errorf("%+v, want a duplicate with %q", r, want)
		}
	}
	if n := s.depth(name); n != 3 {
		t.Errorf("%d messages in the stream, want 3", n)
	}
}

// What an operator asks for again is stored again, each time, within the dedup
// window, under the same id; and its own retry is still stored once.
func TestResend(t *testing.T) {
	s := dialServer(t)
	name := s.stream("resend", func(c *jetstream.StreamConfig) { c.Duplicates = time.Hour })
	tr := newTransport(t, serverURL(t), nil)
	m := message("x")
	for resends := range 4 {
		m.Resends = resends
		for try := range 2 {
			r := publish(t, within(t, 20*time.Second), tr, name, []engine.Outgoing{m})[0]
			wantConfirmed(t, r)
			if r.Duplicate != (try > 0) {
				t.Errorf("resend %d, try %d: duplicate is %v", resends, try, r.Duplicate)
			}
		}
	}
	if got := s.stored(name); len(got) != 1 || got[m.ID.String()] != 4 {
		t.Errorf("stored %v, want the id 4 times", got)
	}
}

// A retry past the window is stored again under the same id: a repeat, nothing lost.
func TestDedupWindowShorterThanTheOutage(t *testing.T) {
	s := dialServer(t)
	name := s.stream("window", func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond })
	tr := newTransport(t, serverURL(t), nil)
	msgs := messages(1)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, msgs)...)
	eventually(t, "stored again", func() bool {
		r := publish(t, within(t, 20*time.Second), tr, name, msgs)[0]
		wantConfirmed(t, r)
		return !r.Duplicate
	})
	if got := s.stored(name); len(got) != 1 || got[msgs[0].ID.String()] != 2 {
		t.Errorf("stored %v, want the id twice", got)
	}
}

// What can't be written never reaches the socket, and its neighbours are delivered.
func TestPoisonRefusedBeforeTheSocket(t *testing.T) {
	s := dialServer(t)
	name := s.stream("poison", nil)
	p, via := newProxy(t)
	tr := newTransport(t, via, nil)
	cases := []struct {
		name, code string
		spoil      func(*engine.Outgoing)
	}{
		{"no id", codeMalformed, func(m *engine.Outgoing) { m.ID = engine.ID{} }},
		{"header name with a colon", codeMalformed, func(m *engine.Outgoing) { m.Headers = map[string]string{"a:b": ""} }},
		{"header name with a blank", codeMalformed, func(m *engine.Outgoing) { m.Headers = map[string]string{"a b": ""} }},
		{"header name with a line", codeMalformed, func(m *engine.Outgoing) { m.Headers = map[string]string{"a\r\nb": ""} }},
		{"header name not ASCII", codeMalformed, func(m *engine.Outgoing) { m.Headers = map[string]string{"é": ""} }},
		{"headers", codeTooLarge, func(m *engine.Outgoing) { m.Headers = map[string]string{"h": strings.Repeat("x", 1<<16)} }},
		{"headers that grow", codeTooLarge, func(m *engine.Outgoing) { m.Headers = map[string]string{"h": strings.Repeat(" ", 1<<15)} }},
		{"payload", codeTooLarge, func(m *engine.Outgoing) { m.Payload = make([]byte, 1<<20) }},
	}
	msgs := messages(2*len(cases) + 1)
	for i, c := range cases {
		c.spoil(&msgs[2*i+1])
	}
	published := 0
	p.Up(func(_ *faultproxy.Conn, unit []byte) bool {
		if isPublish(unit) {
			published++
		}
		return true
	})
	for i, r := range publish(t, within(t, 20*time.Second), tr, name, msgs) {
		if i%2 == 0 {
			wantConfirmed(t, r)
		} else if c := cases[i/2]; r.Fault == nil || r.Fault.Class != engine.Rejected || r.Fault.Code != c.code {
			t.Errorf("%s: %v, want rejected (%s)", c.name, r.Fault, c.code)
		}
	}
	if p.Dials() != 1 || published != len(cases)+1 {
		t.Errorf("%d connections and %d messages, want 1 and %d: a poison message reached the socket", p.Dials(), published, len(cases)+1)
	}
	if n := s.depth(name); n != len(cases)+1 {
		t.Errorf("%d messages in the stream, want %d", n, len(cases)+1)
	}
}

// A topic that is no subject is dead; a route's subject that is none is not the
// messages' fault. Neither touches the connection.
func TestBadSubject(t *testing.T) {
	tr := newTransport(t, "nats://127.0.0.1:1", nil)
	for _, subject := range []string{"", "a b", "a.*", ">", "a..b", strings.Repeat("x", 5000), "$JS.API.STREAM.DELETE.ORDERS"} {
		msgs := messages(2)
		msgs[0].Topic = subject
		results := publish(t, t.Context(), tr, subject, msgs)
		wantFault(t, results[0], engine.Rejected, codeSubject)
		wantFault(t, results[1], engine.DestinationFailed, codeSubject)
		if subject != "" {
			wantProbe(t, tr, subject, engine.DestinationFailed, codeSubject)
		}
	}
}

// Right at the limits the server takes it: the calculated size is the real one.
func TestUpToTheLimits(t *testing.T) {
	s := dialServer(t)
	name := s.stream("limits", nil)
	tr := newTransport(t, serverURL(t), nil)
	ctx := within(t, 20*time.Second)
	m := message("x")
	m.Headers = map[string]string{"h": ""}
	size := func() int { n := envelope.ForNATS(&m, envelope.DefaultSource); return n.Size() }
	m.Headers["h"] = strings.Repeat("x", envelope.MaxNATSHeaders-size())
	wantConfirmed(t, publish(t, ctx, tr, name, []engine.Outgoing{m})...)
	m.Headers["h"] += "x"
	wantFault(t, publish(t, ctx, tr, name, []engine.Outgoing{m})[0], engine.Rejected, codeTooLarge)

	m = message("")
	m.Payload = make([]byte, int(s.nc.MaxPayload())-size())
	wantConfirmed(t, publish(t, ctx, tr, name, []engine.Outgoing{m})...)
	m.Payload = append(m.Payload, 0)
	m.ID = engine.NewID()
	wantFault(t, publish(t, ctx, tr, name, []engine.Outgoing{m})[0], engine.Rejected, codeTooLarge)

	m = message("")
	m.Topic = name + "." + strings.Repeat("s", maxSubject-len(name)-1)
	wantConfirmed(t, publish(t, ctx, tr, m.Topic, []engine.Outgoing{m})...)
}

// The stream's own limit for a message is smaller than the server's.
func TestTooLargeForTheStream(t *testing.T) {
	s := dialServer(t)
	name := s.stream("maxmsgsize", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 2000 })
	tr := newTransport(t, serverURL(t), nil)
	msgs := messages(9)
	msgs[4].Payload = make([]byte, 2001)
	for i, r := range publish(t, within(t, 20*time.Second), tr, name, msgs) {
		if i == 4 {
			wantFault(t, r, engine.Rejected, "10054")
		} else {
			wantConfirmed(t, r)
		}
	}
}

// Missing, made, removed, made again: nothing is lost and nothing is Rejected or
// Unknown on the way.
func TestStreamMissingRemovedAndMadeAgain(t *testing.T) {
	s := dialServer(t)
	name := unique("comes-and-goes")
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name}}
	tr := newTransport(t, serverURL(t), nil)
	msgs := messages(100)
	for range 2 {
		for _, r := range publish(t, within(t, 20*time.Second), tr, name, msgs) {
			wantFault(t, r, engine.DestinationFailed, codeNoStream)
		}
		wantProbe(t, tr, name, engine.DestinationFailed, codeNoStream)
		wantWell(t, tr, "")
		s.create(cfg)
		wantWell(t, tr, name)
		wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, msgs)...)
		if n := s.depth(name); n != len(msgs) {
			t.Errorf("%d messages, want %d", n, len(msgs))
		}
		if err := s.js.DeleteStream(within(t, 10*time.Second), name); err != nil {
			t.Fatal(err)
		}
	}
}

// The stream is removed while messages are on their way.
func TestStreamRemovedMidway(t *testing.T) {
	s := dialServer(t)
	name := s.stream("midway", nil)
	tr := newTransport(t, serverURL(t), &Options{Window: 50})
	var once sync.Once
	removed := make(chan error, 1)
	msgs := messages(5000)
	results := make([]engine.Result, len(msgs))
	tr.Publish(within(t, 2*time.Second), name, msgs, func(i int, r engine.Result) {
		results[i] = r
		if i > 500 {
			once.Do(func() { go func() { removed <- s.js.DeleteStream(context.Background(), name) }() })
		}
	})
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	// What was in the stream's hands when it went has no answer; what came after
	// that has nobody.
	count := map[string]int{}
	for _, r := range results {
		if r.Fault == nil {
			count["confirmed"]++
			continue
		}
		count[r.Fault.Class.String()+" "+r.Fault.Code]++
		switch r.Fault.Code {
		case codeTimeout, codeNotSent, codeNoStream:
		default:
			t.Fatal(r.Fault)
		}
	}
	t.Log(count)
	if count["confirmed"] == 0 || count["unknown "+codeTimeout] > 50 {
		t.Errorf("%v, want at most a window unknown", count)
	}
	for _, r := range publish(t, within(t, 20*time.Second), tr, name, msgs[:10]) {
		wantFault(t, r, engine.DestinationFailed, codeNoStream)
	}
}

// Full is the destination's trouble, by whichever limit, and over when there is
// room again.
func TestStreamFull(t *testing.T) {
	s := dialServer(t)
	for what, limit := range map[string]func(*jetstream.StreamConfig){
		"max_msgs":  func(c *jetstream.StreamConfig) { c.MaxMsgs = 3 },
		"max_bytes": func(c *jetstream.StreamConfig) { c.MaxBytes = 2000 },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 3, true
		},
	} {
		t.Run(what, func(t *testing.T) {
			name := s.stream("full", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew; limit(c) })
			tr := newTransport(t, serverURL(t), nil)
			confirmed := 0
			left := messages(10)
			for round := range 2 {
				var next []engine.Outgoing
				for i, r := range publish(t, within(t, 20*time.Second), tr, name, left) {
					if r.Fault == nil {
						confirmed++
						continue
					}
					wantFault(t, r, engine.DestinationFailed, "10077")
					next = append(next, left[i])
				}
				left = next
				if n := s.depth(name); n == 0 || len(left)+confirmed != 10 || len(left) == 0 {
					t.Fatalf("round %d: %d stored, %d confirmed, %d left", round, n, confirmed, len(left))
				}
				if what != "max_bytes" { // of bytes there may be some left, and no message fits
					wantProbe(t, tr, name, engine.DestinationFailed, codeFull)
				}
				s.purge(name)
				wantWell(t, tr, name)
			}
		})
	}
}

// Each subject is a destination: one that is full stops no other.
func TestFullSubjectStopsNoOther(t *testing.T) {
	s := dialServer(t)
	name := s.stream("subjects", func(c *jetstream.StreamConfig) {
		c.Discard, c.MaxMsgsPerSubject, c.DiscardNewPerSubject = jetstream.DiscardNew, 1, true
	})
	tr := newTransport(t, serverURL(t), nil)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name+".a", messages(1))...)
	wantProbe(t, tr, name+".a", engine.DestinationFailed, codeFull)
	wantWell(t, tr, name+".b")
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name+".b", messages(1))...)
}

func TestWrongStream(t *testing.T) {
	s := dialServer(t)
	name := s.stream("other", nil)
	tr := newTransport(t, serverURL(t), &Options{Stream: "EXPECTED"})
	for _, r := range publish(t, within(t, 20*time.Second), tr, name, messages(3)) {
		wantFault(t, r, engine.DestinationFailed, "10060")
	}
	wantProbe(t, tr, name, engine.DestinationFailed, codeWrongStream)
	if n := s.depth(name); n != 0 {
		t.Errorf("%d messages in a stream that was not meant", n)
	}
}

func TestSealedAndNoAck(t *testing.T) {
	s := dialServer(t)
	sealed := s.stream("sealed", nil)
	cfg := s.handle(sealed).CachedInfo().Config
	cfg.Sealed = true
	if _, err := s.js.UpdateStream(within(t, 10*time.Second), cfg); err != nil {
		t.Fatal(err)
	}
	tr := newTransport(t, serverURL(t), nil)
	wantFault(t, publish(t, within(t, 20*time.Second), tr, sealed, messages(1))[0], engine.DestinationFailed, "10109")
	wantProbe(t, tr, sealed, engine.DestinationFailed, codeSealed)

	silent := s.stream("noack", func(c *jetstream.StreamConfig) { c.NoAck = true })
	wantFault(t, publish(t, within(t, 300*time.Millisecond), tr, silent, messages(1))[0], engine.Unknown, codeTimeout)
	wantProbe(t, tr, silent, engine.DestinationFailed, codeNoAck)
}

// A subscriber of core NATS that answers whatever comes does not make a message
// published, and does not hide the stream's own word (nats.go#1781).
func TestForeignAnswers(t *testing.T) {
	s := dialServer(t)
	name := s.stream("foreign", nil)
	lonely := unique("nostream")
	for _, subject := range []string{name, lonely} {
		if _, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
			for _, answer := range []string{"", "ok", "{}", `{"stream":"X"}`, `{"error":{"code":503}}`, `[1]`} {
				if err := m.Respond([]byte(answer)); err != nil {
					t.Error(err)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	tr := newTransport(t, serverURL(t), nil)
	wantConfirmed(t, publish(t, within(t, 20*time.Second), tr, name, messages(50))...)
	wantFault(t, publish(t, within(t, time.Second), tr, lonely, messages(1))[0], engine.Unknown, codeBadAck)
	wantProbe(t, tr, lonely, engine.DestinationFailed, codeNoStream)
}

// An acknowledgement by another stream than the expected one is none.
func TestForgedAck(t *testing.T) {
	s := dialServer(t)
	lonely := unique("forged")
	answer := func(m *nats.Msg) {
		if err := m.Respond([]byte(`{"stream":"OTHER","seq":1}`)); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.nc.Subscribe(lonely, answer); err != nil {
		t.Fatal(err)
	}
	if err := s.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	tr := newTransport(t, serverURL(t), &Options{Stream: "ORDERS"})
	wantFault(t, publish(t, within(t, 10*time.Second), tr, lonely, messages(1))[0], engine.DestinationFailed, codeWrongStream)
}

func TestReadAck(t *testing.T) {
	for data, want := range map[string]string{
		``: "none", `x`: "none", `{}`: "none", `{"stream":"S"}`: "none", `{"seq":1}`: "none", `{"error":{}}`: "none",
		`{"stream":"S","seq":7}`:                                                         "stream S seq 7",
		`{"stream":"S","seq":7,"duplicate":true,"domain":"D"}`:                           "stream S seq 7 duplicate",
		`{"stream":"S","seq":0,"error":{"code":429,"err_code":10167}}`:                   "transient 10167",
		`{"error":{"code":400,"err_code":10054}}`:                                        "rejected 10054",
		`{"error":{"code":400,"err_code":10097}}`:                                        "rejected 10097",
		`{"error":{"code":503,"err_code":10077,"description":"disk on fire"}}`:           "transient 10077",
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`: "destination_failed 10077",
		`{"error":{"code":503,"err_code":10077,"description":"message too large"}}`:      "rejected 10077",
		`{"error":{"code":400,"err_code":10060}}`:                                        "destination_failed 10060",
		`{"error":{"code":400,"err_code":10109}}`:                                        "destination_failed 10109",
		`{"error":{"code":404,"err_code":10059}}`:                                        "destination_failed 10059",
		`{"error":{"code":400,"err_code":10002}}`:                                        "destination_failed 10002",
		`{"error":{"code":503,"err_code":10023}}`:                                        "destination_failed 10023",
		`{"error":{"code":500,"err_code":10028}}`:                                        "destination_failed 10028",
		`{"error":{"code":500,"err_code":10047}}`:                                        "destination_failed 10047",
		`{"error":{"code":503,"err_code":10039}}`:                                        "unavailable 10039",
		`{"error":{"code":503,"err_code":10076}}`:                                        "unavailable 10076",
		`{"error":{"code":503,"err_code":10008}}`:                                        "transient 10008",
		`{"error":{"code":500,"err_code":10009}}`:                                        "transient 10009",
		`{"error":{"code":500,"err_code":10118}}`:                                        "transient 10118",
		`{"error":{"code":409,"err_code":10158}}`:                                        "transient 10158",
		`{"error":{"code":400,"err_code":10070}}`:                                        "transient 10070",
		`{"error":{"code":400,"err_code":10071}}`:                                        "transient 10071",
		`{"error":{"code":400,"err_code":10164}}`:                                        "transient 10164",
		`{"error":{"code":500,"err_code":19999}}`:                                        "transient 19999",
	} {
		r, ok := readAck("s", "", []byte(data))
		got := r.Ack
		if !ok {
			got = "none"
		} else if r.Fault != nil {
			got = r.Fault.Class.String() + " " + r.Fault.Code
		}
		if got != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
	}
}

// The quick way to read an acknowledgement answers what decoding it does, or not at all.
func TestPlainAck(t *testing.T) {
	for data, plain := range map[string]bool{
		`{"stream":"S","seq":1}`:                    true,
		`{"stream":"büro-1","seq":184467440737095}`: true,
		`{"stream":"","seq":7}`:                     true,
		`{"stream":"S","seq":18446744073709551615}`: true,
		`{"stream":"S","seq":18446744073709551616}`: false,
		`{"stream":"S","seq":01}`:                   false,
		`{"stream":"S","seq":0}`:                    false,
		`{"stream":"S","seq":-1}`:                   false,
		`{"stream":"S","seq":1.5}`:                  false,
		`{"stream":"S","seq":1e3}`:                  false,
		`{"stream":"S","seq":1_0}`:                  false,
		`{"stream":"S","seq":+1}`:                   false,
		`{"stream":"S","seq":}`:                     false,
		`{"stream":"S","seq":1`:                     false,
		`{"stream":"S","seq":1}}`:                   false,
		`{"stream":"S","seq":1} `:                   false,
		`{"stream":"S\"","seq":1}`:                  false,
		`{"stream":"\u0041","seq":1}`:               false,
		"{\"stream\":\"a\nb\",\"seq\":1}":           false,
		"{\"stream\":\"\xff\",\"seq\":1}":           false,
		`{"stream":"S","seq":1,"duplicate":true}`:   false,
		`{"stream":"S","domain":"hub","seq":1}`:     false,
		`{"error":{"code":503},"stream":"S"}`:       false,
		`{"stream":"S`:                              false, `{"stream":"S","seq":`: false, `{}`: false, ``: false,
	} {
		got, ok := plainAck([]byte(data))
		if ok != plain {
			t.Errorf("%s: read the quick way: %v, want %v", data, ok, plain)
		}
		if want := (ack{}); ok && (json.Unmarshal([]byte(data), &want) != nil || got != want) {
			t.Errorf("%s: %+v, want %+v", data, got, want)
		}
	}
}

func TestDeniedSubject(t *testing.T) {
	of := func(reply string) (string, bool) { return "of " + reply, true }
	for text, want := range map[string]string{
		`nats: permissions violation: Permissions Violation for Publish to "a.b"`:                   "a.b",
		`nats: permissions violation: Permissions Violation for Publish to "a.\"\u00e9"`:            "a.\"é",
		`nats: permissions violation: Permissions Violation for Publish with Reply of "_INBOX.x.1"`: "of _INBOX.x.1",
		`nats: permissions violation: Permissions Violation for Publish with Reply of "_INBOX.y.1"`: "",
		`nats: permissions violation: Permissions Violation for Subscription to "_INBOX.x.*"`:       "",
		`nats: permissions violation: Permissions Violation for Publish to unquoted`:                "",
	} {
		got, ok := deniedSubject(text, "_INBOX.x.", of)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, ok, want)
		}
	}
}

func TestDialCode(t *testing.T) {
	for err, want := range map[error]string{
		context.DeadlineExceeded: codeTimeout, nats.ErrAuthorization: codeAuth, nats.ErrAuthExpired: codeAuth,
		nats.ErrMaxConnectionsExceeded: codeLimit, nats.ErrSecureConnWanted: codeTLS, nats.ErrNoInfoReceived: codeHandshake,
		errors.New("?"): codeLost,
	} {
		if got := dialFault("h:1", err); got.Code != want || got.Class != engine.Unavailable {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
}
