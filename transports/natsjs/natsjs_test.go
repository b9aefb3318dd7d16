package natsjs

import (
	"bufio"
	"context"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
	"github.com/outward-dev/outward/transports/internal/transporttest"
)

// serverURL returns the URL of a real server, or skips.
func serverURL(t testing.TB) string {
	t.Helper()
	return testservers.URL(t, "nats")
}

// What every transport's tests have.
var (
	unique        = transporttest.Unique
	message       = transporttest.Message
	messages      = transporttest.Messages
	within        = transporttest.Within
	wantFault     = transporttest.WantFault
	wantConfirmed = transporttest.WantConfirmed
	eventually    = transporttest.Eventually
)

func publish(t testing.TB, ctx context.Context, tr *Transport, destination string, msgs []engine.Outgoing) []engine.Result {
	t.Helper()
	return transporttest.Publish(t, ctx, tr, destination, msgs)
}

// harness is the way to this transport for the tests that are the same for all.
var harness = &transporttest.Harness{
	New: subject,
	At: func(t *testing.T, address string, redial time.Duration) engine.Transport {
		tr := newTransport(t, "nats://"+address, nil)
		tr.line.Redial = redial
		return tr
	},
	Recognises: true,
	PartIsSent: true,
	Large:      1 << 19,
}

// subject is a transport to a stream of its own.
func subject(t *testing.T, c transporttest.Conditions) *transporttest.Subject {
	t.Helper()
	srv := dialServer(t)
	name := srv.stream("subject", nil)
	connected := func() {
		eventually(t, "the test is connected", srv.nc.IsConnected)
	}
	s := &transporttest.Subject{
		Destination: name,
		Depth:       func() int { connected(); return srv.depth(name) },
		Stored:      func() map[string]int { connected(); return srv.stored(name) },
	}
	url := serverURL(t)
	if !c.Direct {
		s.Proxy, url = newProxy(t)
		s.OnPublish = func(f func(*faultproxy.Conn)) {
			s.Proxy.Up(func(c *faultproxy.Conn, unit []byte) bool {
				if isPublish(unit) {
					f(c)
				}
				return true
			})
		}
	}
	tr := newTransport(t, url, nil)
	if c.Redial != 0 {
		tr.line.Redial = c.Redial
	}
	s.Transport = tr
	return s
}

// server is a plain connection to the real server, for setting up and looking.
type server struct {
	t  testing.TB
	nc *nats.Conn
	js jetstream.JetStream
}

func dialServer(t testing.TB) *server {
	t.Helper()
	nc, err := nats.Connect(serverURL(t), nats.Timeout(10*time.Second), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
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
	transporttest.CloseAfter(t, tr)
	return tr
}

// current is the transport's connection.
func current(t testing.TB, tr *Transport) *session {
	t.Helper()
	s, f := tr.line.Session(within(t, 10*time.Second))
	if f != nil {
		t.Fatal(f)
	}
	return s
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
