package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// SQLTx is a transaction of database/sql or of a library over it: *sql.Tx, gorm's,
// ent's, and what [Writer.InTx] hands out. *sql.DB does not fit. With bun pass
// tx.Tx: the ExecContext of bun.Tx drops its arguments.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

var _ SQLTx = (*sql.Tx)(nil)

// A Writer puts messages into the caller's transactions. It holds no connection
// and may be shared.
type Writer struct {
	opts      Options
	names     names
	rules     writing.Rules
	insertSQL []string // 1, 2, 4, … rows
	savepoint atomic.Uint64
}

// NewWriter returns a Writer for the table that opts name. It does no I/O.
func NewWriter(opts *Options) (*Writer, error) {
	n, err := opts.names()
	if opts == nil {
		opts = &Options{}
	}
	if opts.MaxPayload < 0 {
		err = errors.Join(err, fmt.Errorf("max payload is negative (%d)", opts.MaxPayload))
	}
	if err != nil {
		return nil, fmt.Errorf("mysql: new writer: %w", err)
	}
	w := &Writer{opts: *opts, names: n, rules: writing.Rules{KeyPrefix: opts.KeyPrefix, MaxPayload: opts.MaxPayload, Check: opts.Check}}
	for rows := 1; rows <= maxRows; rows *= 2 {
		w.insertSQL = append(w.insertSQL, n.sql(insertSQL(rows)))
	}
	return w, nil
}

// Bounds of one INSERT statement. Statements come for powers of two only: a library
// that keeps what it has prepared then keeps seven of them, not one for every length
// of a batch. Its bytes stay well below the smallest default of max_allowed_packet.
const (
	maxRows  = 64
	maxBytes = 4 << 20
)

// insertRow is one message of an INSERT. A delayed row is inserted as waiting; it has
// no entry and holds nothing back. Times are microseconds: a time.Time would be
// written in whatever zone the driver was opened with.
const insertRow = `(?, ?, NULLIF(?, ''), ?, NULLIF(?, ''), NULLIF(?, ''), NULLIF(?, 0), NULLIF(?, ''), ?, ?, ?, ` +
	`COALESCE(` + at + `, {now}), {now} + INTERVAL ? MICROSECOND, ?)`

const insertColumns = 14

// insertSQL is the INSERT of so many messages, numbered in their order.
func insertSQL(rows int) string {
	return `
INSERT INTO {messages} (message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version,
       correlation_id, content_type, headers, payload, occurred_at, available_at, state)
VALUES ` + insertRow + strings.Repeat(",\n       "+insertRow, rows-1)
}

// Enqueue puts msgs into tx: they exist if and only if it commits. It returns
// their ids, in their order. Everything that can be checked without the database
// is checked before the first statement, all faults joined with their index.
//
// If a message with one of the ids is already waiting the error wraps
// engine.ErrDuplicateID, nothing of this call is enqueued, and tx stays usable. A
// *sql.DB does not fit tx, and must not: the message would not depend on the
// business change.
func (w *Writer) Enqueue(ctx context.Context, tx SQLTx, msgs ...engine.Message) ([]engine.ID, error) {
	if tx == nil {
		return nil, errors.New("mysql: enqueue: the transaction is nil")
	}
	source, _ := tx.(*Tx)
	msgs, ids, err := w.rules.Prepare(source.newID, msgs)
	if err != nil || len(msgs) == 0 {
		return nil, wrapEnqueue(err)
	}
	if err := w.insert(ctx, tx, msgs, ids); err != nil {
		return nil, wrapEnqueue(err)
	}
	source.wrote()
	return ids, nil
}

func wrapEnqueue(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mysql: enqueue: %w", err)
}

// insert puts in all of msgs or nothing. A statement that meets a double undoes itself;
// those before it need a savepoint.
func (w *Writer) insert(ctx context.Context, tx SQLTx, msgs []engine.Message, ids []engine.ID) error {
	first := insertable(msgs)
	if first == len(msgs) {
		return duplicate(w.insertRows(ctx, tx, msgs), ids)
	}
	name := fmt.Sprintf("outward_%d", w.savepoint.Add(1))
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	var err error
	for rest := msgs; len(rest) > 0 && err == nil; {
		part := rest[:insertable(rest)]
		rest = rest[len(part):]
		err = duplicate(w.insertRows(ctx, tx, part), ids)
	}
	end := context.WithoutCancel(ctx) // a savepoint must not be left behind
	if err != nil {
		if _, rerr := tx.ExecContext(end, "ROLLBACK TO SAVEPOINT "+name); rerr != nil {
			return errors.Join(err, fmt.Errorf("take the others out again: %w", rerr))
		}
	}
	if _, rerr := tx.ExecContext(end, "RELEASE SAVEPOINT "+name); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

// duplicate makes of the server's error what it means.
func duplicate(err error, ids []engine.ID) error {
	switch {
	case number(err) != errDuplicate:
		return err
	case len(ids) == 1:
		return writing.Missing(ids, 0)
	default:
		return fmt.Errorf("one or more of %d messages: %w", len(ids), engine.ErrDuplicateID)
	}
}

// insertable is how many of msgs, a power of two, go into one statement.
func insertable(msgs []engine.Message) int {
	return 1 << (bits.Len(uint(writing.Fits(msgs, maxRows, maxBytes))) - 1)
}

func (w *Writer) insertRows(ctx context.Context, tx SQLTx, msgs []engine.Message) error {
	args := make([]any, 0, len(msgs)*insertColumns)
	for i := range msgs {
		m := &msgs[i]
		headers, err := writing.Headers(m.Headers)
		if err != nil {
			return err
		}
		var payload, occurred any
		if m.Payload != nil {
			payload = m.Payload
		}
		if !m.OccurredAt.IsZero() {
			occurred = m.OccurredAt.UnixMicro()
		}
		args = append(args, m.ID[:], m.Topic, m.Key, m.Type, m.AggregateType, m.AggregateID, m.AggregateVersion,
			m.CorrelationID, m.ContentType, headers, payload, occurred, writing.Microseconds(m.Delay), bit(m.Delay > 0))
	}
	_, err := tx.ExecContext(ctx, w.insertSQL[bits.Len(uint(len(msgs)))-1], args...)
	return err
}

// Wake tells Options.Wake that something was committed. Call it after a COMMIT that
// [Writer.InTx] did not do, if the relay runs in this process.
func (w *Writer) Wake() {
	if w.opts.Wake != nil {
		w.opts.Wake()
	}
}
