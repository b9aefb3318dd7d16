package natsjs

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
)

// serverURL returns the URL of a real server, or skips.
func serverURL(t testing.TB) string {
	t.Helper()
	return testservers.URL(t, "nats")
}

// unique returns a name that no other test uses, fit for a stream and a subject.
func unique(prefix string) string {
	var b [6]byte
	rand.Read(b[:])
	return "outward-test-" + prefix + "-" + hex.EncodeToString(b[:])
}

// server is a plain connection to the real server, for setting up and looking.
type server struct {
	t  testing.TB
	nc *nats.Conn
	js jetstream.JetStream
}

func dialServer(t testing.TB) *server {
	t.Helper()
	return dialAt(t, serverURL(t))
}

func dialAt(t testing.TB, url string) *server {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(10*time.Second), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal("can't connect to the test server")
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return &server{t, nc, js}
}

// stream makes a stream with a subject of the same name, which change may alter,
// and deletes it at the end.
func (s *server) stream(prefix string, change func(*jetstream.StreamConfig)) string {
	s.t.Helper()
	name := unique(prefix)
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name, name + ".>"}, Storage: jetstream.FileStorage}
	if change != nil {
		change(&cfg)
	}
	s.create(cfg)
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.js.DeleteStream(ctx, name); err != nil && !strings.Contains(err.Error(), "not found") {
			s.t.Errorf("delete the stream %s: %v", name, err)
		}
	})
	return name
}

func (s *server) create(cfg jetstream.StreamConfig) {
	s.t.Helper()
	if _, err := s.js.CreateStream(within(s.t, 10*time.Second), cfg); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) handle(name string) jetstream.Stream {
	s.t.Helper()
	st, err := s.js.Stream(within(s.t, 10*time.Second), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// depth counts the messages of a stream.
func (s *server) depth(name string) int {
	s.t.Helper()
	info, err := s.handle(name).Info(within(s.t, 10*time.Second))
	if err != nil {
		s.t.Fatal(err)
	}
	return int(info.State.Msgs)
}

// read returns everything that is in a stream, in its order.
func (s *server) read(name string) []*jetstream.RawStreamMsg {
	s.t.Helper()
	st := s.handle(name)
	info, err := st.Info(within(s.t, 10*time.Second))
	if err != nil {
		s.t.Fatal(err)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	cons, err := st.OrderedConsumer(within(s.t, 10*time.Second), jetstream.OrderedConsumerConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	batch, err := cons.Fetch(int(info.State.Msgs), jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		s.t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for m := range batch.Messages() {
		all = append(all, &jetstream.RawStreamMsg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()})
	}
	if err := batch.Error(); err != nil || len(all) != int(info.State.Msgs) {
		s.t.Fatalf("read %d of %d messages: %v", len(all), info.State.Msgs, err)
	}
	return all
}

// stored counts the messages of a stream by their id.
func (s *server) stored(name string) map[string]int {
	s.t.Helper()
	got := map[string]int{}
	for _, m := range s.read(name) {
		got[m.Header.Get("ce-id")]++
	}
	return got
}

func (s *server) purge(name string) {
	s.t.Helper()
	if err := s.handle(name).Purge(within(s.t, 10*time.Second)); err != nil {
		s.t.Fatal(err)
	}
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

func wantProbe(t testing.TB, tr *Transport, destination string, class engine.Class, code string) {
	t.Helper()
	wantFault(t, engine.Result{Fault: tr.Probe(within(t, 10*time.Second), destination)}, class, code)
}

func wantWell(t testing.TB, tr *Transport, destination string) {
	t.Helper()
	if f := tr.Probe(within(t, 10*time.Second), destination); f != nil {
		t.Errorf("Probe of %q: %v, want none", destination, f)
	}
}

// eventually polls what has no event.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// newProxy stands between the transport and the real server and reads the protocol.
func newProxy(t testing.TB) (p *faultproxy.Proxy, via string) {
	t.Helper()
	u, err := url.Parse(serverURL(t))
	if err != nil {
		t.Fatal("the server's URL can't be parsed")
	}
	p = faultproxy.New(t, u.Host)
	p.Split(operation)
	u.Host = p.Addr()
	return p, u.String()
}

// operation reads one operation of the NATS protocol, with its payload.
func operation(r *bufio.Reader) ([]byte, error) {
	unit, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(unit))
	if len(fields) == 0 {
		return unit, nil
	}
	switch strings.ToUpper(fields[0]) {
	case "PUB", "HPUB", "MSG", "HMSG":
		size, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			return nil, err
		}
		head := len(unit)
		unit = append(unit, make([]byte, size+2)...)
		_, err = io.ReadFull(r, unit[head:])
		return unit, err
	}
	return unit, nil
}

// isPublish reports whether a unit publishes a message of ours.
func isPublish(unit []byte) bool { return strings.HasPrefix(string(unit), "HPUB ") }

func TestPublishConfirmed(t *testing.T) {
	s := dialServer(t)
	name := s.stream("confirmed", nil)
	tr := newTransport(t, serverURL(t), nil)
	msgs := messages(5000)
	results := publish(t, within(t, 20*time.Second), tr, name, msgs)
	wantConfirmed(t, results...)
	got := s.read(name)
	if len(got) != len(msgs) {
		t.Fatalf("%d messages in the stream, want %d", len(got), len(msgs))
	}
	for i, m := range got {
		if id := m.Header.Get("ce-id"); id != msgs[i].ID.String() {
			t.Fatalf("message %d is %s, want %s", i, id, msgs[i].ID)
		}
		if want := "stream " + name + " seq " + strconv.Itoa(i+1); results[i].Ack != want {
			t.Errorf("message %d: Ack is %q, want %q", i, results[i].Ack, want)
		}
	}
	if info := tr.Describe(); info.Name != "nats" || info.Kind != "nats" || info.KeepsKeyOrder {
		t.Errorf("Describe: %+v", info)
	}
}
