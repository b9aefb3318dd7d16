package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// A database is a schema of a test's own, migrated.
type database struct {
	t    testing.TB
	dsn  string
	opts *Options
	n    names
	pool *pgxpool.Pool
	w    *Writer
}

// each runs f on every PostgreSQL server, in a schema of its own.
func each(t *testing.T, f func(t *testing.T, db *database)) {
	t.Helper()
	testservers.Each(t, testservers.Postgres(), func(t *testing.T, dsn string) { f(t, newDatabase(t, dsn, nil)) })
}

// newDatabase migrates a fresh schema, which goes when the test ends. Nothing is
// archived unless keep says so.
func newDatabase(t testing.TB, dsn string, keep *Retention) *database {
	t.Helper()
	if keep == nil {
		keep = &Retention{Discarded: time.Hour}
	}
	db := &database{t: t, dsn: dsn, opts: &Options{Schema: schemaName(), Retention: keep}}
	db.pool = db.newPool(nil)
	t.Cleanup(func() {
		_, err := db.pool.Exec(context.Background(), `DROP SCHEMA IF EXISTS `+quote(db.opts.Schema)+` CASCADE`)
		db.pool.Close()
		if err != nil {
			t.Errorf("drop schema: %v", err)
		}
	})
	var err error
	if db.n, err = db.opts.names(); err != nil {
		t.Fatal(err)
	}
	if _, err := Migrate(t.Context(), db.pool, db.opts, nil); err != nil {
		t.Fatal(err)
	}
	if db.w, err = NewWriter(db.opts); err != nil {
		t.Fatal(err)
	}
	return db
}

func schemaName() string {
	id := engine.NewID()
	return fmt.Sprintf("t_%x", id[4:])
}

// newPool opens a pool; the caller closes it or lets newDatabase do so.
func (db *database) newPool(change func(*pgxpool.Config)) *pgxpool.Pool {
	db.t.Helper()
	config, err := pgxpool.ParseConfig(db.dsn)
	if err != nil {
		db.t.Fatal(err)
	}
	config.MaxConns = 8
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		db.t.Fatal(err)
	}
	return pool
}

// open returns a store as another process would have it.
func (db *database) open(opts ...func(*pgxpool.Config)) *Store {
	db.t.Helper()
	var change func(*pgxpool.Config)
	if len(opts) > 0 {
		change = opts[0]
	}
	pool := db.newPool(change)
	db.t.Cleanup(pool.Close)
	s, err := NewStore(pool, db.opts)
	if err != nil {
		db.t.Fatal(err)
	}
	return s
}

// exec runs SQL with the names filled in.
func (db *database) exec(sql string, args ...any) {
	db.t.Helper()
	if _, err := db.pool.Exec(context.Background(), db.n.sql(sql), args...); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
}

// one reads one value.
func one[T any](db *database, sql string, args ...any) T {
	db.t.Helper()
	var v T
	if err := db.pool.QueryRow(context.Background(), db.n.sql(sql), args...).Scan(&v); err != nil {
		db.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// enqueue commits messages.
func (db *database) enqueue(msgs ...engine.Message) []engine.ID {
	db.t.Helper()
	var ids []engine.ID
	err := db.w.InTx(context.Background(), db.pool, func(tx pgx.Tx) (err error) {
		ids, err = db.w.Enqueue(context.Background(), tx, msgs...)
		return err
	})
	if err != nil {
		db.t.Fatal(err)
	}
	return ids
}

func msg(topic, key string) engine.Message {
	return engine.Message{Topic: topic, Key: key, Type: "test.v1", Payload: []byte(`{"a":1}`)}
}

func req(limit int) engine.ClaimRequest {
	return engine.ClaimRequest{Worker: "test", Limit: limit, Lease: time.Minute, Idle: true}
}

func (db *database) claim(s *Store, r engine.ClaimRequest) []engine.Claimed {
	db.t.Helper()
	c, err := s.Claim(context.Background(), r)
	if err != nil {
		db.t.Fatal(err)
	}
	return c
}

// settle settles and wants so many to be lost.
func (db *database) settle(s *Store, lost int, ss ...engine.Settlement) {
	db.t.Helper()
	got, err := s.Settle(context.Background(), ss...)
	if err != nil {
		db.t.Fatal(err)
	}
	if len(got) != lost {
		db.t.Fatalf("%d lost, want %d", len(got), lost)
	}
}

// shift lets d pass for the table.
func (db *database) shift(d time.Duration) {
	db.t.Helper()
	us := d.Microseconds()
	db.exec(`UPDATE {messages} SET available_at = available_at - $1::bigint * interval '1 microsecond', created_at = created_at - $1::bigint * interval '1 microsecond',
		occurred_at = occurred_at - $1::bigint * interval '1 microsecond', first_failed_at = first_failed_at - $1::bigint * interval '1 microsecond',
		last_attempt_at = last_attempt_at - $1::bigint * interval '1 microsecond', dead_at = dead_at - $1::bigint * interval '1 microsecond'`, us)
	db.exec(`UPDATE {lanes} SET lease_until = lease_until - $1::bigint * interval '1 microsecond', used = used - $1::bigint * interval '1 microsecond'`, us)
	db.exec(`UPDATE {archive} SET settled_at = settled_at - $1::bigint * interval '1 microsecond', created_at = created_at - $1::bigint * interval '1 microsecond'`, us)
	db.exec(`UPDATE {pauses} SET since = since - $1::bigint * interval '1 microsecond', probe_at = probe_at - $1::bigint * interval '1 microsecond'`, us)
	db.exec(`UPDATE {audit} SET at = at - $1::bigint * interval '1 microsecond'`, us)
}

// state is a row's state, or "gone".
func (db *database) state(id engine.ID) string {
	db.t.Helper()
	return one[string](db, `SELECT coalesce((SELECT (ARRAY['ready', 'waiting', 'held', 'dead'])[state + 1] FROM {messages} WHERE message_id = $1::uuid), 'gone')`, id.String())
}

// sound fails unless the table is as it must be between any two transactions.
func (db *database) sound() {
	db.t.Helper()
	if n := one[int](db, `SELECT count(*) FROM {messages} m WHERE state = 2 AND NOT EXISTS (SELECT FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq < m.seq)`); n > 0 {
		db.t.Errorf("%d rows are held without anything that holds them", n)
	}
	if n := one[int](db, `SELECT count(*) FROM {blocks} b WHERE seq > 0 AND NOT EXISTS (SELECT FROM {messages} m WHERE m.seq = b.seq AND m.ordering_key = b.ordering_key AND state IN (0, 1, 3))`); n > 0 {
		db.t.Errorf("%d entries have no row that could end them", n)
	}
	if n := one[int](db, `SELECT count(*) FROM {lanes} WHERE lease_until > now() AND cardinality(handed_seq) = 0`); n > 0 {
		db.t.Errorf("%d lanes are leased and have nothing handed out", n)
	}
}
