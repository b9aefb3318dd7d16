package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outward-dev/outward/dialects/postgres"
	"github.com/outward-dev/outward/engine"
)

// A wakeUp is how a relay learns of a commit.
type wakeUp int

const (
	byPolling wakeUp = iota
	bySignal         // Relay.Wake, in the producers' own process
	byNotify         // NOTIFY after the commit
)

const (
	commitsPerSecond = 500
	producers        = 4
	warmUp           = 500 * time.Millisecond // what is committed before is not timed
)

// A steady is a relay that keeps up with commits, one message each, that come at an
// even pace. It asks how long a message takes from the return of COMMIT to the
// broker's acknowledgement.
type steady struct {
	to   target
	wake wakeUp
}

// instants are when messages were committed and acknowledged.
type instants struct {
	sync.Mutex
	at map[engine.ID]time.Time
}

func (t *instants) note(id engine.ID) (n int) {
	now := time.Now()
	t.Lock()
	defer t.Unlock()
	t.at[id] = now
	return len(t.at)
}

// run does not look at n: the pace and b.steady decide how many there are.
func (s steady) run(ctx context.Context, b *bench, _ int) (f figures, err error) {
	err = b.scratch(ctx, func(sc *scratch) error {
		opts := &postgres.Options{Schema: sc.schema, Retention: &postgres.Retention{Discarded: time.Hour}}
		if _, err := postgres.Migrate(ctx, b.pool, opts, nil); err != nil {
			return err
		}
		store, err := postgres.NewStore(sc.pool, opts)
		if err != nil {
			return err
		}
		p, err := s.to.open(ctx)
		if err != nil {
			return err
		}
		f, err = s.relay(ctx, b, sc, opts, store, p.routes)
		return errors.Join(err, p.close())
	})
	return f, err
}

func (s steady) relay(ctx context.Context, b *bench, sc *scratch, opts *postgres.Options, store *postgres.Store, routes []engine.Route) (f figures, err error) {
	n := int((warmUp + b.steady).Seconds() * commitsPerSecond)
	committed, acked := &instants{at: map[engine.ID]time.Time{}}, &instants{at: map[engine.ID]time.Time{}}
	calls := countCalls(routes)
	all := make(chan struct{})
	var brokers []time.Duration // of each message, from Publish to the acknowledgement; under acked's lock
	relay, err := engine.New(store, routes, &engine.Options{
		Hooks: engine.Hooks{Published: func(m engine.Outgoing, _ string, res engine.Result, took time.Duration) {
			if res.Fault != nil {
				return
			}
			got := acked.note(m.ID)
			acked.Lock()
			defer acked.Unlock()
			if brokers = append(brokers, took); got == n {
				close(all)
			}
		}},
	})
	if err != nil {
		return f, err
	}
	if s.wake == bySignal {
		opts.Wake = relay.Wake
	}
	writer, err := postgres.NewWriter(opts)
	if err != nil {
		return f, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	time.Sleep(200 * time.Millisecond) // it checks the schema first, and begins to listen
	if err := sc.meter.start(ctx); err != nil {
		return f, err
	}
	began := time.Now()
	if err := s.produce(ctx, b, writer, began, n, committed); err != nil {
		return f, err
	}
	select {
	case <-all:
	case <-ctx.Done():
		return f, fmt.Errorf("%d messages were committed, %d acknowledged: %w", n, len(acked.at), ctx.Err())
	}
	f, err = sc.meter.stop(ctx, n)
	f.calls = float64(calls.Load())
	f.p50, f.p99 = latency(began.Add(warmUp), committed, acked)
	slices.Sort(brokers)
	f.broker = brokers[len(brokers)/2]
	return f, err
}

// produce commits n messages at their times. A commit that is late does not delay
// those of the other producers.
func (s steady) produce(ctx context.Context, b *bench, writer *postgres.Writer, began time.Time, n int, committed *instants) error {
	var wg sync.WaitGroup
	failed := make(chan error, producers)
	for p := range producers {
		wg.Go(func() {
			for i := p; i < n; i += producers {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / commitsPerSecond)))
				m := engine.Message{ID: engine.NewID(), Topic: topic, Type: "bench.v1", Payload: b.payload}
				err := writer.InTx(ctx, b.pool, func(tx pgx.Tx) error {
					_, err := writer.Enqueue(ctx, tx, m)
					return err
				})
				committed.note(m.ID)
				if err == nil && s.wake == byNotify {
					err = writer.Notify(ctx, b.pool)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	var err error
	for e := range failed {
		err = errors.Join(err, e)
	}
	return err
}

// latency counts from the return of COMMIT; a message that was acknowledged before
// took nothing.
func latency(from time.Time, committed, acked *instants) (p50, p99 time.Duration) {
	committed.Lock()
	defer committed.Unlock()
	acked.Lock()
	defer acked.Unlock()
	var took []time.Duration
	for id, at := range committed.at {
		if at.After(from) {
			took = append(took, max(acked.at[id].Sub(at), 0))
		}
	}
	slices.Sort(took)
	if len(took) == 0 {
		return 0, 0
	}
	return took[len(took)/2], took[len(took)*99/100]
}
