package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/engine"
)

// where is an empty filter as SQL.
func where(args ...any) *records.Conditions {
	return &records.Conditions{
		Placeholder: func(int) string { return "?" },
		Instant:     func(t time.Time) any { return raw(text(at, ceiling(t))) },
		IDs:         func(ids []engine.ID) (string, []any) { return "IN (?)", []any{ids} },
		Args:        args,
	}
}

// Dead implements [engine.Operator].
func (s *Store) Dead(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return records.Pages(f.Limit, func() func(left int) ([]engine.Record, error) {
		last := int64(0)
		return func(left int) ([]engine.Record, error) {
			page, err := s.deadPage(ctx, f, last, left)
			if err != nil {
				return nil, fmt.Errorf("mysql: %w", err)
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
SELECT ` + recordColumns + `,
       EXISTS (SELECT 1 FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq = m.seq)
  FROM {messages} m
 WHERE m.state = 3 AND ` + c.String() + `
 ORDER BY m.state, m.seq LIMIT ` + fmt.Sprint(left))
	err = retried(ctx, func() error {
		page = nil
		return queryRows(ctx, s.db, "dead", query, func(rows *sql.Rows) error {
			var r engine.Record
			err := scanRecord(rows, &r, &r.HoldsKey)
			page = append(page, r)
			return err
		}, c.Args...)
	})
	return page, err
}

// recordColumns are what scanRecord reads.
var recordColumns = `m.seq, m.message_id, m.topic, COALESCE(m.ordering_key, ''), m.type, COALESCE(m.aggregate_type, ''), COALESCE(m.aggregate_id, ''),
       COALESCE(m.aggregate_version, 0), COALESCE(m.correlation_id, ''), m.content_type, CAST(m.headers AS CHAR CHARACTER SET utf8mb4),
       m.payload, m.payload_text, ` + micros("m.occurred_at") + `, ` + micros("m.created_at") + `,
       m.attempts, m.crashes, m.resends, COALESCE(m.last_error, ''), COALESCE(m.last_error_class, ''), ` + micros("m.dead_at")

// scanRecord reads a message at rest. What is wrong with a row that can't be decoded
// stands in its LastError; and one of which only the metadata was kept has no headers.
func scanRecord(rows *sql.Rows, r *engine.Record, more ...any) error {
	var c content
	var id []byte
	var created, died *int64
	if err := rows.Scan(append([]any{&r.Seq, &id, &r.Topic, &r.Key, &r.Type, &r.AggregateType, &r.AggregateID, &r.AggregateVersion,
		&r.CorrelationID, &r.ContentType, &c.headers, &c.payload, &c.text, &c.occurred, &created,
		&r.Attempts, &r.Crashes, &r.Resends, &r.LastError, &r.LastErrorClass, &died}, more...)...); err != nil {
		return err
	}
	copy(r.ID[:], id)
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
const noteCommandSQL = `INSERT INTO {audit} (actor, by_relay, action, reason, affected, message_ids) VALUES (?, ?, ?, ?, ?, ?)`

func (s *Store) noteCommand(t *tx, action string, by engine.Actor, ids []engine.ID) error {
	if len(ids) == 0 {
		return nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	_, err = t.exec("note", s.names.sql(noteCommandSQL), reading.Storable(by.Name), by.Relay, action, reading.Storable(by.Reason), len(ids), string(list))
	return err
}

const (
	// matchingSQL finds dead rows without locking them; they are looked at again when
	// their lanes are locked.
	matchingSQL = `SELECT m.seq, m.lane FROM {messages} m WHERE m.state = 3 AND %s ORDER BY m.state, m.seq LIMIT %d`
	deadSQL     = `SELECT m.seq, m.message_id FROM {messages} m ` + byKey + ` WHERE m.seq IN (?) AND m.state = 3 ORDER BY m.seq FOR UPDATE`

	// requeueSQL makes dead rows ready. The stamp changes and is never set back, so that
	// an old verdict that is repeated finds another one. The entry stays: the row is its
	// key's head, and goes before what waits behind it.
	requeueSQL = `
UPDATE {messages} ` + byKey + `
   SET state = 0, attempts = 0, crashes = 0, company = 0, resends = resends + 1, stamp = stamp + 1, available_at = {now},
       first_failed_at = NULL, dead_at = NULL, paused_for = NULL, lease_token = NULL
 WHERE seq IN (?) AND state = 3`

	// buryFileSQL moves a copy of dead rows to the archive, always.
	buryFileSQL = `
INSERT INTO {archive} (` + archived + `,
       headers, payload, payload_text, content, outcome, settled_by, reason)
SELECT ` + archived + `,
       CASE WHEN k.content THEN headers END, CASE WHEN k.content THEN payload END, CASE WHEN k.content THEN payload_text END, k.content,
       'discarded', ?, ?
  FROM {messages} m ` + byKey + ` CROSS JOIN (SELECT archive = 'full' AS content FROM {schema_}) k
 WHERE m.seq IN (?) AND m.state = 3`
)

// Requeue implements [engine.Operator].
func (s *Store) Requeue(ctx context.Context, f engine.Filter, by engine.Actor) (int, error) {
	n, err := s.commandDead(ctx, "requeue", f, by, func(t *tx, seqs []int64) error {
		_, err := t.exec("requeue", s.names.sql(requeueSQL), seqs)
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
		if _, err := t.exec("file discarded", s.names.sql(buryFileSQL), reading.Storable(by.Name), reading.Storable(by.Reason), seqs); err != nil {
			return err
		}
		if _, err := t.exec("discard", s.q.publish, seqs); err != nil {
			return err
		}
		return s.unblock(t, seqs, s.newBudget())
	})
	if n > 0 {
		s.Wake()
	}
	return n, err
}

// commandDead does a command to the dead messages that match, chunk by chunk, each
// under the locks of their lanes. After an error n says what was done.
func (s *Store) commandDead(ctx context.Context, name string, f engine.Filter, by engine.Actor, do func(t *tx, seqs []int64) error) (n int, err error) {
	last := int64(0)
	n, err = records.Chunks(f.Limit, func(left int) (met, done int, err error) {
		c := where()
		c.Filter(f, "created_at")
		c.Add("m.seq > ?", last)
		var matching []int64
		var ls []int16
		err = retried(ctx, func() error {
			matching, ls = nil, nil
			return queryRows(ctx, s.db, "matching", s.names.sql(fmt.Sprintf(matchingSQL, c.String(), left)), func(rows *sql.Rows) error {
				var seq int64
				var lane int16
				err := rows.Scan(&seq, &lane)
				matching, ls = append(matching, seq), append(ls, lane)
				return err
			}, c.Args...)
		})
		if err != nil || len(matching) == 0 {
			return 0, 0, err
		}
		err = s.write(ctx, func(t *tx) error {
			done = 0
			if _, err := s.owners(t, ls); err != nil {
				return err
			}
			var seqs []int64
			var ids []engine.ID
			err := t.query("dead", s.names.sql(deadSQL), func(rows *sql.Rows) error {
				var seq int64
				var id []byte
				err := rows.Scan(&seq, &id)
				seqs, ids = append(seqs, seq), append(ids, engine.ID(id))
				return err
			}, matching)
			if err != nil || len(seqs) == 0 {
				return err
			}
			if err := do(t, seqs); err != nil {
				return err
			}
			done = len(seqs)
			return s.noteCommand(t, name, by, ids)
		})
		if err != nil {
			return 0, 0, err
		}
		last = matching[len(matching)-1]
		return len(matching), done, nil
	})
	if err != nil {
		return n, fmt.Errorf("mysql: %s: %w", name, err)
	}
	return n, nil
}
