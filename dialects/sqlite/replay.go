package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/engine"
)

// replayedSQL finds archived messages, those last settled last, so that they come
// in the order in which they went.
const replayedSQL = `
SELECT m.id, m.message_id, m.settled_at, m.seq, m.content FROM {archive} m
 WHERE %s
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
var ErrNoContent = records.ErrNoContent

// Replay implements [engine.Operator]. It takes what was settled before it began.
// Messages without a payload in the archive are left out, and in the end the error
// says how many they were.
func (s *Store) Replay(ctx context.Context, f engine.Filter, by engine.Actor) (n int, err error) {
	fail := func(err error) (int, error) { return n, fmt.Errorf("sqlite: replay: %w", err) }
	span, err := s.span(ctx, &f)
	if err != nil {
		return fail(err)
	}
	empty := 0
	n, err = records.Chunks(f.Limit, func(left int) (met, done int, err error) {
		page := &replayPage{}
		err = s.write(ctx, func(t *tx) error {
			*page = replayPage{span: span}
			return s.replayOnce(t, f, by, left, page)
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

// replayPage is one chunk of a replay: where it goes on from, and what it did.
type replayPage struct {
	span
	met, done, empty int
}

func (s *Store) replayOnce(t *tx, f engine.Filter, by engine.Actor, left int, p *replayPage) error {
	c := p.conditions(f)
	type old struct {
		row     int64
		id      string
		at, seq int64
		content bool
	}
	var olds []old
	err := t.query("replayed", s.names.sql(fmt.Sprintf(replayedSQL, c.String(), left)), func(rows *sql.Rows) error {
		var o old
		err := rows.Scan(&o.row, &o.id, &o.at, &o.seq, &o.content)
		olds = append(olds, o)
		return err
	}, c.Args...)
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
