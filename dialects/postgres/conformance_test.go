package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outward-dev/outward/conformance"
	"github.com/outward-dev/outward/conformance/suite"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// TestConformance runs the public suite. Everything is archived, so that it can
// see where each message ended.
func TestConformance(t *testing.T) {
	testservers.Each(t, testservers.Postgres(), func(t *testing.T, dsn string) {
		conformance.TestStore(t, func(t *testing.T) *suite.StoreSubject { return subject(t, dsn) })
	})
}

// subject is an empty outbox for one clause.
func subject(t *testing.T, dsn string) *suite.StoreSubject {
	keep := DefaultRetention
	db := newDatabase(t, dsn, &keep)
	return &suite.StoreSubject{
		Open: func(suite.T) engine.Store { return db.open() },
		Begin: func(t suite.T) suite.Tx {
			tx, err := db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
			if err != nil {
				t.Fatalf("begin: %v", err)
			}
			t.Cleanup(func() { rollback(context.Background(), tx) })
			return businessTx{tx, db}
		},
		Shift: func(_ suite.T, d time.Duration) { db.shift(d) },
		Look:  func(t suite.T, id engine.ID) suite.Row { return db.look(t, id) },
		Plant: func(_ suite.T, topic, key string) engine.ID {
			db.exec(`ALTER TABLE {messages} DROP CONSTRAINT IF EXISTS "{p}messages_headers_check"`)
			id := engine.NewID()
			db.exec(`INSERT INTO {messages} (message_id, topic, ordering_key, type, headers) VALUES ($1::uuid, $2::text, nullif($3::text, ''), 'planted', '["x"]')`,
				id.String(), topic, key)
			return id
		},
		HoldSnapshot: func(t suite.T) func() {
			// The test's ctx is over when a cleanup releases; the snapshot must not end before.
			ctx := context.WithoutCancel(t.Context())
			tx, err := db.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				t.Fatalf("hold a snapshot: %v", err)
			}
			if _, err := tx.Exec(ctx, db.n.sql(`SELECT count(*) FROM {messages}`)); err != nil {
				t.Fatalf("hold a snapshot: %v", err)
			}
			return func() { rollback(ctx, tx) }
		},
	}
}

// businessTx is a transaction that wakes the relays when it has committed.
type businessTx struct {
	pgx.Tx
	db *database
}

func (tx businessTx) Commit(ctx context.Context) error {
	if err := tx.Tx.Commit(ctx); err != nil {
		return err
	}
	return tx.db.w.Notify(ctx, tx.db.pool)
}

func (tx businessTx) Enqueue(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
	return tx.db.w.Enqueue(ctx, tx.Tx, msgs...)
}

func (db *database) look(t suite.T, id engine.ID) suite.Row {
	t.Helper()
	var r suite.Row
	var state int
	var due float64
	err := db.pool.QueryRow(t.Context(), db.n.sql(`
SELECT state, attempts, crashes, resends, coalesce(paused_for, ''), coalesce(last_error, ''), coalesce(last_error_class, ''),
       CASE WHEN isfinite(available_at) THEN extract(epoch FROM available_at - clock_timestamp()) ELSE 1e9 END, first_failed_at IS NOT NULL
  FROM {messages} WHERE message_id = $1::uuid`), id.String()).
		Scan(&state, &r.Attempts, &r.Crashes, &r.Resends, &r.PausedFor, &r.LastError, &r.LastClass, &due, &r.Failing)
	if err == nil {
		r.State = []suite.State{suite.Ready, suite.Waiting, suite.Held, suite.Dead}[state]
		r.Due = time.Duration(due * float64(time.Second))
		return r
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("look: %v", err)
	}
	var outcome string
	err = db.pool.QueryRow(t.Context(), db.n.sql(`
SELECT outcome, attempts, crashes, resends, coalesce(last_error, ''), coalesce(last_error_class, ''), first_failed_at IS NOT NULL
  FROM {archive} WHERE message_id = $1::uuid ORDER BY settled_at DESC, seq DESC LIMIT 1`), id.String()).
		Scan(&outcome, &r.Attempts, &r.Crashes, &r.Resends, &r.LastError, &r.LastClass, &r.Failing)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		r.State = suite.Absent
	case err != nil:
		t.Fatalf("look: %v", err)
	default:
		r.State = suite.State(outcome)
	}
	return r
}
