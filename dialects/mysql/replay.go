package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/engine"
)

// replayedSQL finds archived messages, those last settled last, so that they come
// in the order in which they went.
var replayedSQL = `
SELECT m.id, m.message_id, ` + micros("m.settled_at") + `, m.seq, m.content, EXISTS (SELECT 1 FROM {messages} w WHERE w.message_id = m.message_id)
  FROM {archive} m
 WHERE %s
 ORDER BY m.settled_at, m.seq, m.id LIMIT %d`

// replaySQL enqueues archived messages again, in their order.
const replaySQL = `
INSERT INTO {messages} (message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
       content_type, headers, payload, payload_text, occurred_at, resends)
SELECT message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id,
       content_type, headers, payload, payload_text, occurred_at, resends + 1
  FROM {archive} WHERE id IN (?) ORDER BY settled_at, seq, id`

// ErrNoContent is the error of a replay that met messages of which the archive
// kept only the metadata.
var ErrNoContent = records.ErrNoContent

// Replay implements [engine.Operator]. It takes what was settled before it began.
// Messages that are waiting already stay as they are. Those without a payload in the
// archive are left out, and in the end the error says how many they were.
func (s *Store) Replay(ctx context.Context, f engine.Filter, by engine.Actor) (n int, err error) {
	fail := func(err error) (int, error) { return n, fmt.Errorf("mysql: replay: %w", err) }
	span, err := s.span(ctx, &f)
	if err != nil {
		return fail(err)
	}
	empty := 0
	n, err = records.Chunks(f.Limit, func(left int) (met, done int, err error) {
		page := &replayPage{}
		err = retriedDuplicate(func() error {
			return s.write(ctx, func(t *tx) error {
				*page = replayPage{span: span}
				return s.replayOnce(t, f, by, left, page)
			})
		})
		if err != nil {
			return 0, 0, err
		}
		empty, span = empty+page.empty, page.span
		return page.met, page.done, nil
	})
	if err != nil {
		return fail(err)
	}
	if n > 0 {
		s.Wake()
	}
	if empty > 0 {
		return fail(fmt.Errorf("%w: %d left out", ErrNoContent, empty))
	}
	return n, nil
}

// retriedDuplicate runs f again when a producer has enqueued one of the messages
// meanwhile: the next time it is seen to be waiting.
func retriedDuplicate(f func() error) (err error) {
	for range 10 {
		if err = f(); number(err) != errDuplicate {
			return err
		}
	}
	return err
}

// replayPage is one chunk of a replay: where it goes on from, and what it did.
type replayPage struct {
	span
	met, done, empty int
}

func (s *Store) replayOnce(t *tx, f engine.Filter, by engine.Actor, left int, p *replayPage) error {
	c := p.conditions(f)
	var rows []int64
	var ids []engine.ID
	err := t.query("replayed", s.names.sql(fmt.Sprintf(replayedSQL, c.String(), left)), func(r *sql.Rows) error {
		var row int64
		var id []byte
		var content, waiting bool
		if err := r.Scan(&row, &id, &p.last, &p.lastSeq, &content, &waiting); err != nil {
			return err
		}
		p.met++
		switch {
		case !content:
			p.empty++
		case !waiting:
			rows, ids = append(rows, row), append(ids, engine.ID(id))
		}
		return nil
	}, c.Args...)
	if err != nil || len(rows) == 0 {
		return err
	}
	if _, err := t.exec("replay", s.names.sql(replaySQL), rows); err != nil {
		return err
	}
	p.done = len(rows)
	return s.noteCommand(t, "replay", by, ids)
}
