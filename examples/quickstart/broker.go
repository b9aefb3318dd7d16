package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const streamName = "ORDERS"

// A broker is a NATS server in this process, with a stream in files.
type broker struct {
	server *server.Server
	conn   *nats.Conn
	stream jetstream.Stream
}

// startBroker starts it on a free port of the loopback.
func startBroker(ctx context.Context, dir string) (*broker, error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: dir, SyncAlways: true, // what it acknowledges is on the disk
	})
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	s.Start()
	b := &broker{server: s}
	if err := b.connect(ctx); err != nil {
		b.stop()
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	return b, nil
}

func (b *broker) connect(ctx context.Context) (err error) {
	if !b.server.ReadyForConnections(30 * time.Second) {
		return errors.New("the server does not start")
	}
	if b.conn, err = nats.Connect(b.url()); err != nil {
		return err
	}
	js, err := jetstream.New(b.conn)
	if err != nil {
		return err
	}
	b.stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"order.>"}, Storage: jetstream.FileStorage, Duplicates: dedupWindow,
	})
	return err
}

func (b *broker) url() string { return "nats://" + b.server.Addr().String() }

func (b *broker) stop() {
	if b.conn != nil {
		b.conn.Close()
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// A stored message is one that the stream has.
type stored struct {
	seq      uint64
	id, key  string
	subject  string
	payload  string
	storedAt time.Time
}

// messages reads all that the stream has, in its order.
func (b *broker) messages(ctx context.Context) ([]stored, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	var all []stored
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := b.stream.GetMsg(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("jetstream: message %d: %w", seq, err)
		}
		all = append(all, stored{
			seq: seq, id: m.Header.Get("ce-id"), key: m.Header.Get("outward-key"),
			subject: m.Subject, payload: string(m.Data), storedAt: m.Time,
		})
	}
	return all, nil
}
