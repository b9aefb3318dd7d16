package sqlite

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// A database is a file of a test's own, migrated.
type database struct {
	t    testing.TB
	path string
	opts *Options
	n    names
	db   *sql.DB
	w    *Writer
}

// newDatabase migrates a fresh file, which goes when the test ends. Nothing is
// archived unless keep says so.
func newDatabase(t testing.TB, keep *Retention) *database {
	t.Helper()
	if keep == nil {
		keep = &Retention{Discarded: time.Hour}
	}
	d := &database{t: t, path: filepath.Join(t.TempDir(), "test.db"), opts: &Options{Retention: keep}}
	if err := os.WriteFile(d.path, migrated(t, *keep), 0o600); err != nil {
		t.Fatal(err)
	}
	d.db = d.connect()
	var err error
	if d.n, err = d.opts.names(); err != nil {
		t.Fatal(err)
	}
	if d.w, err = NewWriter(d.opts); err != nil {
		t.Fatal(err)
	}
	return d
}

var templates sync.Map // Retention -> the bytes of a migrated file

// migrated is a migrated file: to migrate one for each clause of the suite takes
// longer than the clauses.
func migrated(t testing.TB, keep Retention) []byte {
	t.Helper()
	if file, is := templates.Load(keep); is {
		return file.([]byte)
	}
	path := filepath.Join(t.TempDir(), "template.db")
	db, err := sql.Open("sqlite", DSN(path))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Migrate(t.Context(), db, &Options{Retention: &keep}, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil { // which moves everything from the log to the file
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	templates.Store(keep, file)
	return file
}

// connect opens the file once more, as another process would, with what change makes
// of the DSN.
func (d *database) connect(change ...*strings.Replacer) *sql.DB {
	d.t.Helper()
	dsn := DSN(d.path)
	for _, c := range change {
		dsn = c.Replace(dsn)
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			d.t.Errorf("close: %v", err)
		}
	})
	return db
}

var (
	deferred = strings.NewReplacer("_txlock=immediate", "_txlock=deferred")
	noWait   = strings.NewReplacer("busy_timeout(5000)", "busy_timeout(0)")
)

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
	us := by.Microseconds()
	tx, err := d.db.Begin()
	if err != nil {
		d.t.Fatal(err)
	}
	defer tx.Rollback() // after the commit there is nothing to roll back
	for _, query := range []string{
		`UPDATE {messages} SET available_at = CASE WHEN available_at = ?2 THEN available_at ELSE available_at - ?1 END, created_at = created_at - ?1,
		 occurred_at = occurred_at - ?1, first_failed_at = first_failed_at - ?1, last_attempt_at = last_attempt_at - ?1, dead_at = dead_at - ?1`,
		`UPDATE {lanes} SET lease_until = lease_until - ?1 WHERE lease_until > 0 AND ?2 > 0`,
		`UPDATE {archive} SET settled_at = settled_at - ?1, created_at = created_at - ?1 WHERE ?2 > 0`,
		`UPDATE {pauses} SET since = since - ?1, probe_at = CASE WHEN probe_at = ?2 THEN probe_at ELSE probe_at - ?1 END`,
		`UPDATE {audit} SET at = at - ?1 WHERE ?2 > 0`,
	} {
		if _, err := tx.Exec(d.n.sql(query), us, int64(forever)); err != nil {
			d.t.Fatalf("%s: %v", query, err)
		}
	}
	if err := tx.Commit(); err != nil {
		d.t.Fatal(err)
	}
}

// state is a row's state, or "gone".
func (d *database) state(id engine.ID) string {
	d.t.Helper()
	return one[string](d, `SELECT coalesce((SELECT CASE state WHEN 0 THEN 'ready' WHEN 1 THEN 'waiting' WHEN 2 THEN 'held' ELSE 'dead' END
		FROM {messages} WHERE message_id = ?), 'gone')`, id)
}

// sound fails unless the table is as it must be between any two transactions.
func (d *database) sound() {
	d.t.Helper()
	if n := one[int](d, `SELECT count(*) FROM {messages} m WHERE state = 2 AND NOT EXISTS (SELECT 1 FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq < m.seq)`); n > 0 {
		d.t.Errorf("%d rows are held without anything that holds them", n)
	}
	if n := one[int](d, `SELECT count(*) FROM {blocks} b WHERE seq > 0 AND NOT EXISTS (SELECT 1 FROM {messages} m WHERE m.seq = b.seq AND m.ordering_key = b.ordering_key AND state IN (0, 1, 3))`); n > 0 {
		d.t.Errorf("%d entries have no row that could end them", n)
	}
	if n := one[int](d, `SELECT count(*) FROM {lanes} WHERE lease_until > {now} AND handed = '[]'`); n > 0 {
		d.t.Errorf("%d lanes are leased and have nothing handed out", n)
	}
	if ok := one[string](d, `PRAGMA integrity_check`); ok != "ok" {
		d.t.Errorf("integrity check: %s", ok)
	}
}
