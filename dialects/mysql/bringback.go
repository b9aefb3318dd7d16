package mysql

import (
	"context"
	"database/sql"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
)

// namesSQL are the pauses that rows are parked for. They are found by skipping
// through the index, one step per name: with nothing parked it is one look.
const namesSQL = `names (name) AS (
  SELECT (SELECT MIN(m.paused_for) FROM {messages} m WHERE m.paused_for IS NOT NULL)
  UNION ALL
  SELECT (SELECT MIN(m.paused_for) FROM {messages} m WHERE m.paused_for > n.name) FROM names n WHERE n.name IS NOT NULL)`

const overSQL = `FROM names n WHERE n.name IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {pauses} p WHERE p.destination = n.name)`

// peekSQL asks what there is to bring back.
const peekSQL = `
WITH RECURSIVE ` + namesSQL + `
SELECT EXISTS (SELECT 1 FROM {messages} m WHERE m.state = 1 AND m.available_at <= {now}),
       EXISTS (SELECT 1 ` + overSQL + `),
       EXISTS (SELECT 1 FROM {blocks} b WHERE b.seq = 0)`

// dueSQL locks what is due and nobody else has locked, in the order of the index.
const dueSQL = `
SELECT m.seq FROM {messages} m FORCE INDEX ({i_due}) WHERE m.state = 1 AND m.available_at <= {now}
 ORDER BY m.state, m.available_at, m.seq LIMIT ? FOR UPDATE SKIP LOCKED`

// promoteSQL brings back what is due. A row that a claim had detached loses that
// claim's token, else the old holder would settle the new one's row; and since
// nobody knows what became of its holder, it goes alone from now on. Entries stay:
// who settles a row removes its entry. The token goes last: assignments are made from
// left to right.
const promoteSQL = `
UPDATE {messages} ` + byKey + `
   SET company = CASE WHEN lease_token IS NULL THEN company ELSE 1 END,
       stamp   = CASE WHEN lease_token IS NULL THEN stamp ELSE stamp + 1 END,
       state = 0, lease_token = NULL, paused_for = NULL
 WHERE seq IN (?) AND state = 1`

// pausesOverSQL names the pauses that are no more and that rows still wait for. So a
// resumption only deletes the pause, and whatever happens then, the relays bring
// back the rest.
const pausesOverSQL = `
WITH RECURSIVE ` + namesSQL + `
SELECT n.name ` + overSQL

const (
	parkedSQL = `
SELECT m.seq FROM {messages} m FORCE INDEX ({i_parked}) WHERE m.paused_for = ? ORDER BY m.seq LIMIT ? FOR UPDATE SKIP LOCKED`
	unparkSQL = `UPDATE {messages} ` + byKey + ` SET state = 0, paused_for = NULL, available_at = {now} WHERE seq IN (?) AND state = 1 AND paused_for = ?`
)

// toDo is what peekSQL found.
type toDo struct{ due, over, draining bool }

func (s *Store) peek(ctx context.Context) (w toDo, err error) {
	err = retried(ctx, func() error {
		return queryRows(ctx, s.db, "peek", s.q.peek, func(rows *sql.Rows) error { return rows.Scan(&w.due, &w.over, &w.draining) })
	})
	return w, err
}

// bringBack makes ready what is due, with pauses what waited for a pause that has
// ended, and what earlier releases had to leave. Each is a transaction of its own:
// promotion locks no lane, and a transaction that locked lanes after rows could wait
// for one that does it in the right order. It returns how many rows it moved where
// there may be more of them.
func (s *Store) bringBack(ctx context.Context, w toDo, pauses bool) (moved int, err error) {
	if w.due {
		n, err := s.promote(ctx, s.q.due, s.q.promote)
		if moved += full(n, s.chunk); err != nil {
			return moved, err
		}
	}
	if w.over && pauses {
		var names []string
		if err := retried(ctx, func() error { return queryRows(ctx, s.db, "pauses over", s.q.pausesOver, sqlrows.Collect(&names)) }); err != nil {
			return moved, err
		}
		for _, name := range names {
			n, err := s.unpark(ctx, name)
			if moved += full(n, s.chunk); err != nil {
				return moved, err
			}
		}
	}
	if w.draining {
		n, err := s.drain(ctx)
		if moved += n; err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// full is n if it is a whole chunk.
func full(n, chunk int) int {
	if n < chunk {
		return 0
	}
	return n
}

func (s *Store) promote(ctx context.Context, due, promote string) (n int, err error) {
	err = s.write(ctx, func(t *tx) error {
		var seqs []int64
		if err := t.query("due", due, sqlrows.Collect(&seqs), s.chunk); err != nil || len(seqs) == 0 {
			n = 0
			return err
		}
		n = len(seqs)
		_, err := t.exec("promote", promote, seqs)
		return err
	})
	return n, err
}

func (s *Store) unpark(ctx context.Context, name string) (n int, err error) {
	err = s.write(ctx, func(t *tx) error {
		var seqs []int64
		if err := t.query("parked", s.q.parked, sqlrows.Collect(&seqs), name, s.chunk); err != nil || len(seqs) == 0 {
			n = 0
			return err
		}
		n = len(seqs)
		_, err := t.exec("unpark", s.q.unpark, seqs, name)
		return err
	})
	return n, err
}

// drain goes on with what earlier releases had to leave: for keys of one lane that
// nobody has locked.
func (s *Store) drain(ctx context.Context) (moved int, err error) {
	err = s.write(ctx, func(t *tx) error {
		moved = 0
		var keys []blocked
		err := t.query("markers", s.q.markers, func(rows *sql.Rows) error {
			var k blocked
			err := rows.Scan(&k.key, &k.lane)
			keys = append(keys, k)
			return err
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		var free []int16
		if err := t.query("drained lanes", s.q.drainedLanes, sqlrows.Collect(&free), lanesOfKeys(keys)); err != nil {
			return err
		}
		b := s.newBudget()
		for _, k := range keys {
			if b.over() {
				break
			}
			for _, lane := range free {
				if lane == k.lane {
					if err := s.release(t, k, b); err != nil {
						return err
					}
				}
			}
		}
		moved = s.chunk - b.left
		return nil
	})
	return moved, err
}

func lanesOfKeys(keys []blocked) (ls []int16) {
	seen := map[int16]bool{}
	for _, k := range keys {
		if !seen[k.lane] {
			seen[k.lane], ls = true, append(ls, k.lane)
		}
	}
	return ls
}
