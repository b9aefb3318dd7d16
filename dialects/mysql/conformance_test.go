package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance"
	"github.com/outward-dev/outward/conformance/suite"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// TestConformance runs the public suite. Everything is archived, so that it can
// see where each message ended.
func TestConformance(t *testing.T) {
	testservers.Each(t, testservers.MySQL(), func(t *testing.T, dsn string) {
		conformance.TestStore(t, func(t *testing.T) *suite.StoreSubject { return subject(t, dsn) })
	})
}

// subject is an empty outbox for one clause.
func subject(t *testing.T, dsn string) *suite.StoreSubject {
	keep := DefaultRetention
	d := newDatabase(t, dsn, &keep)
	business := d.connect()
	var mu sync.Mutex
	var stores []*Store
	return &suite.StoreSubject{
		Open: func(suite.T) engine.Store {
			mu.Lock()
			defer mu.Unlock()
			stores = append(stores, d.open())
			return stores[len(stores)-1]
		},
		Begin: func(t suite.T) suite.Tx {
			tx, err := business.BeginTx(t.Context(), nil) // the server's own isolation, REPEATABLE READ
			if err != nil {
				t.Fatalf("begin: %v", err)
			}
			t.Cleanup(func() {
				if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("roll back: %v", err)
				}
			})
			return businessTx{tx, d, func() {
				mu.Lock()
				defer mu.Unlock()
				for _, s := range stores {
					s.Wake()
				}
			}}
		},
		Shift: func(_ suite.T, by time.Duration) { d.shift(by) },
		Look:  func(t suite.T, id engine.ID) suite.Row { return d.look(t, id) },
		Plant: func(t suite.T, topic, key string) engine.ID {
			d.plant()
			id := engine.NewID()
			d.exec(`INSERT INTO {messages} (message_id, topic, ordering_key, type, headers) VALUES (?, ?, NULLIF(?, ''), 'planted', '{"x": 1}')`, id[:], topic, key)
			return id
		},
		HoldSnapshot: func(t suite.T) func() {
			// The test's ctx is over when a cleanup releases; the snapshot must not end before.
			ctx := context.WithoutCancel(t.Context())
			tx, err := business.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			if err != nil {
				t.Fatalf("hold a snapshot: %v", err)
			}
			var n int
			if err := tx.QueryRowContext(ctx, d.n.sql(`SELECT COUNT(*) FROM {messages}`)).Scan(&n); err != nil {
				t.Fatalf("hold a snapshot: %v", err)
			}
			return func() {
				if err := tx.Rollback(); err != nil {
					t.Errorf("release a snapshot: %v", err)
				}
			}
		},
	}
}

// plant lets rows in that MySQL's CHECK refuses.
func (d *database) plant() {
	if d.spoiled {
		return
	}
	d.spoiled = true
	if !strings.Contains(one[string](d, `SELECT VERSION()`), "MariaDB") {
		d.exec("ALTER TABLE {messages} DROP CHECK `{p}messages_headers_check`")
	}
}

// businessTx is a transaction that wakes the relays when it has committed.
type businessTx struct {
	tx   *sql.Tx
	d    *database
	wake func()
}

func (tx businessTx) Enqueue(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
	return tx.d.w.Enqueue(ctx, tx.tx, msgs...)
}

func (tx businessTx) Commit(context.Context) error {
	err := tx.tx.Commit()
	tx.wake()
	return err
}

func (tx businessTx) Rollback(context.Context) error { return tx.tx.Rollback() }

func (d *database) look(t suite.T, id engine.ID) suite.Row {
	t.Helper()
	var r suite.Row
	var state int
	var due int64
	err := d.db.QueryRowContext(t.Context(), d.n.sql(`
SELECT state, attempts, crashes, resends, COALESCE(paused_for, ''), COALESCE(last_error, ''), COALESCE(last_error_class, ''),
       `+since("{now}", "available_at")+`, first_failed_at IS NOT NULL
  FROM {messages} WHERE message_id = ?`), id[:]).
		Scan(&state, &r.Attempts, &r.Crashes, &r.Resends, &r.PausedFor, &r.LastError, &r.LastClass, &due, &r.Failing)
	if err == nil {
		r.State = []suite.State{suite.Ready, suite.Waiting, suite.Held, suite.Dead}[state]
		r.Due = time.Duration(min(due, int64(100*365*24*time.Hour/time.Microsecond))) * time.Microsecond
		return r
	}
	if !errors.Is(err, sql.ErrNoRows) {
		t.Fatalf("look: %v", err)
	}
	var outcome string
	err = d.db.QueryRowContext(t.Context(), d.n.sql(`
SELECT outcome, attempts, crashes, resends, COALESCE(last_error, ''), COALESCE(last_error_class, ''), first_failed_at IS NOT NULL
  FROM {archive} WHERE message_id = ? ORDER BY settled_at DESC, seq DESC LIMIT 1`), id[:]).
		Scan(&outcome, &r.Attempts, &r.Crashes, &r.Resends, &r.LastError, &r.LastClass, &r.Failing)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		r.State = suite.Absent
	case err != nil:
		t.Fatalf("look: %v", err)
	default:
		r.State = suite.State(outcome)
	}
	return r
}
