package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// SQLTx is a transaction of database/sql or of a library over it: *sql.Tx, gorm's,
// ent's. *sql.DB does not fit. With bun pass tx.Tx: the ExecContext of bun.Tx drops
// its arguments.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// Execer runs a statement: a *pgxpool.Pool or a *pgx.Conn.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

var (
	_ SQLTx = (*sql.Tx)(nil)
	_ DB    = (*pgx.Conn)(nil)
)

// columns of one message in valuesSQL.
var valueColumns = []string{"uuid", "text", "text", "text", "text", "text", "bigint", "text", "text", "text", "bytea", "timestamptz", "bigint", "integer"}

// maxValues is the largest INSERT with plain placeholders. Statements come for
// powers of two only: a driver that prepares what it is given then keeps eight of
// them, not one for every length of a batch.
const maxValues = 128

// valuesSQL is insertSQL for drivers that know no arrays.
func valuesSQL(rows int) string {
	var b strings.Builder
	b.WriteString(`
INSERT INTO {messages} (message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version,
       correlation_id, content_type, headers, payload, occurred_at, available_at, state, stamp)
VALUES `)
	for row := range rows {
		if row > 0 {
			b.WriteString(",\n       ")
		}
		p := make([]any, len(valueColumns))
		for i, c := range valueColumns {
			p[i] = fmt.Sprintf("$%d::%s", row*len(valueColumns)+i+1, c)
		}
		fmt.Fprintf(&b, `(%[1]s, %[2]s, nullif(%[3]s, ''), %[4]s, nullif(%[5]s, ''), nullif(%[6]s, ''), nullif(%[7]s, 0), nullif(%[8]s, ''), %[9]s, (%[10]s)::jsonb, %[11]s, coalesce(%[12]s, now()), CASE WHEN %[13]s > 0 THEN clock_timestamp() + %[13]s * interval '1 microsecond' ELSE now() END, CASE WHEN %[13]s > 0 THEN 1 ELSE 0 END, %[14]s)`, p...)
	}
	b.WriteString("\n    ON CONFLICT (message_id) DO NOTHING")
	return b.String()
}

// EnqueueSQL is [Writer.Enqueue] for a transaction of database/sql, with any
// driver that takes numbered placeholders.
func (w *Writer) EnqueueSQL(ctx context.Context, tx SQLTx, msgs ...engine.Message) ([]engine.ID, error) {
	if tx == nil {
		return nil, errors.New("postgres: enqueue: the transaction is nil")
	}
	msgs, ids, err := w.rules.Prepare(engine.NewID, msgs)
	if err != nil || len(msgs) == 0 {
		return nil, wrapEnqueue(err)
	}
	exec := func(query string, args ...any) (int64, error) {
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}
	if err := w.lockKeys(exec, msgs); err != nil {
		return nil, wrapEnqueue(err)
	}
	mark, inserted := newMark(), int64(0)
	for part := range chunks(msgs, maxValues) {
		for len(part) > 0 {
			power := bits.Len(uint(len(part))) - 1
			args, err := values(part[:1<<power], mark)
			if err != nil {
				return nil, wrapEnqueue(err)
			}
			n, err := exec(w.valuesSQL[power], args...)
			if err != nil {
				return nil, wrapEnqueue(err)
			}
			inserted += n
			part = part[1<<power:]
		}
	}
	if err := w.finish(exec, ids, inserted, mark); err != nil {
		return nil, wrapEnqueue(err)
	}
	return ids, nil
}

func values(msgs []engine.Message, mark int32) ([]any, error) {
	args := make([]any, 0, len(msgs)*len(valueColumns))
	for i := range msgs {
		m := &msgs[i]
		h, err := writing.Headers(m.Headers)
		if err != nil {
			return nil, err
		}
		var payload, occurred any
		if m.Payload != nil {
			payload = m.Payload
		}
		if !m.OccurredAt.IsZero() {
			occurred = m.OccurredAt.Truncate(time.Microsecond)
		}
		args = append(args, m.ID.String(), m.Topic, m.Key, m.Type, m.AggregateType, m.AggregateID, m.AggregateVersion,
			m.CorrelationID, m.ContentType, h, payload, occurred, writing.Microseconds(m.Delay), mark)
	}
	return args, nil
}
