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

// A span is the part of the archive that is still to be looked at: what was settled
// after last, and within the same instant has a number above lastSeq, before until.
type span struct {
	last, until time.Time
	lastSeq     int64
}

// span takes the times out of f. It ends with what is settled now.
func (s *Store) span(ctx context.Context, f *engine.Filter) (sp *span, err error) {
	sp = &span{}
	if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&sp.until); err != nil {
		return nil, err
	}
	if !f.To.IsZero() && f.To.Before(sp.until) {
		sp.until = f.To
	}
	if !f.From.IsZero() {
		sp.last, sp.lastSeq = f.From.Add(-time.Microsecond), 1<<63-1
	}
	f.From, f.To = time.Time{}, time.Time{}
	return sp, nil
}

// filtered is c's filter of f as more conditions.
func filtered(c *records.Conditions, f engine.Filter) string {
	c.Filter(f, "settled_at")
	if len(c.Parts) == 0 {
		return ""
	}
	return " AND " + c.String()
}

// Archived implements [engine.Archive]. It shows what was settled before it began.
func (s *Store) Archived(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return records.Pages(f.Limit, func() func(left int) ([]engine.Record, error) {
		f := f
		rest, err := s.span(ctx, &f)
		return func(left int) (page []engine.Record, _ error) {
			if err == nil {
				page, err = s.archivedPage(ctx, f, rest, left)
			}
			if err != nil {
				return nil, fmt.Errorf("postgres: archived: %w", err)
			}
			if len(page) > 0 {
				rest.last, rest.lastSeq = page[len(page)-1].SettledAt, page[len(page)-1].Seq
			}
			return page, nil
		}
	})
}

func (s *Store) archivedPage(ctx context.Context, f engine.Filter, rest *span, left int) ([]engine.Record, error) {
	c := where(rest.last, rest.lastSeq, rest.until)
	query := s.names.sql(fmt.Sprintf(archivedSQL, filtered(c, f), left))
	rows, err := s.pool.Query(ctx, query, c.Args...)
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
