package postgres

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/engine"
)

// where is an empty filter as SQL.
func where(args ...any) *records.Conditions {
	return &records.Conditions{
		Placeholder: func(n int) string { return fmt.Sprintf("$%d", n) },
		TextCast:    "::text",
		InstantCast: "::timestamptz",
		Instant:     func(t time.Time) any { return t },
		IDs: func(ids []engine.ID) (string, []any) {
			list := make([]pgtype.UUID, len(ids))
			for i, id := range ids {
				list[i] = uuidOf(id)
			}
			return "= ANY (?::uuid[])", []any{list}
		},
		Args: args,
	}
}

// Dead implements [engine.Operator].
func (s *Store) Dead(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return records.Pages(f.Limit, func() func(left int) ([]engine.Record, error) {
		last := int64(0)
		return func(left int) ([]engine.Record, error) {
			page, err := s.deadPage(ctx, f, last, left)
			if err != nil {
				return nil, fmt.Errorf("postgres: dead: %w", err)
			}
			if len(page) > 0 {
				last = page[len(page)-1].Seq
			}
			return page, nil
		}
	})
}

func (s *Store) deadPage(ctx context.Context, f engine.Filter, after int64, left int) ([]engine.Record, error) {
	c := where()
	c.Filter(f, "created_at")
	c.Add("m.seq > ?::bigint", after)
	rows, err := s.pool.Query(ctx, s.names.sql(`
SELECT m.seq, m.message_id, m.topic, coalesce(m.ordering_key, ''), m.type, coalesce(m.aggregate_type, ''), coalesce(m.aggregate_id, ''),
       coalesce(m.aggregate_version, 0), coalesce(m.correlation_id, ''), m.content_type, m.headers::text, m.payload, m.payload_text,
       CASE WHEN `+ordinary("m.occurred_at")+` THEN m.occurred_at END, CASE WHEN `+ordinary("m.created_at")+` THEN m.created_at END,
       m.dead_at, m.attempts, m.crashes, m.resends, coalesce(m.last_error, ''), coalesce(m.last_error_class, ''),
       EXISTS (SELECT FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq = m.seq)
  FROM {messages} m
 WHERE m.state = 3 AND `+c.String()+`
 ORDER BY m.seq NULLS FIRST LIMIT `+fmt.Sprint(left)), c.Args...)
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
	last := int64(0)
	n, err = records.Chunks(f.Limit, func(left int) (met, done int, err error) {
		c := where()
		c.Filter(f, "created_at")
		c.Add("m.seq > ?::bigint", last)
		seqs, ls, err := s.matching(ctx, s.names.sql(`SELECT m.seq, m.lane FROM {messages} m WHERE m.state = 3 AND `+c.String()+
			` ORDER BY m.seq NULLS FIRST LIMIT `+fmt.Sprint(left)), c.Args)
		if err != nil || len(seqs) == 0 {
			return 0, 0, err
		}
		err = s.run(ctx, func() []statement {
			return transaction(lockTimeout, s.lockStatement(ls, nil),
				statement{name: name, sql: sql, args: []any{seqs, reading.Storable(by.Name), by.Relay, reading.Storable(by.Reason)}, rows: count(&done)})
		})
		if err != nil {
			return 0, 0, err
		}
		last = seqs[len(seqs)-1]
		return len(seqs), done, nil
	})
	if err != nil {
		return n, fmt.Errorf("postgres: %s: %w", name, err)
	}
	return n, nil
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
var ErrNoContent = records.ErrNoContent

// Replay implements [engine.Operator]. It takes what was settled before it began.
// Messages without a payload in the archive are left out, and in the end the error
// says how many they were.
func (s *Store) Replay(ctx context.Context, f engine.Filter, by engine.Actor) (n int, err error) {
	fail := func(err error) (int, error) { return n, fmt.Errorf("postgres: replay: %w", err) }
	rest, err := s.span(ctx, &f)
	if err != nil {
		return fail(err)
	}
	empty := 0
	n, err = records.Chunks(f.Limit, func(left int) (met, done int, err error) {
		c := where(rest.last, reading.Storable(by.Name), by.Relay, reading.Storable(by.Reason), rest.lastSeq, rest.until)
		query := s.names.sql(fmt.Sprintf(replaySQL, filtered(c, f), left, auditSQL("replay")))
		var bare int
		var at *time.Time
		var seq *int64
		err = retried(ctx, func() error {
			return s.pool.QueryRow(ctx, query, c.Args...).Scan(&done, &met, &bare, &at, &seq)
		})
		if err != nil || at == nil || seq == nil {
			return 0, 0, err
		}
		empty += bare
		rest.last, rest.lastSeq = *at, *seq
		return met, done, nil
	})
	if err != nil {
		return fail(err)
	}
	if empty > 0 {
		return fail(fmt.Errorf("%w: %d left out", ErrNoContent, empty))
	}
	return n, nil
}
