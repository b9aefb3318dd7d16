package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/dialects/sqlite"
	"github.com/outward-dev/outward/inbox"
)

// A warehouse ships what was ordered, and keeps what it shipped in a SQLite file of
// its own, with its inbox.
type warehouse struct {
	db    *sql.DB
	inbox *sqlite.Inbox
	plant faults

	consuming jetstream.ConsumeContext
	handled   chan uint64 // sequence numbers in the stream, as they are done with

	mu      sync.Mutex
	repeats []string // ids of messages that the inbox knew
}

func openWarehouse(ctx context.Context, path string, plant faults) (*warehouse, error) {
	db, err := sql.Open("sqlite", sqlite.DSN(path))
	if err != nil {
		return nil, err
	}
	w := &warehouse{db: db, plant: plant, handled: make(chan uint64, 1000)}
	if err := w.setUp(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("warehouse: %w", err), db.Close())
	}
	return w, nil
}

func (w *warehouse) setUp(ctx context.Context) (err error) {
	// Nothing in the table keeps an order from being shipped twice: that is what the
	// inbox is for.
	if _, err := w.db.ExecContext(ctx, `CREATE TABLE shipments (order_number INTEGER NOT NULL, customer TEXT NOT NULL, cents INTEGER NOT NULL)`); err != nil {
		return err
	}
	if _, err := sqlite.Migrate(ctx, w.db, nil, nil); err != nil { // it makes the inbox's table too
		return err
	}
	w.inbox, err = sqlite.NewInbox(nil)
	return err
}

func (w *warehouse) close() error { return w.db.Close() }

// listen begins to consume. A message is acknowledged after the commit of what it
// brought about.
func (w *warehouse) listen(ctx context.Context, b *broker, say func(string, ...any)) error {
	consumer, err := b.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "warehouse", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return fmt.Errorf("warehouse: %w", err)
	}
	w.consuming, err = consumer.Consume(func(m jetstream.Msg) {
		if err := w.handle(ctx, m, say); err != nil {
			say("   warehouse: %v; JetStream will bring the message again", err)
			_ = m.Nak() // or it comes again after the ack wait
		}
	})
	return err
}

func (w *warehouse) stop() {
	w.consuming.Stop()
	<-w.consuming.Closed()
}

func (w *warehouse) handle(ctx context.Context, m jetstream.Msg, say func(string, ...any)) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	id := m.Headers().Get("ce-id")
	var o order
	if err := json.Unmarshal(m.Data(), &o); err != nil {
		return err
	}
	key := inbox.Key{Consumer: "shipping", Message: id}
	if w.plant.skipInbox {
		key.Message = fmt.Sprint(id, meta.Sequence.Stream) // a test's fault: every delivery is new
	}
	// This is the whole of it: the inbox and the effect in one transaction, and the
	// acknowledgement after its commit.
	outcome, err := w.inbox.Process(ctx, w.db, key, func(ctx context.Context, tx *sqlite.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO shipments VALUES (?, ?, ?)`, o.Number, o.Customer, o.Cents)
		return err
	})
	if err != nil {
		return err
	}
	if outcome == inbox.Repeat {
		w.mu.Lock()
		w.repeats = append(w.repeats, id)
		w.mu.Unlock()
		say("   warehouse: order %2d came again (message %s): the inbox knows it, nothing is shipped", o.Number, id)
	}
	if err := m.Ack(); err != nil {
		return err
	}
	w.handled <- meta.Sequence.Stream
	return nil
}

// catchUp waits until everything that the stream has was handled.
func (w *warehouse) catchUp(ctx context.Context, all []stored) error {
	open := map[uint64]bool{}
	for _, m := range all {
		open[m.seq] = true
	}
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("warehouse: %d messages were not handled: %w", len(open), ctx.Err())
		case seq := <-w.handled:
			delete(open, seq)
		}
	}
	return nil
}
