package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A bench is the database and what all runs have in common.
type bench struct {
	pool    *pgxpool.Pool // its own; what is measured has another
	dsn     string
	payload []byte
	steady  time.Duration // how long commits keep coming in a run that asks for latency
}

func newBench(ctx context.Context, dsn string) (*bench, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4 * producers
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return &bench{pool: pool, dsn: dsn, payload: bytes.Repeat([]byte("0123456789abcdef"), 64), steady: 5 * time.Second}, err
}

func (b *bench) close() { b.pool.Close() }

func (b *bench) version(ctx context.Context) (v string, err error) {
	err = b.pool.QueryRow(ctx, `SELECT 'PostgreSQL ' || current_setting('server_version') || ', fsync ' || current_setting('fsync')
    || ', wal_level ' || current_setting('wal_level') || ', shared_buffers ' || current_setting('shared_buffers')`).Scan(&v)
	return v, err
}

// A scratch is a schema for one run, a pool for what is measured, and its meter.
type scratch struct {
	schema string
	pool   *pgxpool.Pool
	meter  *meter
}

// scratch makes one for as long as f runs.
func (b *bench) scratch(ctx context.Context, f func(s *scratch) error) (err error) {
	config, err := pgxpool.ParseConfig(b.dsn)
	if err != nil {
		return err
	}
	config.MaxConns = 10
	s := &scratch{schema: "bench_" + strings.ToLower(rand.Text()[:10]), meter: &meter{db: b.pool, traffic: &traffic{}}}
	s.meter.traffic.count(config)
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	defer s.pool.Close()
	if err := b.exec(ctx, s, "CREATE SCHEMA {s}"); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.exec(context.WithoutCancel(ctx), s, "DROP SCHEMA {s} CASCADE"))
	}()
	return f(s)
}

// exec runs sql, in which {s} is the schema.
func (b *bench) exec(ctx context.Context, s *scratch, sql string, args ...any) error {
	_, err := b.pool.Exec(ctx, strings.ReplaceAll(sql, "{s}", s.schema), args...)
	return err
}

// fill calls insert and makes the table ready to be measured. The checkpoint comes
// before the rows are written, so that no run pays for whole pages in the log that
// another did not.
func (b *bench) fill(ctx context.Context, s *scratch, table string, insert func() error) error {
	if err := b.exec(ctx, s, "CHECKPOINT"); err != nil {
		return err
	}
	if err := insert(); err != nil {
		return err
	}
	return b.exec(ctx, s, "VACUUM ANALYZE {s}."+table)
}

// held runs f while a transaction elsewhere holds an old snapshot, if it is to.
func (b *bench) held(ctx context.Context, hold bool, f func() error) (err error) {
	if !hold {
		return f()
	}
	tx, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
	if _, err := tx.Exec(ctx, "SELECT 1 FROM pg_class LIMIT 1"); err != nil {
		return err
	}
	return f()
}
