package matrix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
	"github.com/outward-dev/outward/transports/natsjs"
)

var natsjsTransport = transport{
	name:    "natsjs",
	servers: []string{"nats"},
	create: func(t *testing.T, server string) string {
		address := testservers.URL(t, server)
		name := "matrix-" + strings.ToLower(rand.Text()[:10])
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := withJetStream(address, func(js jetstream.JetStream) error {
			// Without a dedup window: what the relay sends twice is to be seen twice.
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Duplicates: 100 * time.Millisecond})
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
	},
	open: func(address string) (engine.Transport, []engine.Route, error) {
		server, name, _ := strings.Cut(address, "#")
		tr, err := natsjs.New(server, &natsjs.Options{Source: "/matrix", Stream: name})
		if err != nil {
			return nil, nil, err
		}
		return tr, []engine.Route{{Topics: ">", Transport: tr, Destination: name}}, nil
	},
	take: func(ctx context.Context, address string) (ds []delivery, err error) {
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
				ds = append(ds, delivery{id: header("ce-id"), key: header("outward-key"), topic: header("outward-topic"), kind: header("ce-type"), payload: m.Data()})
			}
			if err = errors.Join(err, batch.Error()); err != nil || len(ds) != int(state.Msgs) {
				return fmt.Errorf("%d of %d messages (%w)", len(ds), state.Msgs, err)
			}
			return stream.Purge(ctx, jetstream.WithPurgeSequence(state.LastSeq+1))
		})
		return ds, err
	},
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
