package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/engine"
)

const (
	// Always said, never left to the DSN: a transaction that reads before it takes the
	// write lock can't take it any more once another has written (SQLITE_BUSY_SNAPSHOT).
	beginSQL    = `BEGIN IMMEDIATE`
	commitSQL   = `COMMIT`
	rollbackSQL = `ROLLBACK`
)

const (
	// patience bounds how long a transaction is tried again while others have the
	// write lock; ctx may end it before. It is long, for SQLite is not fair: while some
	// hammer at a file another can miss every moment at which the lock is free, and
	// spend a whole busy_timeout on nothing.
	patience = 30 * time.Second
	// The least and the most that it pauses in between, so that those who collided do
	// not come back in step.
	minPause = time.Millisecond
	maxPause = 50 * time.Millisecond
	// endTimeout bounds what is done after the caller's ctx may have ended.
	endTimeout = 2 * time.Second
)

// tx is a write transaction of the Store's own.
type tx struct {
	ctx  context.Context
	conn *sql.Conn
	hook func(name string) error // of tests; may be nil
}

// write runs f in a transaction that has the write lock from its beginning, and
// commits it. f is run again, from nothing, while the database is busy.
func (s *Store) write(ctx context.Context, f func(t *tx) error) error {
	return write(ctx, s.db, s.hook, f)
}

func write(ctx context.Context, db *sql.DB, hook func(string) error, f func(t *tx) error) error {
	return retried(ctx, func() error { return writeOnce(ctx, db, hook, f) })
}

func writeOnce(ctx context.Context, db *sql.DB, hook func(string) error, f func(t *tx) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it only goes back to the pool
	// Waiting for the lock ends with ctx. After that ctx is asked between statements,
	// and no statement is interrupted: an interrupted write undoes the transaction
	// behind our back, and an interrupted COMMIT leaves its outcome open.
	t := &tx{ctx: ctx, conn: conn, hook: hook}
	if err := t.called("begin"); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, beginSQL); err != nil {
		return errors.Join(err, ignoreNoTransaction(t.rollback()))
	}
	defer func() {
		if p := recover(); p != nil {
			_ = t.rollback() // the panic goes on
			panic(p)
		}
	}()
	if err = f(t); err == nil {
		err = t.commit()
	}
	if err != nil {
		if rerr := ignoreNoTransaction(t.rollback()); rerr != nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
		}
	}
	return err
}

// commit commits. An error that does not say that the transaction still stands
// leaves the outcome unknown: a failed sync, say, may have put it on the disk.
func (t *tx) commit() error {
	if err := t.called("commit"); err != nil {
		return err
	}
	_, err := t.conn.ExecContext(context.WithoutCancel(t.ctx), commitSQL)
	if err == nil && t.hook != nil {
		err = t.hook("committed") // a test that loses the answer
	}
	if err != nil && !stands(err) {
		return fmt.Errorf("%w: %w", engine.ErrCommitUnknown, err)
	}
	return err
}

// rollback ends the transaction. A connection that can't is thrown away, which
// rolls back as well.
func (t *tx) rollback() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), endTimeout)
	defer cancel()
	_, err := t.conn.ExecContext(ctx, rollbackSQL)
	if ignoreNoTransaction(err) != nil {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn }) // it says what it was told
	}
	return err
}

// ignoreNoTransaction drops the error of a ROLLBACK that had nothing to roll back:
// after some errors SQLite has done so by itself.
func ignoreNoTransaction(err error) error {
	if code(err) == sqlite3.SQLITE_ERROR {
		return nil
	}
	return err
}

// called tells the hook of a test that a statement comes, and ends the transaction
// if ctx has ended.
func (t *tx) called(name string) error {
	if t.hook != nil {
		if err := t.hook(name); err != nil {
			return err
		}
	}
	return t.ctx.Err()
}

// exec runs a statement and says how many rows it changed.
func (t *tx) exec(name, query string, args ...any) (int, error) {
	if err := t.called(name); err != nil {
		return 0, err
	}
	res, err := t.conn.ExecContext(context.WithoutCancel(t.ctx), query, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// query runs a statement and calls scan for each row of its result.
func (t *tx) query(name, query string, scan func(rows *sql.Rows) error, args ...any) error {
	if err := t.called(name); err != nil {
		return err
	}
	return sqlrows.Query(context.WithoutCancel(t.ctx), t.conn, name, query, scan, args...)
}

// one reads a result of one row.
func (t *tx) one(name, query string, args []any, dest ...any) error {
	return t.query(name, query, func(rows *sql.Rows) error { return rows.Scan(dest...) }, args...)
}

// list is an argument for json_each.
func list[T any](values []T) string {
	if len(values) == 0 {
		return "[]"
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // numbers, strings and slices of them can always be written
	}
	return string(text)
}

// retried calls f again, with pauses, while the database is busy.
func retried(ctx context.Context, f func() error) error {
	start := time.Now()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := f()
		if err == nil || !busy(err) || errors.Is(err, engine.ErrCommitUnknown) || ctx.Err() != nil || time.Since(start) > patience {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// code is the extended result code of an error of SQLite; 0 if it is none.
func code(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code()
}

// busy reports whether somebody else was in the way: SQLITE_BUSY in all its kinds
// (another writer, a snapshot that is too old, a recovery under way), or a table
// locked by another connection of a shared cache.
func busy(err error) bool {
	primary := code(err) & 0xff
	return primary == sqlite3.SQLITE_BUSY || primary == sqlite3.SQLITE_LOCKED
}

// stands reports whether an error of COMMIT proves that nothing was committed.
func stands(err error) bool {
	return busy(err) || code(err)&0xff == sqlite3.SQLITE_CONSTRAINT // a deferred foreign key of the caller's
}
