package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outward-dev/outward/dialects/postgres"
	"github.com/outward-dev/outward/engine"
)

const (
	front   = 100_000 // rows of a paused topic in front of what is timed
	behind  = 50_000  // rows behind a blocked key, in front likewise
	topic   = "bench"
	stopped = "bench.stopped"

	batch    = 1000 // messages of one claim, of Outward and of the hand-written loops
	inFlight = 4    // batches in hand
)

// An outward is a drain of Outward's table by its relay.
type outward struct {
	to        target
	keys      int // 0: no order is asked for
	paused    bool
	blocked   bool
	snapshot  bool
	retention time.Duration
	metadata  bool
}

// run fills a fresh table with n messages and times a relay until all are settled.
func (o outward) run(ctx context.Context, b *bench, n int) (f figures, err error) {
	err = b.scratch(ctx, func(s *scratch) error {
		opts := &postgres.Options{Schema: s.schema, Retention: &postgres.Retention{Published: o.retention, Metadata: o.metadata, Discarded: time.Hour}}
		if _, err := postgres.Migrate(ctx, b.pool, opts, nil); err != nil {
			return err
		}
		store, err := postgres.NewStore(s.pool, opts)
		if err != nil {
			return err
		}
		if err := b.fill(ctx, s, "outbox_messages", func() error { return o.insert(ctx, b, s, store, n) }); err != nil {
			return err
		}
		return b.held(ctx, o.snapshot, func() error {
			f, err = o.drain(ctx, s, store, n)
			return err
		})
	})
	return f, err
}

// insert puts what is in front and what is timed into the table.
func (o outward) insert(ctx context.Context, b *bench, s *scratch, store *postgres.Store, n int) error {
	const insert = "INSERT INTO {s}.outbox_messages (topic, type, ordering_key, payload) SELECT $1, 'bench.v1', %s, $2 FROM generate_series(1, $3) n"
	if o.paused {
		if err := b.exec(ctx, s, fmt.Sprintf(insert, "NULL"), stopped, b.payload, front); err != nil {
			return err
		}
		if err := store.Pause(ctx, engine.Pause{Destination: engine.TopicPause(stopped), By: engine.Actor{Name: "bench", Reason: "measured"}}); err != nil {
			return err
		}
	}
	if o.blocked {
		// Its head is dead, so the rest of the key waits for an operator.
		if err := b.exec(ctx, s, fmt.Sprintf(insert, "'blocked'"), stopped, b.payload, 1); err != nil {
			return err
		}
		head, err := store.Claim(ctx, engine.ClaimRequest{Limit: 1, Lease: time.Minute, Idle: true})
		if err != nil || len(head) != 1 {
			return fmt.Errorf("the head of the blocked key: %d rows, %w", len(head), err)
		}
		if _, err := store.Settle(ctx, engine.DeadLetter(head[0].Receipt, true, engine.Fault{Class: engine.Rejected, Code: "bench"})); err != nil {
			return err
		}
		if err := b.exec(ctx, s, fmt.Sprintf(insert, "'blocked'"), stopped, b.payload, behind); err != nil {
			return err
		}
	}
	key := "NULL"
	if o.keys > 0 {
		key = fmt.Sprintf("'key-' || n %% %d", o.keys)
	}
	return b.exec(ctx, s, fmt.Sprintf(insert, key), topic, b.payload, n)
}

// drain runs a relay until everything timed is settled.
func (o outward) drain(ctx context.Context, s *scratch, store *postgres.Store, n int) (f figures, err error) {
	p, err := o.to.open(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	calls := countCalls(p.routes)
	var settled atomic.Int64
	running, stop := context.WithCancel(ctx)
	defer stop()
	relay, err := engine.New(store, p.routes, &engine.Options{
		Batch: batch, InFlight: inFlight, Delivery: engine.Delivery{Window: inFlight * batch},
		Hooks: engine.Hooks{Published: func(m engine.Outgoing, _ string, res engine.Result, _ time.Duration) {
			if m.Topic == topic && res.Fault == nil && settled.Add(1) == int64(n) {
				stop()
			}
		}},
	})
	if err != nil {
		return f, err
	}
	if err := s.meter.start(ctx); err != nil {
		return f, err
	}
	if err := relay.Run(running); err != nil {
		return f, err
	}
	// The run ends with the last settlement, which the drain waits for.
	f, err = s.meter.stop(ctx, n)
	f.calls = float64(calls.Load())
	if went := settled.Load(); went < int64(n) {
		err = errors.Join(err, fmt.Errorf("%d of %d messages went out in time", went, n))
	}
	return f, err
}

// countCalls counts the calls of Publish.
func countCalls(routes []engine.Route) *atomic.Int64 {
	n := new(atomic.Int64)
	for i := range routes {
		routes[i].Transport = counted{routes[i].Transport, n}
	}
	return n
}

type counted struct {
	engine.Transport
	calls *atomic.Int64
}

func (c counted) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(int, engine.Result)) {
	c.calls.Add(1)
	c.Transport.Publish(ctx, destination, msgs, report)
}
