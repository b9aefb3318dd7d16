package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/engine"
)

// TestSQLTx: a transaction fits, a database or a connection does not.
func TestSQLTx(t *testing.T) {
	want := reflect.TypeFor[SQLTx]()
	for what, fits := range map[reflect.Type]bool{
		reflect.TypeFor[*sql.Tx](): true, reflect.TypeFor[*Tx](): true, reflect.TypeFor[*sql.DB](): false, reflect.TypeFor[*sql.Conn](): false,
	} {
		if what.Implements(want) != fits {
			t.Errorf("%v fits: %v", what, !fits)
		}
	}
}

// TestEnqueueDuplicate: of batches of every size nothing is left of one with a double
// in it, and the caller's savepoint and transaction stay what they are.
func TestEnqueueDuplicate(t *testing.T) {
	d := newDatabase(t, nil)
	taken := d.enqueue(msg("t", ""))[0]
	for _, size := range []int{1, 2, 3, 63, 64, 65, 200} {
		tx, err := d.db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.Exec(`SAVEPOINT mine`)
		must(t, err)
		msgs := make([]engine.Message, size)
		for i := range msgs {
			msgs[i] = msg("t", "k")
		}
		msgs[size/2].ID = taken
		if ids, err := d.w.Enqueue(t.Context(), tx, msgs...); !errors.Is(err, engine.ErrDuplicateID) || ids != nil {
			t.Errorf("%d messages: %v, %v", size, ids, err)
		}
		msgs[size/2].ID = engine.ID{}
		ids, err := d.w.Enqueue(t.Context(), tx, msgs...)
		must(t, err)
		var seqs []string
		must(t, sqlrows.Query(t.Context(), tx, "ids", d.n.sql(`SELECT message_id FROM {messages} WHERE message_id <> ? ORDER BY seq`), sqlrows.Collect(&seqs), taken))
		if len(seqs) != size || seqs[0] != ids[0].String() || seqs[size-1] != ids[size-1].String() {
			t.Errorf("%d messages: %d rows", size, len(seqs))
		}
		_, err = tx.Exec(`ROLLBACK TO mine`)
		must(t, err)
		must(t, tx.Commit())
		if n := one[int](d, `SELECT count(*) FROM {messages}`); n != 1 {
			t.Fatalf("%d messages: %d rows are left", size, n)
		}
	}
}

// TestEnqueueChecks: nothing is sent before everything is checked.
func TestEnqueueChecks(t *testing.T) {
	w, err := NewWriter(&Options{MaxPayload: 3, KeyPrefix: strings.Repeat("p", 250), Check: func(m engine.Message) error {
		if m.Type == "unknown" {
			return errors.New("no such schema")
		}
		return nil
	}})
	must(t, err)
	_, err = w.Enqueue(t.Context(), unreachable{}, engine.Message{Topic: "t", Type: "unknown"}, engine.Message{Topic: "t", Type: "a", Key: "123456"},
		engine.Message{Topic: "t", Type: "a", Payload: []byte("1234")}, engine.Message{})
	for _, want := range []string{"message 0: no such schema", "message 1: key is 256", "message 2: payload", "message 3: topic is empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if _, err := w.Enqueue(t.Context(), nil, msg("t", "")); err == nil {
		t.Error("a nil transaction is accepted")
	}
	for _, o := range []*Options{{Prefix: "a b"}, {Prefix: "sqlite_x"}, {Prefix: strings.Repeat("x", 40)}, {MaxPayload: -1}} {
		if _, err := NewWriter(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// unreachable is a transaction that must not be reached.
type unreachable struct{}

func (unreachable) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	panic("the database was asked")
}
func (unreachable) Commit() error   { panic("commit") }
func (unreachable) Rollback() error { panic("rollback") }

// TestInTx: it commits, wakes, rolls back, and hands the error through.
func TestInTx(t *testing.T) {
	d := newDatabase(t, nil)
	woken := 0
	w, err := NewWriter(&Options{Wake: func() { woken++ }})
	must(t, err)
	must(t, w.InTx(t.Context(), d.db, func(tx *Tx) error {
		_, err := w.Enqueue(t.Context(), tx, msg("t", "k"))
		return err
	}))
	boom := errors.New("boom")
	if err := w.InTx(t.Context(), d.db, func(tx *Tx) error {
		if _, err := w.Enqueue(t.Context(), tx, msg("t", "k")); err != nil {
			return err
		}
		return boom
	}); err != boom { //nolint:errorlint // the caller's error as it is
		t.Errorf("the caller's error came as %v", err)
	}
	must(t, w.InTx(t.Context(), d.db, func(*Tx) error { return nil })) // nothing is enqueued
	if n := one[int](d, `SELECT count(*) FROM {messages}`); n != 1 || woken != 1 {
		t.Errorf("%d messages, woken %d times", n, woken)
	}
}

// TestInTxSameIDs: while a reader keeps a rollback journal from being committed InTx
// tries again, with the same ids.
func TestInTxSameIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	db, err := sql.Open("sqlite", strings.Replace(noWait.Replace(DSN(path)), "(WAL)", "(DELETE)", 1))
	must(t, err)
	defer db.Close()
	_, err = Migrate(t.Context(), db, nil, nil)
	must(t, err)
	w, err := NewWriter(nil)
	must(t, err)
	reader, err := db.Conn(t.Context())
	must(t, err)
	defer reader.Close()
	exec := func(query string) {
		t.Helper()
		_, err := reader.ExecContext(t.Context(), query)
		must(t, err)
	}
	exec(`BEGIN`)
	exec(`SELECT count(*) FROM outbox_messages`)
	var tries [][]engine.ID
	must(t, w.InTx(t.Context(), db, func(tx *Tx) error {
		var ids []engine.ID
		for range 2 {
			more, err := w.Enqueue(t.Context(), tx, msg("t", "k"))
			if err != nil {
				return err
			}
			ids = append(ids, more...)
		}
		if tries = append(tries, ids); len(tries) == 3 {
			exec(`COMMIT`)
		}
		return nil
	}))
	if len(tries) != 3 || !slices.Equal(tries[0], tries[2]) || !slices.Equal(tries[0], tries[1]) {
		t.Errorf("tried with the ids %v", tries)
	}
	var n int
	must(t, db.QueryRow(`SELECT count(*) FROM outbox_messages`).Scan(&n))
	if n != 2 {
		t.Errorf("%d messages", n)
	}
}

// TestInTxHasWriteLock: from its beginning, so that what it reads still holds when it
// writes.
func TestInTxHasWriteLock(t *testing.T) {
	d := newDatabase(t, nil)
	db := d.connect(deferred, noWait)
	must(t, d.w.InTx(t.Context(), db, func(*Tx) error {
		if _, err := d.connect(noWait).ExecContext(t.Context(), d.n.sql(`UPDATE {lanes} SET worker = 'x'`)); !busy(err) {
			t.Errorf("another writes at the same time: %v", err)
		}
		return nil
	}))
}

func TestDSN(t *testing.T) {
	for _, name := range []string{"plain.db", "with blank.db", "a?b#c%20.db", "é&=.db"} {
		path := filepath.Join(t.TempDir(), name)
		db, err := sql.Open("sqlite", DSN(path))
		must(t, err)
		var file, mode string
		must(t, db.QueryRow(`SELECT file FROM pragma_database_list`).Scan(&file))
		must(t, db.QueryRow(`PRAGMA journal_mode`).Scan(&mode))
		if filepath.Base(file) != name || mode != "wal" {
			t.Errorf("%s: %s is open in mode %s", name, file, mode)
		}
		must(t, db.Close())
	}
	if got := DSN("app.db"); !strings.HasPrefix(got, "file:app.db?") {
		t.Error(got)
	}
}
