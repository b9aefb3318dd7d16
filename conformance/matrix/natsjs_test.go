package matrix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
	"github.com/outward-dev/outward/transports/natsjs"
)

var natsjsTransport = transport{
	name:    "natsjs",
	servers: []string{"nats"},
	create:  func(t *testing.T, server string) string { return streamAt(t, testservers.URL(t, server)) },
	open: func(address string) (engine.Transport, []engine.Route, error) {
		server, name, _ := strings.Cut(address, "#")
		tr, err := natsjs.New(server, &natsjs.Options{Source: "/matrix", Stream: name})
		if err != nil {
			return nil, nil, err
		}
		return tr, []engine.Route{{Topics: ">", Transport: tr, Destination: name}}, nil
	},
	oversize: 1<<20 + 1, // more than its max_payload
	poison:   engine.Message{Type: kind, Headers: map[string]string{"large": strings.Repeat("x", 1<<16)}},
	full: func(t *testing.T, address string) func() {
		update := func(room int64) {
			changeStream(t, address, func(c *jetstream.StreamConfig, s jetstream.StreamState) {
				c.MaxMsgs, c.Discard = -1, jetstream.DiscardNew
				if room > 0 {
					c.MaxMsgs = int64(s.Msgs) + room
				}
			})
		}
		update(5)
		return func() { update(0) }
	},
	gone: func(t *testing.T, address string) (there []delivery, undo func()) {
		server, name, _ := strings.Cut(address, "#")
		// It loses its subject first: what is stored between reading and deleting would be
		// lost by the server.
		changeStream(t, address, func(c *jetstream.StreamConfig, _ jetstream.StreamState) { c.Subjects = []string{name + ".nothing"} })
		there, err := takeStream(t.Context(), address)
		if err != nil {
			t.Error(err)
		}
		do := func(f func(js jetstream.JetStream) error) {
			if err := withJetStream(server, f); err != nil {
				t.Error(err)
			}
		}
		do(func(js jetstream.JetStream) error { return js.DeleteStream(t.Context(), name) })
		return there, func() {
			do(func(js jetstream.JetStream) error {
				_, err := js.CreateStream(t.Context(), streamConfig(name))
				return err
			})
		}
	},
	// The accounts of the shared server can't be changed: another one, in this process.
	login: func(t *testing.T, _ string) (string, *login) {
		file := filepath.Join(t.TempDir(), "login.conf")
		dir := t.TempDir()
		options := func(port int, password string) *server.Options {
			config := fmt.Sprintf(`
				jetstream: {store_dir: %q}
				authorization: {users: [{user: admin, password: admin}, {user: relay, password: %q}]}`, dir, password)
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			o, err := server.ProcessConfigFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o.Host, o.NoLog, o.NoSigs, o.Port = "127.0.0.1", true, true, port
			return o
		}
		s, err := server.NewServer(options(server.RANDOM_PORT, "right"))
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("the server does not start")
		}
		_, port, err := net.SplitHostPort(addressOf(s))
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		password := func(p string) {
			if err := s.ReloadOptions(options(number, p)); err != nil {
				t.Error(err)
			}
		}
		at := streamAt(t, "nats://admin:admin@"+addressOf(s))
		return at, &login{
			address: strings.Replace(at, "admin:admin", "relay:right", 1),
			wrong:   func() { password("another") },
			right:   func() { password("right") },
		}
	},
	take: takeStream,
}

// streamAt makes a stream that goes when the test ends.
func streamAt(t *testing.T, address string) string {
	t.Helper()
	name := "matrix-" + strings.ToLower(rand.Text()[:10])
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := withJetStream(address, func(js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, streamConfig(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := withJetStream(address, func(js jetstream.JetStream) error { return js.DeleteStream(ctx, name) })
		if err != nil {
			t.Errorf("the stream stays behind: %v", err)
		}
	})
	return address + "#" + name
}

// streamConfig has no dedup window to speak of: what the relay sends twice is to be
// seen twice.
func streamConfig(name string) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: name, Subjects: []string{name}, Duplicates: 100 * time.Millisecond}
}

func changeStream(t *testing.T, address string, change func(c *jetstream.StreamConfig, s jetstream.StreamState)) {
	t.Helper()
	server, name, _ := strings.Cut(address, "#")
	err := withJetStream(server, func(js jetstream.JetStream) error {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			return err
		}
		info := stream.CachedInfo()
		change(&info.Config, info.State)
		_, err = js.UpdateStream(t.Context(), info.Config)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func takeStream(ctx context.Context, address string) (ds []delivery, err error) {
	server, name, _ := strings.Cut(address, "#")
	err = withJetStream(server, func(js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		state := stream.CachedInfo().State
		if state.Msgs == 0 {
			return nil
		}
		consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		batch, err := consumer.Fetch(int(state.Msgs), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			header := func(name string) string { // percent-encoded, see docs/wire-format.md
				value, bad := url.PathUnescape(m.Headers().Get(name))
				if bad != nil {
					err = fmt.Errorf("header %s: %w", name, bad)
				}
				return value
			}
			headers := map[string]string{}
			for name := range m.Headers() {
				headers[name] = header(name)
			}
			ds = append(ds, delivery{id: header("ce-id"), key: header("outward-key"), topic: header("outward-topic"), kind: header("ce-type"), payload: m.Data(), headers: headers})
		}
		if err = errors.Join(err, batch.Error()); err != nil || len(ds) != int(state.Msgs) {
			return fmt.Errorf("%d of %d messages (%w)", len(ds), state.Msgs, err)
		}
		return stream.Purge(ctx, jetstream.WithPurgeSequence(state.LastSeq+1))
	})
	return ds, err
}

func withJetStream(server string, do func(js jetstream.JetStream) error) error {
	conn, err := nats.Connect(server)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	return do(js)
}
