package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// A Writer puts messages into the caller's transactions. It holds no connection
// and may be shared.
type Writer struct {
	opts  Options
	names names
	rules writing.Rules

	insertSQL string   // any number of rows, as arrays
	valuesSQL []string // 1, 2, 4, … rows, with plain placeholders
	undoSQL   string
	keysSQL   string
	notifySQL string

	notify struct {
		sync.Mutex
		busy, again bool
	}
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
		return nil, fmt.Errorf("postgres: new writer: %w", err)
	}
	w := &Writer{opts: *opts, names: n, rules: writing.Rules{KeyPrefix: opts.KeyPrefix, MaxPayload: opts.MaxPayload, Check: opts.Check},
		insertSQL: n.sql(insertSQL), undoSQL: n.sql(undoSQL), keysSQL: keysSQL, notifySQL: n.sql(notifySQL)}
	for rows := 1; rows <= maxValues; rows *= 2 {
		w.valuesSQL = append(w.valuesSQL, n.sql(valuesSQL(rows)))
	}
	return w, nil
}

// A batch of messages goes in as arrays: one statement text for any number of them,
// so a connection prepares it once. Rows are numbered in the order of the slice.
//
// A delayed row is inserted as waiting; it has no entry and holds nothing back.
// The stamp begins at a number of this call's own. Nothing reads meaning into where
// a stamp begins, and it tells this call's rows from another's when they have to be
// taken out again.
const insertSQL = `
INSERT INTO {messages} (message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version,
       correlation_id, content_type, headers, payload, occurred_at, available_at, state, stamp)
SELECT id, topic, nullif(okey, ''), type, nullif(atype, ''), nullif(aid, ''), nullif(aversion, 0),
       nullif(correlation, ''), ctype, headers::jsonb, payload, coalesce(occurred, now()),
       CASE WHEN delay > 0 THEN clock_timestamp() + delay * interval '1 microsecond' ELSE now() END,
       CASE WHEN delay > 0 THEN 1 ELSE 0 END, $14::integer
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[],
              $10::text[], $11::bytea[], $12::timestamptz[], $13::bigint[]) WITH ORDINALITY
       AS v(id, topic, okey, type, atype, aid, aversion, correlation, ctype, headers, payload, occurred, delay, n)
 ORDER BY n
    ON CONFLICT (message_id) DO NOTHING`

// Takes out what one call has inserted before it met a duplicate.
const undoSQL = `DELETE FROM {messages} WHERE message_id = ANY ((SELECT array_agg(i::uuid) FROM jsonb_array_elements_text($1::jsonb) i)::uuid[]) AND stamp = $2::integer`

// Keys are locked in one order, whatever order the caller has them in; else two
// callers with the same two keys could wait for each other.
const keysSQL = `
WITH k AS MATERIALIZED (SELECT DISTINCT hashtextextended(k, 0) AS h FROM jsonb_array_elements_text($1::jsonb) k ORDER BY h)
SELECT pg_advisory_xact_lock(h) FROM k`

const notifySQL = `SELECT pg_notify('{channel}', '')`

// Bounds of one INSERT statement.
const (
	maxRows  = 1000
	maxBytes = 32 << 20
)

// Enqueue puts msgs into tx: they exist if and only if it commits. It returns
// their ids, in their order. Everything that can be checked without the database
// is checked before the first statement, all faults joined with their index.
//
// If a message with one of the ids is already waiting the error wraps
// engine.ErrDuplicateID, nothing of this call is enqueued, and tx stays usable.
// After any other error of the database the transaction is aborted, as PostgreSQL
// does it. A pool does not fit tx, and must not: the message would not depend on
// the business change.
func (w *Writer) Enqueue(ctx context.Context, tx pgx.Tx, msgs ...engine.Message) ([]engine.ID, error) {
	if tx == nil {
		return nil, errors.New("postgres: enqueue: the transaction is nil")
	}
	source, _ := tx.(*identTx)
	msgs, ids, err := w.rules.Prepare(source.newID, msgs)
	if err != nil || len(msgs) == 0 {
		return nil, wrapEnqueue(err)
	}
	exec := func(sql string, args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, sql, args...)
		return tag.RowsAffected(), err
	}
	if err := w.lockKeys(exec, msgs); err != nil {
		return nil, wrapEnqueue(err)
	}
	mark, inserted := newMark(), int64(0)
	for part := range chunks(msgs, maxRows) {
		args, err := arrays(part, mark)
		if err != nil {
			return nil, wrapEnqueue(err)
		}
		n, err := exec(w.insertSQL, args...)
		if err != nil {
			return nil, wrapEnqueue(err)
		}
		inserted += n
	}
	if err := w.finish(exec, ids, inserted, mark); err != nil {
		return nil, wrapEnqueue(err)
	}
	source.wrote()
	return ids, nil
}

func wrapEnqueue(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("postgres: enqueue: %w", err)
}

// An exec runs one statement in the caller's transaction and says how many rows
// it touched.
type exec func(sql string, args ...any) (int64, error)

func (w *Writer) lockKeys(exec exec, msgs []engine.Message) error {
	if !w.opts.SerializeKey {
		return nil
	}
	var keys []string
	for i := range msgs {
		if k := msgs[i].Key; k != "" {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	text, err := json.Marshal(slices.Compact(keys))
	if err != nil {
		return err
	}
	if _, err = exec(w.keysSQL, string(text)); err != nil {
		return fmt.Errorf("lock keys: %w", err)
	}
	return nil
}

// finish undoes the call if a row met its double, and signals if asked to.
func (w *Writer) finish(exec exec, ids []engine.ID, inserted int64, mark int32) error {
	if missing := writing.Missing(ids, int(inserted)); missing != nil {
		text, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		if _, err := exec(w.undoSQL, string(text), mark); err != nil {
			return errors.Join(engine.ErrDuplicateID, fmt.Errorf("take the others out again: %w", err))
		}
		return missing
	}
	if w.opts.NotifyInTx {
		if _, err := exec(w.notifySQL); err != nil {
			return fmt.Errorf("notify: %w", err)
		}
	}
	return nil
}

// newMark is a stamp to begin with that another call hardly has.
func newMark() int32 { return 1 + rand.Int32N(1<<30) }

// chunks cuts msgs into parts of at most most messages and of bounded size.
func chunks(msgs []engine.Message, most int) func(yield func([]engine.Message) bool) {
	return func(yield func([]engine.Message) bool) {
		for len(msgs) > 0 {
			n := writing.Fits(msgs, most, maxBytes)
			if !yield(msgs[:n]) {
				return
			}
			msgs = msgs[n:]
		}
	}
}

// arrays turns messages into the arguments of insertSQL. Only types that pgx can
// encode without having asked the server are used, so that every mode of pgx works.
func arrays(msgs []engine.Message, mark int32) ([]any, error) {
	var (
		ids                                                     []pgtype.UUID
		topics, keys, types, atypes, aids, corrs, ctypes, heads []string
		versions, delays                                        []int64
		payloads                                                [][]byte
		occurred                                                []pgtype.Timestamptz
	)
	for i := range msgs {
		m := &msgs[i]
		h, err := writing.Headers(m.Headers)
		if err != nil {
			return nil, err
		}
		ids = append(ids, pgtype.UUID{Bytes: m.ID, Valid: true})
		topics, keys, types = append(topics, m.Topic), append(keys, m.Key), append(types, m.Type)
		atypes, aids, versions = append(atypes, m.AggregateType), append(aids, m.AggregateID), append(versions, m.AggregateVersion)
		corrs, ctypes, heads = append(corrs, m.CorrelationID), append(ctypes, m.ContentType), append(heads, h)
		payloads = append(payloads, m.Payload)
		occurred = append(occurred, pgtype.Timestamptz{Time: m.OccurredAt.Truncate(time.Microsecond), Valid: !m.OccurredAt.IsZero()})
		delays = append(delays, writing.Microseconds(m.Delay))
	}
	return []any{ids, topics, keys, types, atypes, aids, versions, corrs, ctypes, heads, payloads, occurred, delays, mark}, nil
}

// Notify wakes the relays that listen. Call it after the commit. Calls that come
// while one is under way are answered by one more after it, so a busy process
// sends few. An error costs nothing but time: relays poll as well.
func (w *Writer) Notify(ctx context.Context, db Execer) error {
	w.notify.Lock()
	if w.notify.busy {
		w.notify.again = true
		w.notify.Unlock()
		return nil
	}
	w.notify.busy = true
	w.notify.Unlock()
	for {
		_, err := db.Exec(ctx, w.notifySQL)
		w.notify.Lock()
		if !w.notify.again || err != nil {
			w.notify.busy, w.notify.again = false, false
			w.notify.Unlock()
			if err != nil {
				return fmt.Errorf("postgres: notify: %w", err)
			}
			return nil
		}
		w.notify.again = false
		w.notify.Unlock()
	}
}
