package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A statement is one of a transaction's. Those that don't depend on each other's
// results go out together in one round trip, the lock and the COMMIT among them.
type statement struct {
	name string
	sql  string
	args []any
	rows func(rows pgx.Rows) error   // reads the result, if there is something to read
	tag  func(tag pgconn.CommandTag) // or only how many rows it touched
}

const (
	// Always said, never left to the session's default: under REPEATABLE READ every
	// statement after the lock would decide by what stood before it.
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	commitSQL = `COMMIT`
	// Set for the transaction only, so a pooler may hand the session to others. A
	// process that is stopped in the middle would else hold its lanes for ever, for
	// SKIP LOCKED passes over what is locked however long its lease is over.
	//
	// (That limit does not run while half of a batch has arrived; from PostgreSQL 17 on
	// the last one does.)
	//
	// A connection keeps its plans, and a plan made while the table was empty is used
	// until the next ANALYZE. So these transactions can't be planned with a walk over
	// a whole table; every statement has an index to go by. JIT would only ever start
	// because of the price that PostgreSQL puts on what is switched off.
	limitsSQL = `SELECT set_config('idle_in_transaction_session_timeout', $1::text, true), set_config('lock_timeout', $2::text, true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN set_config('transaction_timeout', $3::text, true) END`
)

const (
	// endTimeout bounds what is done after the caller's ctx may have ended: rolling
	// back, freeing the lanes of a claim nobody knows of.
	endTimeout = 2 * time.Second
	// minIdle is the least limit on a transaction that sits idle between its two round
	// trips: a short lease must not end one whose client is merely slow.
	minIdle = 5 * time.Second
	// lockTimeout bounds the wait for a lane row, also when the client has gone.
	lockTimeout = 5 * time.Second
	// transactionTimeout bounds a transaction as a whole, where the server can; its
	// longest work is a chunk.
	transactionTimeout = time.Minute
	// tries of a transaction that the database wants to be run again.
	tries = 5
)

func begin() statement  { return statement{name: "begin", sql: beginSQL} }
func commit() statement { return statement{name: "commit", sql: commitSQL} }
func limits(idle time.Duration) statement {
	ms := func(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }
	return statement{name: "limits", sql: limitsSQL, args: []any{ms(max(idle, minIdle)), ms(lockTimeout), ms(idle + transactionTimeout)}}
}

// transaction wraps statements into a transaction that goes out in one round trip.
func transaction(idle time.Duration, body ...statement) []statement {
	return append(append([]statement{begin(), limits(idle)}, body...), commit())
}

// send runs statements on conn in one round trip. It stops at the first error.
func (s *Store) send(ctx context.Context, conn *pgx.Conn, statements ...statement) error {
	if s.hook != nil {
		return s.sendSingly(ctx, conn, statements)
	}
	batch := &pgx.Batch{}
	for _, st := range statements {
		q := batch.Queue(st.sql, st.args...)
		switch {
		case st.rows != nil:
			q.Query(st.rows)
		case st.tag != nil:
			q.Exec(func(tag pgconn.CommandTag) error { st.tag(tag); return nil })
		}
	}
	return conn.SendBatch(ctx, batch).Close()
}

func (s *Store) sendSingly(ctx context.Context, conn *pgx.Conn, statements []statement) error {
	for _, st := range statements {
		if err := s.hook(st.name); err != nil {
			return err
		}
		if st.rows == nil {
			tag, err := conn.Exec(ctx, st.sql, st.args...)
			if err != nil {
				return err
			}
			if st.tag != nil {
				st.tag(tag)
			}
			continue
		}
		rows, err := conn.Query(ctx, st.sql, st.args...)
		if err == nil {
			err = st.rows(rows)
			rows.Close()
			err = errors.Join(err, rows.Err())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// with gives f a connection for as long as it runs. A transaction that f leaves
// open is rolled back; if that fails the pool throws the connection away.
func (s *Store) with(ctx context.Context, f func(conn *pgx.Conn) error) error {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	if err = f(c.Conn()); err == nil {
		return nil
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "25006" {
		// Read-only: after a fail-over this server is a replica now. With a connection
		// kept the pool would go on talking to it (go-sql-driver/mysql#604).
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		return errors.Join(err, c.Conn().Close(ctx))
	}
	if pg := c.Conn().PgConn(); !pg.IsClosed() && pg.TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if _, rerr := c.Conn().Exec(ctx, `ROLLBACK`); rerr != nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", rerr))
		}
	}
	return err
}

// run does one transaction in one round trip, again if the database asks for it.
func (s *Store) run(ctx context.Context, statements func() []statement) error {
	return retried(ctx, func() error {
		return s.with(ctx, func(conn *pgx.Conn) error { return s.send(ctx, conn, statements()...) })
	})
}

// retried calls f again after a serialization failure, a deadlock or a lock that
// was not to be had. f must do a whole transaction, from nothing.
func retried(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == tries || ctx.Err() != nil || !again(err) {
			return err
		}
	}
}

func again(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	switch pgErr.Code {
	case "40001", "40P01", "55P03":
		return true
	}
	return false
}

// answered reports whether an error is the server's own word that the transaction
// was rolled back. After any other one its outcome is unknown.
func answered(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && severity(pgErr) == "ERROR" || pgconn.SafeToRetry(err)
}
