package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// A Tx is the transaction that [Writer.InTx] hands out: a *sql.Tx, to be given to
// [Writer.Enqueue] as it is. Libraries that want a *sql.Tx get tx.Tx. InTx commits
// it, fn does not.
type Tx struct {
	*sql.Tx
	ids *writing.IDs
}

// InTx runs fn in a READ COMMITTED transaction and commits it. See
// [Writer.InTxOptions].
func (w *Writer) InTx(ctx context.Context, db *sql.DB, fn func(tx *Tx) error) error {
	return w.InTxOptions(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, fn)
}

// InTxOptions runs fn in a transaction begun with opts and commits it; if fn fails
// it rolls back and returns fn's error. After a deadlock, a lock wait that timed out
// or a failed serialisation it runs fn again, for some seconds; messages enqueued
// without an id then get the same ids as before, in the order of the calls. fn must
// call [Writer.Enqueue] with the transaction that it is given, from one goroutine.
//
// An unknown outcome of COMMIT is never tried again, because that might do the
// business change twice: the error then wraps engine.ErrCommitUnknown, and only
// looking can tell. After a commit that enqueued something Options.Wake is called.
func (w *Writer) InTxOptions(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(tx *Tx) error) error {
	ids, err := inTx(ctx, db, opts, fn)
	if err == nil && ids.DidWrite() {
		w.Wake()
	}
	return err
}

func inTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, fn func(tx *Tx) error) (ids *writing.IDs, err error) {
	err = retried(ctx, func() error {
		ids = ids.Again()
		return inTxOnce(ctx, db, opts, ids, fn)
	})
	return ids, err
}

func inTxOnce(ctx context.Context, db *sql.DB, opts *sql.TxOptions, ids *writing.IDs, fn func(tx *Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return fmt.Errorf("mysql: begin: %w", err)
	}
	// Always, also after a lock wait that timed out: the server has then undone one
	// statement only, and a COMMIT would keep the rest.
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := fn(&Tx{Tx: tx, ids: ids}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mysql: commit not sent: %w", err)
	}
	err = tx.Commit()
	switch {
	case err == nil:
		return nil
	case again(err), errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("mysql: commit: %w", err)
	default:
		return fmt.Errorf("mysql: %w: %w", engine.ErrCommitUnknown, err)
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
