package main

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/natsjs"
)

var toJetStream = target{name: "nats", url: brokerURL("nats"), version: natsVersion, open: openStream}

func natsVersion(_ context.Context, url string) (string, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	return "NATS " + nc.ConnectedServerVersion(), nil
}

// openStream makes a stream in files, with the server's own deduplication window.
func openStream(ctx context.Context) (*place, error) {
	nc, err := nats.Connect(brokerURL("nats"))
	if err != nil {
		return nil, err
	}
	name := "bench-" + rand.Text()[:10]
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage})
	}
	var tr *natsjs.Transport
	if err == nil {
		tr, err = natsjs.New(brokerURL("nats"), &natsjs.Options{Window: inFlight * batch})
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &place{
		routes:    []engine.Route{{Topics: ">", Transport: tr, Destination: name}},
		publisher: func(window int) (publisher, error) { return newStreamPublisher(nc, name, window) },
		close: func() error {
			defer nc.Close()
			ctx := context.WithoutCancel(ctx)
			return errors.Join(tr.Close(ctx), js.DeleteStream(ctx, name))
		},
	}, nil
}

// A streamPublisher publishes asynchronously. Its own JetStream context lets it
// wait for its own messages in the cheapest way: until none is left.
type streamPublisher struct {
	js      jetstream.JetStream
	subject string
	failed  *atomic.Pointer[error]
}

func newStreamPublisher(nc *nats.Conn, subject string, window int) (*streamPublisher, error) {
	failed := new(atomic.Pointer[error])
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window), jetstream.WithPublishAsyncTimeout(time.Minute),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { failed.Store(&err) }))
	return &streamPublisher{js: js, subject: subject, failed: failed}, err
}

func (p *streamPublisher) publish(ctx context.Context, msgs iter.Seq[message]) error {
	for m := range msgs {
		msg := &nats.Msg{Subject: p.subject, Data: m.body, Header: nats.Header{
			jetstream.MsgIDHeader: {m.id}, "Type": {m.typ},
		}}
		if _, err := p.js.PublishMsgAsync(msg, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-p.js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (p *streamPublisher) close() error {
	p.js.CleanupPublisher()
	return nil
}
