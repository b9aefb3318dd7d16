package postgres

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/engine"
)

var _ engine.Archive = (*Store)(nil)

// archivedSQL pages through the archive in the order of its key. Of a message that
// was settled several times only the last settling counts, as in Replay.
const archivedSQL = `
SELECT m.settled_at, m.seq, m.message_id, m.topic, coalesce(m.ordering_key, ''), m.type, coalesce(m.aggregate_type, ''), coalesce(m.aggregate_id, ''),
       coalesce(m.aggregate_version, 0), coalesce(m.correlation_id, ''), m.content_type, m.headers::text, m.payload, m.payload_text,
       m.occurred_at, m.created_at, m.dead_at, m.attempts, m.crashes, m.resends, coalesce(m.last_error, ''), coalesce(m.last_error_class, ''),
       m.outcome = 'discarded', NOT m.content
  FROM {archive} m
 WHERE (m.settled_at, m.seq) > ($1::timestamptz, $2::bigint) AND m.settled_at < $3::timestamptz
   AND (SELECT b.seq FROM {archive} b WHERE b.message_id = m.message_id AND b.settled_at < $3::timestamptz
           AND (b.settled_at, b.seq) > (m.settled_at, m.seq) LIMIT 1) IS NULL%s
 ORDER BY m.settled_at, m.seq LIMIT %d`

// Archived implements [engine.Archive]. It shows what was settled before it began.
func (s *Store) Archived(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		fail := func(err error) { yield(engine.Record{}, fmt.Errorf("postgres: archived: %w", err)) }
		var until time.Time
		if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&until); err != nil {
			fail(err)
			return
		}
		if !f.To.IsZero() && f.To.Before(until) {
			until = f.To
		}
		var last time.Time
		var lastSeq int64
		if !f.From.IsZero() {
			last, lastSeq = f.From.Add(-time.Microsecond), 1<<63-1
		}
		f.From, f.To = time.Time{}, time.Time{}
		for left := f.Limit; ; {
			page, err := s.archivedPage(ctx, f, last, lastSeq, until, left)
			if err != nil {
				fail(err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
				last, lastSeq = r.SettledAt, r.Seq
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

func (s *Store) archivedPage(ctx context.Context, f engine.Filter, last time.Time, lastSeq int64, until time.Time, left int) ([]engine.Record, error) {
	c := &conditions{args: []any{last, lastSeq, until}}
	c.filter(f, "settled_at")
	more := ""
	if len(c.parts) > 0 {
		more = " AND " + c.String()
	}
	rows, err := s.pool.Query(ctx, s.names.sql(fmt.Sprintf(archivedSQL, more, atMost(left))), c.args...)
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
		if err := rows.Scan(&r.SettledAt, &r.Seq, &id, &r.Topic, &r.Key, &r.Type, &r.AggregateType, &r.AggregateID, &r.AggregateVersion,
			&r.CorrelationID, &r.ContentType, &headers, &payload, &text, &occurred, &created, &died,
			&r.Attempts, &r.Crashes, &r.Resends, &r.LastError, &r.LastErrorClass, &r.Discarded, &r.MetadataOnly); err != nil {
			return nil, err
		}
		r.ID, r.SettledAt = id.Bytes, r.SettledAt.UTC()
		// Without its content a row has no headers to decode, and that is no fault.
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
