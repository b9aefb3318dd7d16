package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// A database is an outbox of a test's own, migrated, under a prefix of its own.
type database struct {
	t       testing.TB
	dsn     string
	opts    *Options
	n       names
	db      *sql.DB
	w       *Writer
	spoiled bool // its tables must not be used again
}

// each runs f on every server, in tables of its own.
func each(t *testing.T, f func(t *testing.T, d *database)) {
	t.Helper()
	testservers.Each(t, testservers.MySQL(), func(t *testing.T, dsn string) { f(t, newDatabase(t, dsn, nil)) })
}

// Tables of tests that have ended, emptied: to create nine for each clause of the suite
// takes longer than the clauses.
var pool struct {
	sync.Mutex
	free map[string][]string // prefixes, by server and retention
}

// newDatabase gives a test tables that nobody else has. Nothing is archived unless
// keep says so.
func newDatabase(t testing.TB, dsn string, keep *Retention) *database {
	t.Helper()
	if keep == nil {
		keep = &Retention{Discarded: time.Hour}
	}
	d := &database{t: t, dsn: dsn, opts: &Options{Retention: keep}}
	d.db = d.connect()
	kind := fmt.Sprint(dsn, *keep)
	pool.Lock()
	if free := pool.free[kind]; len(free) > 0 {
		d.opts.Prefix, pool.free[kind] = free[0], free[1:]
	}
	pool.Unlock()
	d.opts.InboxPrefix = "ibx_" + strings.TrimPrefix(d.opts.Prefix, "t_")
	if d.opts.Prefix == "" {
		id := engine.NewID()
		d.opts.Prefix, d.opts.InboxPrefix = fmt.Sprintf("t_%x_", id[6:]), fmt.Sprintf("ibx_%x_", id[6:])
		if _, err := Migrate(t.Context(), d.db, d.opts, nil); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if d.n, err = d.opts.names(); err != nil {
		t.Fatal(err)
	}
	if d.w, err = NewWriter(d.opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.spoiled {
			d.drop()
			return
		}
		for _, table := range []string{"{messages}", "{archive}", "{blocks}", "{pauses}", "{audit}", "{inbox}"} {
			d.exec(`DELETE FROM ` + table)
		}
		d.exec(`UPDATE {lanes} SET token = x'', handed = NULL, handed_total = 0, lease_until = '1000-01-01 00:00:00', used = '1000-01-01 00:00:00', worker = ''`)
		pool.Lock()
		defer pool.Unlock()
		if pool.free == nil {
			pool.free = map[string][]string{}
		}
		pool.free[kind] = append(pool.free[kind], d.opts.Prefix)
	})
	return d
}

func (d *database) drop() {
	d.exec(`DROP VIEW IF EXISTS {all}`)
	for _, table := range []string{"{messages}", "{archive}", "{lanes}", "{blocks}", "{pauses}", "{audit}", "{schema_}", "{inbox}"} {
		d.exec(`DROP TABLE IF EXISTS ` + table)
	}
}

// connect opens the database once more, as another process would, with more
// parameters.
func (d *database) connect(params ...string) *sql.DB {
	d.t.Helper()
	dsn := d.dsn
	for _, p := range params {
		dsn += "&" + p
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		d.t.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	d.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			d.t.Errorf("close: %v", err)
		}
	})
	return db
}

// open returns a store as another process would have it.
func (d *database) open() *Store {
	d.t.Helper()
	return d.store(d.connect())
}

func (d *database) store(db *sql.DB) *Store {
	d.t.Helper()
	s, err := NewStore(db, d.opts)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// exec runs SQL with the names filled in.
func (d *database) exec(query string, args ...any) {
	d.t.Helper()
	if _, err := d.db.ExecContext(context.Background(), d.n.sql(query), args...); err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
}

// one reads one value.
func one[T any](d *database, query string, args ...any) T {
	d.t.Helper()
	var v T
	if err := d.db.QueryRowContext(context.Background(), d.n.sql(query), args...).Scan(&v); err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	return v
}

// enqueue commits messages.
func (d *database) enqueue(msgs ...engine.Message) []engine.ID {
	d.t.Helper()
	var ids []engine.ID
	err := d.w.InTx(context.Background(), d.db, func(tx *Tx) (err error) {
		ids, err = d.w.Enqueue(context.Background(), tx, msgs...)
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return ids
}

func msg(topic, key string) engine.Message {
	return engine.Message{Topic: topic, Key: key, Type: "test.v1", Payload: []byte(`{"a":1}`)}
}

func req(limit int) engine.ClaimRequest {
	return engine.ClaimRequest{Worker: "test", Limit: limit, Lease: time.Minute, Idle: true}
}

func (d *database) claim(s *Store, r engine.ClaimRequest) []engine.Claimed {
	d.t.Helper()
	c, err := s.Claim(context.Background(), r)
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

// settle settles and wants so many to be lost.
func (d *database) settle(s *Store, lost int, ss ...engine.Settlement) {
	d.t.Helper()
	got, err := s.Settle(context.Background(), ss...)
	if err != nil {
		d.t.Fatal(err)
	}
	if len(got) != lost {
		d.t.Fatalf("%d lost, want %d", len(got), lost)
	}
}

// shift lets by pass for the table.
func (d *database) shift(by time.Duration) {
	d.t.Helper()
	back := func(column string) string {
		return fmt.Sprintf("%[1]s = CASE WHEN %[1]s = %[2]s THEN %[1]s ELSE %[1]s - INTERVAL %[3]d MICROSECOND END", column, forever, by.Microseconds())
	}
	tx, err := d.db.Begin()
	must(d.t, err)
	defer tx.Rollback() // after the commit there is nothing to roll back
	for _, query := range []string{
		`UPDATE {messages} SET ` + back("available_at") + `, ` + back("created_at") + `, ` + back("occurred_at") + `, ` + back("first_failed_at") + `, ` + back("last_attempt_at") + `, ` + back("dead_at"),
		`UPDATE {lanes} SET ` + back("lease_until") + ` WHERE handed_total > 0`,
		`UPDATE {archive} SET ` + back("settled_at") + `, ` + back("created_at"),
		`UPDATE {pauses} SET ` + back("since") + `, ` + back("probe_at"),
		`UPDATE {audit} SET ` + back("at"),
	} {
		if _, err := tx.Exec(d.n.sql(query)); err != nil {
			d.t.Fatalf("%s: %v", query, err)
		}
	}
	must(d.t, tx.Commit())
}

// state is a row's state, or "gone".
func (d *database) state(id engine.ID) string {
	d.t.Helper()
	return one[string](d, `SELECT COALESCE((SELECT CASE state WHEN 0 THEN 'ready' WHEN 1 THEN 'waiting' WHEN 2 THEN 'held' ELSE 'dead' END
		FROM {messages} WHERE message_id = ?), 'gone')`, id[:])
}

// sound fails unless the table is as it must be between any two transactions.
func (d *database) sound() {
	d.t.Helper()
	if n := one[int](d, `SELECT COUNT(*) FROM {messages} m WHERE state = 2 AND NOT EXISTS (SELECT 1 FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq < m.seq)`); n > 0 {
		d.t.Errorf("%d rows are held without anything that holds them", n)
	}
	if n := one[int](d, `SELECT COUNT(*) FROM {blocks} b WHERE seq > 0 AND NOT EXISTS (SELECT 1 FROM {messages} m WHERE m.seq = b.seq AND m.ordering_key = b.ordering_key AND state IN (0, 1, 3))`); n > 0 {
		d.t.Errorf("%d entries have no row that could end them", n)
	}
	if n := one[int](d, `SELECT COUNT(*) FROM {lanes} WHERE lease_until > {now} AND handed_total = 0`); n > 0 {
		d.t.Errorf("%d lanes are leased and have nothing handed out", n)
	}
}
