package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

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
	c.parts = append(c.parts, strings.ReplaceAll(condition, "?", fmt.Sprintf("?%d", len(c.args))))
}

func (c *conditions) String() string { return strings.Join(c.parts, " AND ") }

// filter adds f's conditions on the table m. at is the column of From and To.
func (c *conditions) filter(f engine.Filter, at string) {
	if len(f.IDs) > 0 {
		c.add("m.message_id IN (SELECT j.value FROM json_each(?) j)", list(f.IDs))
	}
	for _, text := range []struct{ column, value string }{
		{"topic", f.Topic}, {"ordering_key", f.Key}, {"type", f.Type}, {"last_error_class", f.ErrorClass},
	} {
		if text.value != "" {
			c.add("m."+text.column+" = ?", text.value)
		}
	}
	if !f.From.IsZero() {
		c.add("m."+at+" >= ?", ceiling(f.From))
	}
	if !f.To.IsZero() {
		c.add("m."+at+" < ?", ceiling(f.To))
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
	return func(yield func(engine.Record, error) bool) {
		last, left := int64(0), f.Limit
		for {
			page, err := s.deadPage(ctx, f, last, left)
			if err != nil {
				yield(engine.Record{}, fmt.Errorf("sqlite: %w", err))
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

func (s *Store) deadPage(ctx context.Context, f engine.Filter, after int64, left int) (page []engine.Record, err error) {
	c := &conditions{}
	c.filter(f, "created_at")
	c.add("m.seq > ?", after)
	query := s.names.sql(`
SELECT m.seq, m.message_id, m.topic, coalesce(m.ordering_key, ''), m.type, coalesce(m.aggregate_type, ''), coalesce(m.aggregate_id, ''),
       CAST(coalesce(m.aggregate_version, 0) AS INTEGER), coalesce(m.correlation_id, ''), m.content_type, m.headers,
       m.payload IS NOT NULL, CAST(m.payload AS BLOB), m.payload_text, ` + whole("m.occurred_at") + `, ` + whole("m.created_at") + `,
       m.dead_at, m.attempts, m.crashes, m.resends, coalesce(m.last_error, ''), coalesce(m.last_error_class, ''),
       EXISTS (SELECT 1 FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq = m.seq)
  FROM {messages} m
 WHERE m.state = 3 AND ` + c.String() + `
 ORDER BY m.seq LIMIT ` + fmt.Sprint(atMost(left)))
	err = retried(ctx, func() error {
		page = nil
		return queryRows(ctx, s.db, "dead", query, func(rows *sql.Rows) error {
			var r engine.Record
			var b content
			var created, died *int64
			if err := rows.Scan(&r.Seq, &b.id, &r.Topic, &r.Key, &r.Type, &r.AggregateType, &r.AggregateID, &r.AggregateVersion,
				&r.CorrelationID, &r.ContentType, &b.headers, &b.some, &b.payload, &b.text, &b.occurred, &created, &died,
				&r.Attempts, &r.Crashes, &r.Resends, &r.LastError, &r.LastErrorClass, &r.HoldsKey); err != nil {
				return err
			}
			// What is wrong with a row that can't be decoded stands in LastError.
			_ = b.decode(&r.Message)
			if at := instant(created); at != nil {
				r.CreatedAt = *at
			}
			if at := instant(died); at != nil {
				r.DeadAt = *at
			}
			page = append(page, r)
			return nil
		}, c.args...)
	})
	return page, err
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
		return s.unblock(t, seqs, newBudget())
	})
	if n > 0 {
		s.Wake()
	}
	return n, err
}

// commandDead does a command to the dead messages that match, chunk by chunk. After
// an error n says what was done.
func (s *Store) commandDead(ctx context.Context, name string, f engine.Filter, by engine.Actor, do func(t *tx, seqs []int64) error) (n int, err error) {
	last, left := int64(0), f.Limit
	for {
		var seqs []int64
		var ids []string
		err := s.write(ctx, func(t *tx) error {
			seqs, ids = nil, nil
			c := &conditions{}
			c.filter(f, "created_at")
			c.add("m.seq > ?", last)
			err := t.query("matching", s.names.sql(`SELECT m.seq, m.message_id FROM {messages} m WHERE m.state = 3 AND `+c.String()+
				` ORDER BY m.seq LIMIT `+fmt.Sprint(atMost(left))), func(rows *sql.Rows) error {
				var seq int64
				var id string
				err := rows.Scan(&seq, &id)
				seqs, ids = append(seqs, seq), append(ids, id)
				return err
			}, c.args...)
			if err != nil || len(seqs) == 0 {
				return err
			}
			if err := do(t, seqs); err != nil {
				return err
			}
			return s.noteCommand(t, name, by, ids)
		})
		if err != nil {
			return n, fmt.Errorf("sqlite: %s: %w", name, err)
		}
		if len(seqs) == 0 {
			return n, nil
		}
		n, last = n+len(seqs), seqs[len(seqs)-1]
		if f.Limit > 0 {
			if left -= len(seqs); left <= 0 {
				return n, nil
			}
		}
	}
}

// replayedSQL finds archived messages, those last settled last, so that they come
// in the order in which they went. Of a message that was settled several times only
// the last settling counts.
const replayedSQL = `
SELECT m.id, m.message_id, m.settled_at, m.seq, m.content FROM {archive} m
 WHERE (m.settled_at, m.seq) > (?1, ?2) AND m.settled_at <= ?3
   AND NOT EXISTS (SELECT 1 FROM {archive} b WHERE b.message_id = m.message_id AND b.settled_at <= ?3
                      AND (b.settled_at, b.seq, b.id) > (m.settled_at, m.seq, m.id))%s
 ORDER BY m.settled_at, m.seq LIMIT %d`

// replaySQL enqueues an archived message again. One that is waiting already stays as
// it is.
const replaySQL = `
INSERT INTO {messages} (message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
       content_type, headers, payload, payload_text, occurred_at, resends)
SELECT message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
       content_type, headers, payload, payload_text, occurred_at, resends + 1
  FROM {archive} WHERE id = ?1
    ON CONFLICT (message_id) DO NOTHING`

// ErrNoContent is the error of a replay that met messages of which the archive
// kept only the metadata.
var ErrNoContent = errors.New("the archive has no payload of some of these messages")

// Replay implements [engine.Operator]. It takes what was settled before it began.
// Messages without a payload in the archive are left out, and in the end the error
// says how many they were.
func (s *Store) Replay(ctx context.Context, f engine.Filter, by engine.Actor) (n int, err error) {
	fail := func(err error) (int, error) { return n, fmt.Errorf("sqlite: replay: %w", err) }
	var until int64
	err = retried(ctx, func() error {
		return queryRows(ctx, s.db, "now", s.names.sql(`SELECT {now}`), func(rows *sql.Rows) error { return rows.Scan(&until) })
	})
	if err != nil {
		return fail(err)
	}
	if !f.To.IsZero() {
		until = min(until, ceiling(f.To)-1)
	}
	last, lastSeq := int64(oldest), int64(0)
	if !f.From.IsZero() {
		last, lastSeq = ceiling(f.From)-1, 1<<63-1
	}
	f.From, f.To = time.Time{}, time.Time{}
	left, empty := f.Limit, 0
	for {
		page := &replayPage{}
		if err := s.write(ctx, func(t *tx) error {
			*page = replayPage{last: last, lastSeq: lastSeq}
			return s.replayOnce(t, f, by, until, left, page)
		}); err != nil {
			return fail(err)
		}
		n, empty, last, lastSeq = n+page.done, empty+page.empty, page.last, page.lastSeq
		if f.Limit > 0 {
			left -= page.done
		}
		if page.met == 0 || f.Limit > 0 && left <= 0 {
			break
		}
	}
	if n > 0 {
		s.Wake()
	}
	if empty > 0 {
		return fail(fmt.Errorf("%w: %d left out", ErrNoContent, empty))
	}
	return n, nil
}

// replayPage is one chunk of a replay: where it goes on from, and what it did.
type replayPage struct {
	last, lastSeq    int64
	met, done, empty int
}

func (s *Store) replayOnce(t *tx, f engine.Filter, by engine.Actor, until int64, left int, p *replayPage) error {
	c := &conditions{args: []any{p.last, p.lastSeq, until}}
	c.filter(f, "settled_at")
	more := ""
	if len(c.parts) > 0 {
		more = " AND " + c.String()
	}
	type old struct {
		row     int64
		id      string
		at, seq int64
		content bool
	}
	var olds []old
	err := t.query("replayed", s.names.sql(fmt.Sprintf(replayedSQL, more, atMost(left))), func(rows *sql.Rows) error {
		var o old
		err := rows.Scan(&o.row, &o.id, &o.at, &o.seq, &o.content)
		olds = append(olds, o)
		return err
	}, c.args...)
	if err != nil {
		return err
	}
	var ids []string
	for _, o := range olds {
		p.last, p.lastSeq = o.at, o.seq
		p.met++
		if !o.content {
			p.empty++
			continue
		}
		n, err := t.exec("replay", s.names.sql(replaySQL), o.row)
		if err != nil {
			return err
		}
		if n > 0 {
			ids, p.done = append(ids, o.id), p.done+1
		}
	}
	return s.noteCommand(t, "replay", by, ids)
}
