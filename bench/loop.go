package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outward-dev/outward/engine"
)

// A design is a table with the statements that claim and finish a batch.
type design struct {
	create string
	claim  string // $1 limit, $2 token: id, message_id, type, payload
	finish string // $1 ids, $2 token
}

// designA1 is the text-book outbox: one wide table, a row lease that moves an
// indexed due time, FOR UPDATE SKIP LOCKED, published rows kept by UPDATE.
var designA1 = design{
	create: wide("state smallint NOT NULL DEFAULT 0, due_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz", "") + `;
CREATE INDEX ON {s}.outbox (due_at, id) WHERE state = 0`,
	claim: `
WITH c AS (SELECT id FROM {s}.outbox WHERE state = 0 AND due_at <= now() ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE {s}.outbox m SET token = $2, due_at = now() + interval '30 seconds' FROM c WHERE m.id = c.id
RETURNING m.id, m.message_id, m.type, m.payload`,
	finish: `UPDATE {s}.outbox SET state = 1, published_at = now(), token = NULL WHERE id = ANY($1) AND token = $2`,
}

// byHand is what one would write who knows the database well: the lease is in no
// index and the pages have room for a second copy of each row, so that taking it is
// a small change; what is published is deleted, a batch at a time.
var byHand = design{
	create: wide("lease_until timestamptz NOT NULL DEFAULT '-infinity'", "WITH (fillfactor = 45)"),
	claim: `
WITH c AS (SELECT id FROM {s}.outbox WHERE lease_until <= now() ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE {s}.outbox m SET token = $2, lease_until = now() + interval '30 seconds' FROM c WHERE m.id = c.id
RETURNING m.id, m.message_id, m.type, m.payload`,
	finish: `DELETE FROM {s}.outbox WHERE id = ANY($1) AND token = $2`,
}

func wide(columns, with string) string {
	return `
CREATE TABLE {s}.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message_id uuid NOT NULL DEFAULT gen_random_uuid(),
    topic text NOT NULL, ordering_key text, type text NOT NULL, headers jsonb NOT NULL DEFAULT '{}', payload bytea NOT NULL,
    occurred_at timestamptz NOT NULL DEFAULT now(), created_at timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL DEFAULT 0, last_error text, token uuid, ` + columns + `
) ` + with
}

// A loop drains the table of a design by claim, publish, finish, with as many
// batches in flight as Outward has. It does nothing else: no order per key, no
// second thoughts about a message that failed, no word to an operator.
type loop struct {
	design   design
	to       target
	snapshot bool
}

func (l loop) run(ctx context.Context, b *bench, n int) (f figures, err error) {
	err = b.scratch(ctx, func(s *scratch) error {
		if err := b.exec(ctx, s, l.design.create); err != nil {
			return err
		}
		if err := b.fill(ctx, s, "outbox", func() error {
			return b.exec(ctx, s, "INSERT INTO {s}.outbox (topic, type, payload) SELECT $1, 'bench.v1', $2 FROM generate_series(1, $3::integer)", topic, b.payload, n)
		}); err != nil {
			return err
		}
		return b.held(ctx, l.snapshot, func() error {
			f, err = l.drain(ctx, s, n)
			return err
		})
	})
	return f, err
}

func (l loop) drain(ctx context.Context, s *scratch, n int) (f figures, err error) {
	p, err := l.to.open(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	var publishers []publisher
	for range inFlight {
		pub, err := p.publisher(batch)
		if err != nil {
			return f, err
		}
		publishers = append(publishers, pub)
	}
	if err := s.meter.start(ctx); err != nil {
		return f, err
	}
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	failed := make(chan error, inFlight)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, pub := range publishers {
		wg.Go(func() {
			for left.Load() > 0 {
				done, err := l.step(ctx, s, pub)
				if err != nil {
					failed <- err
					cancel()
					return
				}
				left.Add(int64(-done))
			}
		})
	}
	wg.Wait()
	f, err = s.meter.stop(context.WithoutCancel(ctx), n)
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	for _, pub := range publishers {
		err = errors.Join(err, pub.close())
	}
	return f, err
}

type claimed struct {
	id  int64
	msg message
}

// step moves one batch and returns how many messages it had.
func (l loop) step(ctx context.Context, s *scratch, pub publisher) (int, error) {
	token := [16]byte(engine.NewID())
	rows, err := s.pool.Query(ctx, strings.ReplaceAll(l.design.claim, "{s}", s.schema), batch, token)
	if err != nil {
		return 0, err
	}
	got, err := pgx.AppendRows(make([]claimed, 0, batch), rows, func(row pgx.CollectableRow) (c claimed, err error) {
		var id [16]byte
		err = row.Scan(&c.id, &id, &c.msg.typ, &c.msg.body)
		c.msg.id = engine.ID(id).String()
		return c, err
	})
	if err != nil {
		return 0, err
	}
	if len(got) == 0 {
		time.Sleep(time.Millisecond) // others have the rest in hand
		return 0, nil
	}
	slices.SortFunc(got, func(a, b claimed) int { return cmp.Compare(a.id, b.id) })
	if err := pub.publish(ctx, messagesOf(got)); err != nil {
		return 0, err
	}
	ids := make([]int64, len(got))
	for i := range got {
		ids[i] = got[i].id
	}
	tag, err := s.pool.Exec(ctx, strings.ReplaceAll(l.design.finish, "{s}", s.schema), ids, token)
	if err == nil && int(tag.RowsAffected()) != len(got) {
		err = fmt.Errorf("%d of %d rows were finished: a lease ran out", tag.RowsAffected(), len(got))
	}
	return len(got), err
}

func messagesOf(rows []claimed) iter.Seq[message] {
	return func(yield func(message) bool) {
		for i := range rows {
			if !yield(rows[i].msg) {
				return
			}
		}
	}
}
