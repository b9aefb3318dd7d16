package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/engine"
)

// commandChunk is how many messages an operator's command changes in one
// transaction. Each chunk is one row of the audit.
const commandChunk = 500

// conditions is a filter as SQL.
type conditions struct {
	parts []string
	args  []any
}

// add adds a condition in which ? stands for the argument.
func (c *conditions) add(condition string, arg any) {
	c.args = append(c.args, arg)
	c.parts = append(c.parts, strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", len(c.args))))
}

func (c *conditions) String() string { return strings.Join(c.parts, " AND ") }

// filter adds f's conditions on the table m. at is the column of From and To.
func (c *conditions) filter(f engine.Filter, at string) {
	if len(f.IDs) > 0 {
		ids := make([]pgtype.UUID, len(f.IDs))
		for i, id := range f.IDs {
			ids[i] = uuidOf(id)
		}
		c.add("m.message_id = ANY (?::uuid[])", ids)
	}
	for _, text := range []struct{ column, value string }{
		{"topic", f.Topic}, {"ordering_key", f.Key}, {"type", f.Type}, {"last_error_class", f.ErrorClass},
	} {
		if text.value != "" {
			c.add("m."+text.column+" = ?::text", text.value)
		}
	}
	if !f.From.IsZero() {
		c.add("m."+at+" >= ?::timestamptz", f.From)
	}
	if !f.To.IsZero() {
		c.add("m."+at+" < ?::timestamptz", f.To)
	}
}

// Dead implements [engine.Operator].
func (s *Store) Dead(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		last, left := int64(0), f.Limit
		for {
			page, err := s.deadPage(ctx, f, last, left)
			if err != nil {
				yield(engine.Record{}, fmt.Errorf("postgres: dead: %w", err))
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				last = r.Seq
			}
			if f.Limit > 0 {
				if left -= len(page); left <= 0 {
					return
				}
			}
			if len(page) < commandChunk {
				return
			}
		}
	}
}

func atMost(left int) int {
	if left <= 0 || left > commandChunk {
		return commandChunk
	}
	return left
}

func (s *Store) deadPage(ctx context.Context, f engine.Filter, after int64, left int) ([]engine.Record, error) {
	c := &conditions{}
	c.filter(f, "created_at")
	c.add("m.seq > ?::bigint", after)
	rows, err := s.pool.Query(ctx, s.names.sql(`
SELECT m.seq, m.message_id, m.topic, coalesce(m.ordering_key, ''), m.type, coalesce(m.aggregate_type, ''), coalesce(m.aggregate_id, ''),
       coalesce(m.aggregate_version, 0), coalesce(m.correlation_id, ''), m.content_type, m.headers::text, m.payload, m.payload_text,
       CASE WHEN `+ordinary("m.occurred_at")+` THEN m.occurred_at END, CASE WHEN `+ordinary("m.created_at")+` THEN m.created_at END,
       m.dead_at, m.attempts, m.crashes, m.resends, coalesce(m.last_error, ''), coalesce(m.last_error_class, ''),
       EXISTS (SELECT FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq = m.seq)
  FROM {messages} m
 WHERE m.state = 3 AND `+c.String()+`
 ORDER BY m.seq NULLS FIRST LIMIT `+fmt.Sprint(atMost(left))), c.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var page []engine.Record
	for rows.Next() {
		var r engine.Record
		var id pgtype.UUID
		var headers, text *string
		var payload []byte
		var occurred, created, died *time.Time
		if err := rows.Scan(&r.Seq, &id, &r.Topic, &r.Key, &r.Type, &r.AggregateType, &r.AggregateID, &r.AggregateVersion,
			&r.CorrelationID, &r.ContentType, &headers, &payload, &text, &occurred, &created, &died,
			&r.Attempts, &r.Crashes, &r.Resends, &r.LastError, &r.LastErrorClass, &r.HoldsKey); err != nil {
			return nil, err
		}
		r.ID = id.Bytes
		// What is wrong with a row that can't be decoded stands in LastError.
		_ = reading.Decode(&r.Message, reading.Body{Headers: headers, Payload: payload, Text: text, Occurred: occurred})
		if created != nil {
			r.CreatedAt = created.UTC()
		}
		if died != nil {
			r.DeadAt = died.UTC()
		}
		page = append(page, r)
	}
	return page, rows.Err()
}

// auditSQL records one chunk of a command, from the ids in the CTE done.
func auditSQL(action string) string {
	return `
audited AS (
  INSERT INTO {audit} (actor, by_relay, action, reason, affected, message_ids)
  SELECT $2::text, $3::boolean, '` + action + `', $4::text, count(*), array_agg(message_id) FROM done HAVING count(*) > 0)`
}

// requeueSQL makes dead rows ready. The stamp changes and is never set back, so that
// an old verdict that is repeated finds another one. The entry stays: the row is its
// key's head, and goes before what waits behind it.
var requeueSQL = `
WITH done AS (
  UPDATE {messages} m
     SET state = 0, attempts = 0, crashes = 0, company = 0, resends = m.resends + 1, stamp = m.stamp + 1, available_at = clock_timestamp(),
         first_failed_at = NULL, dead_at = NULL, paused_for = NULL, lease_token = NULL
   WHERE m.seq = ANY ($1::bigint[]) AND ` + stateIs(3) + `
  RETURNING m.message_id),` + auditSQL("requeue") + `
SELECT count(*) FROM done`

// discardSQL moves dead rows to the archive, always, and lets go on what they held
// back.
var discardSQL = `
WITH done AS (DELETE FROM {messages} m WHERE m.seq = ANY ($1::bigint[]) AND ` + stateIs(3) + ` RETURNING m.*),
kept AS (SELECT coalesce((SELECT s.archive = 'full' FROM {schema_} s), true) AS content),
filed AS (
  INSERT INTO {archive} (` + archived + `,
         headers, payload, payload_text, content, outcome, settled_by, reason)
  SELECT ` + archived + `,
         CASE WHEN content THEN headers END, CASE WHEN content THEN payload END, CASE WHEN content THEN payload_text END, content,
         'discarded', $2::text, $4::text FROM done, kept),` + entries("done") + release + `,` + auditSQL("discard") + `
SELECT count(*) FROM done`

// Requeue implements [engine.Operator].
func (s *Store) Requeue(ctx context.Context, f engine.Filter, by engine.Actor) (int, error) {
	return s.commandDead(ctx, "requeue", s.q.requeue, f, by)
}

// Discard implements [engine.Operator].
func (s *Store) Discard(ctx context.Context, f engine.Filter, by engine.Actor) (int, error) {
	return s.commandDead(ctx, "discard", s.q.discard, f, by)
}

// commandDead does a command to the dead messages that match, chunk by chunk, each
// under the locks of their lanes. After an error n says what was done.
func (s *Store) commandDead(ctx context.Context, name, sql string, f engine.Filter, by engine.Actor) (n int, err error) {
	last, left := int64(0), f.Limit
	for {
		c := &conditions{}
		c.filter(f, "created_at")
		c.add("m.seq > ?::bigint", last)
		seqs, ls, err := s.matching(ctx, s.names.sql(`SELECT m.seq, m.lane FROM {messages} m WHERE m.state = 3 AND `+c.String()+
			` ORDER BY m.seq NULLS FIRST LIMIT `+fmt.Sprint(atMost(left))), c.args)
		if err != nil {
			return n, fmt.Errorf("postgres: %s: %w", name, err)
		}
		if len(seqs) == 0 {
			return n, nil
		}
		var done int
		err = s.run(ctx, func() []statement {
			return transaction(lockTimeout, s.lockStatement(ls, nil),
				statement{name: name, sql: sql, args: []any{seqs, reading.Storable(by.Name), by.Relay, reading.Storable(by.Reason)}, rows: count(&done)})
		})
		if err != nil {
			return n, fmt.Errorf("postgres: %s: %w", name, err)
		}
		n, last = n+done, seqs[len(seqs)-1]
		if f.Limit > 0 {
			if left -= done; left <= 0 {
				return n, nil
			}
		}
	}
}

func (s *Store) matching(ctx context.Context, sql string, args []any) (seqs []int64, ls []int16, err error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var lane int16
		if err := rows.Scan(&seq, &lane); err != nil {
			return nil, nil, err
		}
		seqs, ls = append(seqs, seq), append(ls, lane)
	}
	return seqs, ls, rows.Err()
}

// replaySQL enqueues archived messages again, those last settled last, so that they
// come in the order in which they went. Of a message that was settled several times
// only the last settling counts. One that is waiting already stays as it is.
const replaySQL = `
WITH a AS MATERIALIZED (
  SELECT m.* FROM {archive} m
   WHERE (m.settled_at, m.seq) > ($1::timestamptz, $5::bigint) AND m.settled_at < $6::timestamptz
     AND (SELECT b.seq FROM {archive} b WHERE b.message_id = m.message_id AND b.settled_at < $6::timestamptz
             AND (b.settled_at, b.seq) > (m.settled_at, m.seq) LIMIT 1) IS NULL%s
   ORDER BY m.settled_at, m.seq LIMIT %d),
done AS (
  INSERT INTO {messages} (message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
         content_type, headers, payload, payload_text, occurred_at, resends)
  SELECT message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
         content_type, headers, payload, payload_text, occurred_at, resends + 1
    FROM a WHERE content ORDER BY settled_at, seq
      ON CONFLICT (message_id) DO NOTHING
  RETURNING message_id),%s
SELECT (SELECT count(*) FROM done), (SELECT count(*) FROM a), (SELECT count(*) FROM a WHERE NOT content),
       (SELECT settled_at FROM a ORDER BY settled_at DESC, seq DESC LIMIT 1), (SELECT seq FROM a ORDER BY settled_at DESC, seq DESC LIMIT 1)`

// ErrNoContent is the error of a replay that met messages of which the archive
// kept only the metadata.
var ErrNoContent = errors.New("the archive has no payload of some of these messages")

// Replay implements [engine.Operator]. It takes what was settled before it began.
// Messages without a payload in the archive are left out, and in the end the error
// says how many they were.
func (s *Store) Replay(ctx context.Context, f engine.Filter, by engine.Actor) (n int, err error) {
	fail := func(err error) (int, error) { return n, fmt.Errorf("postgres: replay: %w", err) }
	var until time.Time
	if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&until); err != nil {
		return fail(err)
	}
	if !f.To.IsZero() && f.To.Before(until) {
		until = f.To
	}
	var last time.Time
	var lastSeq int64
	if !f.From.IsZero() {
		last = f.From.Add(-time.Microsecond)
		lastSeq = 1<<63 - 1
	}
	f.From, f.To = time.Time{}, time.Time{}
	left, empty := f.Limit, 0
	for {
		c := &conditions{args: []any{last, reading.Storable(by.Name), by.Relay, reading.Storable(by.Reason), lastSeq, until}}
		c.filter(f, "settled_at")
		more := ""
		if len(c.parts) > 0 {
			more = " AND " + c.String()
		}
		sql := s.names.sql(fmt.Sprintf(replaySQL, more, atMost(left), auditSQL("replay")))
		var done, met, bare int
		var at *time.Time
		var seq *int64
		err := retried(ctx, func() error {
			return s.pool.QueryRow(ctx, sql, c.args...).Scan(&done, &met, &bare, &at, &seq)
		})
		if err != nil {
			return fail(err)
		}
		n, empty = n+done, empty+bare
		if f.Limit > 0 {
			left -= done
		}
		if met == 0 || at == nil || seq == nil || f.Limit > 0 && left <= 0 {
			break
		}
		last, lastSeq = *at, *seq
	}
	if empty > 0 {
		return fail(fmt.Errorf("%w: %d left out", ErrNoContent, empty))
	}
	return n, nil
}
