package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// TxBeginner begins transactions: a *pgxpool.Pool or a *pgx.Conn.
type TxBeginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// How often and how fast InTx tries again.
const (
	inTxTries   = 10
	inTxBackoff = 5 * time.Millisecond
)

// InTx runs fn in a READ COMMITTED transaction and commits it. See
// [Writer.InTxOptions].
func (w *Writer) InTx(ctx context.Context, db TxBeginner, fn func(tx pgx.Tx) error) error {
	return w.InTxOptions(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, fn)
}

// InTxOptions runs fn in a transaction begun with opts and commits it; if fn fails
// it rolls back and returns fn's error. After a serialization failure or a deadlock
// it runs fn again, up to ten times; messages enqueued without an id then get the
// same ids as before, in the order of the calls. fn must call [Writer.Enqueue] with
// the transaction that it is given, from one goroutine.
//
// An unknown outcome of COMMIT is never tried again, because that might do the
// business change twice: the error then wraps engine.ErrCommitUnknown, and only
// looking can tell. After a commit that enqueued something Options.Wake is called.
func (w *Writer) InTxOptions(ctx context.Context, db TxBeginner, opts pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	var ids *writing.IDs
	for try := 1; ; try++ {
		ids = ids.Again()
		err := w.inTxOnce(ctx, db, opts, ids, fn)
		if err == nil {
			if ids.DidWrite() && w.opts.Wake != nil {
				w.opts.Wake()
			}
			return nil
		}
		if try == inTxTries || errors.Is(err, engine.ErrCommitUnknown) || !serialization(err) {
			return err
		}
		// Those that collided must not come back in step.
		select {
		case <-time.After(rand.N(time.Duration(try) * inTxBackoff)):
		case <-ctx.Done():
			return err
		}
	}
}

func (w *Writer) inTxOnce(ctx context.Context, db TxBeginner, opts pgx.TxOptions, ids *writing.IDs, fn func(tx pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return fmt.Errorf("postgres: begin: %w", err)
	}
	defer rollback(ctx, tx)
	if err := fn(&identTx{Tx: tx, ids: ids}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("postgres: commit not sent: %w", err)
	}
	err = tx.Commit(ctx)
	switch {
	case err == nil:
		return nil
	case rolledBack(err):
		return fmt.Errorf("postgres: commit: %w", err)
	default:
		return fmt.Errorf("postgres: %w: %w", engine.ErrCommitUnknown, err)
	}
}

// serialization reports whether the database asks for the transaction to be run
// again: a serialization failure, or a deadlock that this one was chosen to end.
func serialization(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

// rolledBack reports whether an error of COMMIT proves that nothing was
// committed. A FATAL one doesn't: a session that is being shut down may have
// written its commit record before.
func rolledBack(err error) bool {
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed):
		return true
	case errors.As(err, &pgErr):
		return severity(pgErr) == "ERROR"
	default:
		return pgconn.SafeToRetry(err) // not a byte of it was sent
	}
}

func severity(err *pgconn.PgError) string {
	if err.SeverityUnlocalized != "" {
		return err.SeverityUnlocalized
	}
	return err.Severity
}

// identTx is the transaction that InTx hands out. It carries the source of ids to
// Enqueue, also through nested transactions.
type identTx struct {
	pgx.Tx
	ids *writing.IDs
}

// Begin implements [pgx.Tx].
func (tx *identTx) Begin(ctx context.Context) (pgx.Tx, error) {
	nested, err := tx.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &identTx{Tx: nested, ids: tx.ids}, nil
}

// newID works on a nil transaction too: one that InTx did not make.
func (tx *identTx) newID() engine.ID {
	if tx == nil {
		return engine.NewID()
	}
	return tx.ids.New()
}

func (tx *identTx) wrote() {
	if tx != nil {
		tx.ids.Wrote()
	}
}
