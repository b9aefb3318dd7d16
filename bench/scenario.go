package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/dialects/postgres"
	"github.com/outward-dev/outward/engine"
)

const (
	front   = 100_000 // rows of a paused topic in front of what is timed
	behind  = 50_000  // rows behind a blocked key, in front likewise
	topic   = "bench"
	stopped = "bench.stopped"
)

// A scenario is one thing to time: so many messages out of a fresh table.
type scenario struct {
	target    target
	keys      int // 0: no order asked
	paused    bool
	blocked   bool
	snapshot  bool
	retention time.Duration
	bare      bool // the client alone
}

func (b *bench) comparisons() []comparison {
	var cs []comparison
	for _, to := range []target{toRabbitMQ, toNull} {
		plain := scenario{target: to}
		// What is promised, is promised for a broker. Where nothing but the database is
		// at work, its time is all there is, and whatever it does besides shows.
		aside, keyed := .75, .8
		if to == toNull {
			aside, keyed = 0, 0
		}
		cs = append(cs,
			comparison{"paused topic in front, to " + to.kind, scenario{target: to, paused: true}, plain, aside},
			comparison{"blocked key in front, to " + to.kind, scenario{target: to, blocked: true}, plain, aside},
			comparison{"10 000 keys against none, to " + to.kind, scenario{target: to, keys: 10_000}, plain, keyed},
			comparison{"retention 72 h against 0, to " + to.kind, scenario{target: to, retention: 72 * time.Hour}, plain, 0},
			comparison{"the same against itself, to " + to.kind, plain, plain, 0},
			comparison{"a held snapshot against none, to " + to.kind, scenario{target: to, snapshot: true}, plain, 0},
		)
	}
	return append(cs, comparison{"Outward against the bare client, to rabbitmq4", scenario{target: toRabbitMQ}, scenario{target: toRabbitMQ, bare: true}, .75})
}

type bench struct {
	pool    *pgxpool.Pool
	version string
	n       int
	payload []byte
}

func newBench(ctx context.Context, dsn string, n int) (*bench, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	b := &bench{pool: pool, n: n, payload: bytes.Repeat([]byte("0123456789abcdef"), 64)}
	err = pool.QueryRow(ctx, "SELECT 'PostgreSQL ' || current_setting('server_version')").Scan(&b.version)
	return b, err
}

func (b *bench) close() { b.pool.Close() }

// rate runs a scenario once and returns its messages a second.
func (b *bench) rate(ctx context.Context, s scenario) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if s.bare {
		began := time.Now()
		err := bare(ctx, s.target.url, b.n, b.payload)
		return float64(b.n) / time.Since(began).Seconds(), err
	}
	opts := &postgres.Options{Schema: "bench_" + strings.ToLower(rand.Text()[:10]), Retention: &postgres.Retention{Published: s.retention, Discarded: time.Hour}}
	if err := b.exec(ctx, opts, "CREATE SCHEMA {s}"); err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, b.exec(context.WithoutCancel(ctx), opts, "DROP SCHEMA {s} CASCADE"))
	}()
	if _, err := postgres.Migrate(ctx, b.pool, opts, nil); err != nil {
		return 0, err
	}
	store, err := postgres.NewStore(b.pool, opts)
	if err != nil {
		return 0, err
	}
	if err := b.fill(ctx, s, opts, store); err != nil {
		return 0, err
	}
	if s.snapshot {
		tx, err := b.pool.Begin(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
		if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM "+opts.Schema+".outbox_lanes"); err != nil {
			return 0, err
		}
	}
	return b.drain(ctx, s, store)
}

func (b *bench) exec(ctx context.Context, opts *postgres.Options, sql string, args ...any) error {
	_, err := b.pool.Exec(ctx, strings.ReplaceAll(sql, "{s}", opts.Schema), args...)
	return err
}

// fill puts what is in front and what is timed into the table.
func (b *bench) fill(ctx context.Context, s scenario, opts *postgres.Options, store *postgres.Store) error {
	// Before the rows are written, so that no run pays for whole pages in the log that
	// another did not.
	if err := b.exec(ctx, opts, "CHECKPOINT"); err != nil {
		return err
	}
	const insert = "INSERT INTO {s}.outbox_messages (topic, type, ordering_key, payload) SELECT $1, 'bench.v1', %s, $2 FROM generate_series(1, $3) n"
	if s.paused {
		if err := b.exec(ctx, opts, fmt.Sprintf(insert, "NULL"), stopped, b.payload, front); err != nil {
			return err
		}
		if err := store.Pause(ctx, engine.Pause{Destination: engine.TopicPause(stopped), By: engine.Actor{Name: "bench", Reason: "measured"}}); err != nil {
			return err
		}
	}
	if s.blocked {
		// Its head is dead, so the rest of the key waits for an operator.
		if err := b.exec(ctx, opts, fmt.Sprintf(insert, "'blocked'"), stopped, b.payload, 1); err != nil {
			return err
		}
		head, err := store.Claim(ctx, engine.ClaimRequest{Limit: 1, Lease: time.Minute, Idle: true})
		if err != nil || len(head) != 1 {
			return fmt.Errorf("the head of the blocked key: %d rows, %w", len(head), err)
		}
		if _, err := store.Settle(ctx, engine.DeadLetter(head[0].Receipt, true, engine.Fault{Class: engine.Rejected, Code: "bench"})); err != nil {
			return err
		}
		if err := b.exec(ctx, opts, fmt.Sprintf(insert, "'blocked'"), stopped, b.payload, behind); err != nil {
			return err
		}
	}
	key := "NULL"
	if s.keys > 0 {
		key = fmt.Sprintf("'key-' || n %% %d", s.keys)
	}
	if err := b.exec(ctx, opts, fmt.Sprintf(insert, key), topic, b.payload, b.n); err != nil {
		return err
	}
	return b.exec(ctx, opts, "VACUUM ANALYZE {s}.outbox_messages")
}

// drain runs a relay until everything timed is settled.
func (b *bench) drain(ctx context.Context, s scenario, store *postgres.Store) (rate float64, err error) {
	routes, done, err := s.target.open()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	var settled atomic.Int64
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	relay, err := engine.New(store, routes, &engine.Options{
		Batch: 1000, InFlight: 4, Delivery: engine.Delivery{Window: 2000},
		Hooks: engine.Hooks{Published: func(m engine.Outgoing, _ string, res engine.Result, _ time.Duration) {
			if m.Topic == topic && res.Fault == nil && settled.Add(1) == int64(b.n) {
				stop()
			}
		}},
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := relay.Run(ctx); err != nil {
		return 0, err
	}
	if settled.Load() < int64(b.n) {
		return 0, fmt.Errorf("%d of %d messages went out in time", settled.Load(), b.n)
	}
	// The run ends with the last settlement, which the drain waits for.
	return float64(b.n) / time.Since(began).Seconds(), nil
}
