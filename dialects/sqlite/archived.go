package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"time"

	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/engine"
)

var _ engine.Archive = (*Store)(nil)

// A span is the part of the archive that is still to be looked at: what was settled
// after last, and within the same instant has a number above lastSeq, up to until.
type span struct{ last, lastSeq, until int64 }

// span takes the times out of f. It ends with what is settled now.
func (s *Store) span(ctx context.Context, f *engine.Filter) (sp span, err error) {
	err = retried(ctx, func() error {
		return sqlrows.Query(ctx, s.db, "now", s.names.sql(`SELECT {now}`), func(rows *sql.Rows) error { return rows.Scan(&sp.until) })
	})
	if !f.To.IsZero() {
		sp.until = min(sp.until, ceiling(f.To)-1)
	}
	sp.last = oldest
	if !f.From.IsZero() {
		sp.last, sp.lastSeq = ceiling(f.From)-1, 1<<63-1
	}
	f.From, f.To = time.Time{}, time.Time{}
	return sp, err
}

// conditions are those of a page. Of a message that was settled several times only
// the last settling counts.
func (sp *span) conditions(f engine.Filter) *records.Conditions {
	c := where(sp.last, sp.lastSeq, sp.until)
	c.Parts = []string{"(m.settled_at, m.seq) > (?1, ?2)", "m.settled_at <= ?3", `NOT EXISTS (
       SELECT 1 FROM {archive} b WHERE b.message_id = m.message_id AND b.settled_at <= ?3 AND (b.settled_at, b.seq, b.id) > (m.settled_at, m.seq, m.id))`}
	c.Filter(f, "settled_at")
	return c
}

// Archived implements [engine.Archive]. It shows what was settled before it began.
func (s *Store) Archived(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return records.Pages(f.Limit, func() func(left int) ([]engine.Record, error) {
		f := f
		rest, err := s.span(ctx, &f)
		return func(left int) (page []engine.Record, _ error) {
			if err == nil {
				page, err = s.archivedPage(ctx, f, &rest, left)
			}
			if err != nil {
				return nil, fmt.Errorf("sqlite: archived: %w", err)
			}
			return page, nil
		}
	})
}

// archivedPage reads the next page and moves rest behind it.
func (s *Store) archivedPage(ctx context.Context, f engine.Filter, rest *span, left int) (page []engine.Record, err error) {
	c := rest.conditions(f)
	query := s.names.sql(`
SELECT ` + recordColumns + `, m.dead_at, m.settled_at, m.outcome = 'discarded', NOT m.content
  FROM {archive} m
 WHERE ` + c.String() + `
 ORDER BY m.settled_at, m.seq LIMIT ` + fmt.Sprint(left))
	err = retried(ctx, func() error {
		page = nil
		return sqlrows.Query(ctx, s.db, "page", query, func(rows *sql.Rows) error {
			var r engine.Record
			if err := scanRecord(rows, &r, &rest.last, &r.Discarded, &r.MetadataOnly); err != nil {
				return err
			}
			rest.lastSeq, r.SettledAt = r.Seq, time.UnixMicro(rest.last).UTC()
			page = append(page, r)
			return nil
		}, c.Args...)
	})
	return page, err
}
