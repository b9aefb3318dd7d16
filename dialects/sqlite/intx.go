package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// lockSQL takes the write lock: SQLite takes it at the beginning of a statement
// that may write, whether it finds rows or not. With nothing read before it is what
// BEGIN IMMEDIATE does, which database/sql can't say.
const lockSQL = `UPDATE {lanes} SET used = used WHERE lane < 0`

// A Tx is the transaction that [Writer.InTx] hands out: a *sql.Tx, to be given to
// [Writer.Enqueue] as it is. Libraries that want a *sql.Tx get tx.Tx. InTx commits
// it, fn does not.
type Tx struct {
	*sql.Tx
	ids *writing.IDs
}

// InTx runs fn in a transaction that has the write lock from its beginning, and
// commits it; if fn fails it rolls back and returns fn's error. While the database
// is busy it tries again, for some seconds; messages enqueued without an id then
// get the same ids as before, in the order of the calls. fn must call
// [Writer.Enqueue] with the transaction that it is given, from one goroutine, and
// must not use db otherwise: it would wait for itself.
//
// An unknown outcome of COMMIT, which takes a failing disk, is never tried again,
// because that might do the business change twice: the error then wraps
// engine.ErrCommitUnknown, and only looking can tell. After a commit that enqueued
// something Options.Wake is called.
func (w *Writer) InTx(ctx context.Context, db *sql.DB, fn func(tx *Tx) error) error {
	wrote := false
	err := inTx(ctx, db, w.lockSQL, func(tx *Tx) error {
		err := fn(tx)
		wrote = tx.ids.DidWrite()
		return err
	})
	if err == nil && wrote {
		w.Wake()
	}
	return err
}

// inTx runs fn in a transaction that begins with the write lock, again while the
// database is busy, with the same ids.
func inTx(ctx context.Context, db *sql.DB, lock string, fn func(tx *Tx) error) error {
	var ids *writing.IDs
	var own *callersError
	err := retried(ctx, func() error {
		ids = ids.Again()
		return inTxOnce(ctx, db, lock, func(tx *sql.Tx) error { return fn(&Tx{Tx: tx, ids: ids}) })
	})
	if errors.As(err, &own) {
		return own.err
	}
	return err
}

// A callersError is fn's. It is no reason to try again, not even if it says that
// something is busy: with the write lock in hand that is something else.
type callersError struct{ err error }

func (e *callersError) Error() string { return e.err.Error() }

// inTxOnce runs fn in one transaction that begins with the write lock.
func inTxOnce(ctx context.Context, db *sql.DB, lock string, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if _, err := tx.ExecContext(ctx, lock); err != nil {
		return fmt.Errorf("sqlite: begin: %w", err)
	}
	if err := fn(tx); err != nil {
		return &callersError{err}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlite: commit not sent: %w", err)
	}
	err = tx.Commit()
	switch {
	case err == nil:
		return nil
	case stands(err), errors.Is(err, sql.ErrTxDone), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("sqlite: commit: %w", err)
	default:
		return fmt.Errorf("sqlite: %w: %w", engine.ErrCommitUnknown, err)
	}
}

// newID works on a nil transaction too: one that InTx did not make.
func (tx *Tx) newID() engine.ID {
	if tx == nil {
		return engine.NewID()
	}
	return tx.ids.New()
}

func (tx *Tx) wrote() {
	if tx != nil {
		tx.ids.Wrote()
	}
}
