package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"time"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/engine"
)

// where is an empty filter as SQL.
func where(args ...any) *records.Conditions {
	return &records.Conditions{
		Placeholder: func(n int) string { return fmt.Sprintf("?%d", n) },
		Instant:     func(t time.Time) any { return ceiling(t) },
		IDs: func(ids []engine.ID) (string, []any) {
			return "IN (SELECT j.value FROM json_each(?) j)", []any{list(ids)}
		},
		Args: args,
	}
}

// ceiling is the first whole microsecond that is not before t.
func ceiling(t time.Time) int64 {
	us := t.UnixMicro()
	if t.Nanosecond()%1000 != 0 {
		us++
	}
	return us
}

// Dead implements [engine.Operator].
func (s *Store) Dead(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return records.Pages(f.Limit, func() func(left int) ([]engine.Record, error) {
		last := int64(0)
		return func(left int) ([]engine.Record, error) {
			page, err := s.deadPage(ctx, f, last, left)
			if err != nil {
				return nil, fmt.Errorf("sqlite: %w", err)
			}
			if len(page) > 0 {
				last = page[len(page)-1].Seq
			}
			return page, nil
		}
	})
}

func (s *Store) deadPage(ctx context.Context, f engine.Filter, after int64, left int) (page []engine.Record, err error) {
	c := where()
	c.Filter(f, "created_at")
	c.Add("m.seq > ?", after)
	query := s.names.sql(`
SELECT ` + recordColumns + `, m.dead_at,
       EXISTS (SELECT 1 FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq = m.seq)
  FROM {messages} m
 WHERE m.state = 3 AND ` + c.String() + `
 ORDER BY m.seq LIMIT ` + fmt.Sprint(left))
	err = retried(ctx, func() error {
		page = nil
		return sqlrows.Query(ctx, s.db, "dead", query, func(rows *sql.Rows) error {
			var r engine.Record
			err := scanRecord(rows, &r, &r.HoldsKey)
			page = append(page, r)
			return err
		}, c.Args...)
	})
	return page, err
}

// recordColumns are what scanRecord reads, but for dead_at and what comes after it.
var recordColumns = `m.seq, m.message_id, m.topic, coalesce(m.ordering_key, ''), m.type, coalesce(m.aggregate_type, ''), coalesce(m.aggregate_id, ''),
       CAST(coalesce(m.aggregate_version, 0) AS INTEGER), coalesce(m.correlation_id, ''), m.content_type, m.headers,
       m.payload IS NOT NULL, CAST(m.payload AS BLOB), m.payload_text, ` + whole("m.occurred_at") + `, ` + whole("m.created_at") + `,
       m.attempts, m.crashes, m.resends, coalesce(m.last_error, ''), coalesce(m.last_error_class, '')`

// scanRecord reads a message at rest. What is wrong with a row that can't be decoded
// stands in its LastError; and one of which only the metadata was kept has no headers.
func scanRecord(rows *sql.Rows, r *engine.Record, more ...any) error {
	var c content
	var created, died *int64
	if err := rows.Scan(append([]any{&r.Seq, &c.id, &r.Topic, &r.Key, &r.Type, &r.AggregateType, &r.AggregateID, &r.AggregateVersion,
		&r.CorrelationID, &r.ContentType, &c.headers, &c.some, &c.payload, &c.text, &c.occurred, &created,
		&r.Attempts, &r.Crashes, &r.Resends, &r.LastError, &r.LastErrorClass, &died}, more...)...); err != nil {
		return err
	}
	_ = c.decode(&r.Message)
	if at := instant(created); at != nil {
		r.CreatedAt = *at
	}
	if at := instant(died); at != nil {
		r.DeadAt = *at
	}
	return nil
}

// noteCommandSQL records one chunk of a command.
const noteCommandSQL = `INSERT INTO {audit} (actor, by_relay, action, reason, affected, message_ids) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`

func (s *Store) noteCommand(t *tx, action string, by engine.Actor, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := t.exec("note", s.names.sql(noteCommandSQL), reading.Storable(by.Name), by.Relay, action, reading.Storable(by.Reason), len(ids), list(ids))
	return err
}

// requeueSQL makes dead rows ready. The stamp changes and is never set back, so that
// an old verdict that is repeated finds another one. The entry stays: the row is its
// key's head, and goes before what waits behind it.
const requeueSQL = `
UPDATE {messages}
   SET state = 0, attempts = 0, crashes = 0, company = 0, resends = resends + 1, stamp = stamp + 1, available_at = {now},
       first_failed_at = NULL, dead_at = NULL, paused_for = NULL, lease_token = NULL
 WHERE state = 3 AND seq IN (SELECT j.value FROM json_each(?1) j)`

// buryFileSQL moves a copy of dead rows to the archive, always.
const buryFileSQL = `
INSERT INTO {archive} (` + archived + `,
       headers, payload, payload_text, content, outcome, settled_by, reason)
SELECT ` + archived + `,
       CASE WHEN k.content THEN headers END, CASE WHEN k.content THEN payload END, CASE WHEN k.content THEN payload_text END, k.content,
       'discarded', ?2, ?3
  FROM {messages} m CROSS JOIN (SELECT archive = 'full' AS content FROM {schema_}) k
 WHERE m.state = 3 AND m.seq IN (SELECT j.value FROM json_each(?1) j)`

const discardSQL = `DELETE FROM {messages} WHERE state = 3 AND seq IN (SELECT j.value FROM json_each(?1) j)`

// Requeue implements [engine.Operator].
func (s *Store) Requeue(ctx context.Context, f engine.Filter, by engine.Actor) (int, error) {
	n, err := s.commandDead(ctx, "requeue", f, by, func(t *tx, seqs []int64) error {
		_, err := t.exec("requeue", s.names.sql(requeueSQL), list(seqs))
		return err
	})
	if n > 0 {
		s.Wake()
	}
	return n, err
}

// Discard implements [engine.Operator].
func (s *Store) Discard(ctx context.Context, f engine.Filter, by engine.Actor) (int, error) {
	n, err := s.commandDead(ctx, "discard", f, by, func(t *tx, seqs []int64) error {
		if _, err := t.exec("file discarded", s.names.sql(buryFileSQL), list(seqs), reading.Storable(by.Name), reading.Storable(by.Reason)); err != nil {
			return err
		}
		if _, err := t.exec("discard", s.names.sql(discardSQL), list(seqs)); err != nil {
			return err
		}
		return s.unblock(t, seqs, s.newBudget())
	})
	if n > 0 {
		s.Wake()
	}
	return n, err
}

// commandDead does a command to the dead messages that match, chunk by chunk. After
// an error n says what was done.
func (s *Store) commandDead(ctx context.Context, name string, f engine.Filter, by engine.Actor, do func(t *tx, seqs []int64) error) (n int, err error) {
	last := int64(0)
	n, err = records.Chunks(f.Limit, func(left int) (met, done int, err error) {
		var seqs []int64
		var ids []string
		err = s.write(ctx, func(t *tx) error {
			seqs, ids = nil, nil
			c := where()
			c.Filter(f, "created_at")
			c.Add("m.seq > ?", last)
			err := t.query("matching", s.names.sql(`SELECT m.seq, m.message_id FROM {messages} m WHERE m.state = 3 AND `+c.String()+
				` ORDER BY m.seq LIMIT `+fmt.Sprint(left)), func(rows *sql.Rows) error {
				var seq int64
				var id string
				err := rows.Scan(&seq, &id)
				seqs, ids = append(seqs, seq), append(ids, id)
				return err
			}, c.Args...)
			if err != nil || len(seqs) == 0 {
				return err
			}
			if err := do(t, seqs); err != nil {
				return err
			}
			return s.noteCommand(t, name, by, ids)
		})
		if err != nil || len(seqs) == 0 {
			return 0, 0, err
		}
		last = seqs[len(seqs)-1]
		return len(seqs), len(seqs), nil
	})
	if err != nil {
		return n, fmt.Errorf("sqlite: %s: %w", name, err)
	}
	return n, nil
}
