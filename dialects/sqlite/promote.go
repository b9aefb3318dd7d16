package sqlite

import (
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
)

// namesSQL are the pauses that rows are parked for. They are found by skipping
// through the index, one step per name: with nothing parked it is one look.
const namesSQL = `names(name) AS (
  SELECT (SELECT min(m.paused_for) FROM {messages} m WHERE m.state = 1 AND m.paused_for IS NOT NULL)
  UNION ALL
  SELECT (SELECT min(m.paused_for) FROM {messages} m WHERE m.state = 1 AND m.paused_for IS NOT NULL AND m.paused_for > n.name)
    FROM names n WHERE n.name IS NOT NULL)`

const overSQL = `FROM names n WHERE n.name IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {pauses} p WHERE p.destination = n.name)`

// peekSQL asks what there is to do. It only reads, so a relay that polls an idle
// table never takes the write lock from anybody, and never waits for it.
const peekSQL = `
WITH RECURSIVE ` + namesSQL + `
SELECT EXISTS (SELECT 1 FROM {messages} m WHERE m.state = 1 AND m.available_at <= {now}),
       EXISTS (SELECT 1 ` + overSQL + `),
       EXISTS (SELECT 1 FROM {blocks} b WHERE b.seq = 0),
       EXISTS (SELECT 1 FROM {lanes} l WHERE l.lease_until <= {now}
          AND (SELECT m.seq FROM {messages} m WHERE m.lane = l.lane AND m.state = 0 ORDER BY m.lane, m.seq LIMIT 1) IS NOT NULL)`

// promoteSQL brings back what is due. A row that a claim had detached loses that
// claim's token, else the old holder would settle the new one's row; and since
// nobody knows what became of its holder, it goes alone from now on. Entries stay:
// who settles a row removes its entry.
const promoteSQL = `
UPDATE {messages}
   SET state = 0, lease_token = NULL, paused_for = NULL,
       company = CASE WHEN lease_token IS NULL THEN company ELSE 1 END,
       stamp   = CASE WHEN lease_token IS NULL THEN stamp ELSE stamp + 1 END
 WHERE seq IN (SELECT m.seq FROM {messages} m WHERE m.state = 1 AND m.available_at <= {now} ORDER BY m.available_at, m.seq LIMIT ?1)`

// pausesOverSQL names the pauses that are no more and that rows still wait for. So a
// resumption only deletes the pause, and whatever happens then, the relays bring
// back the rest.
const pausesOverSQL = `
WITH RECURSIVE ` + namesSQL + `
SELECT n.name ` + overSQL

const unparkSQL = `
UPDATE {messages} SET state = 0, paused_for = NULL, available_at = {now}
 WHERE seq IN (SELECT m.seq FROM {messages} m WHERE m.state = 1 AND m.paused_for = ?1 ORDER BY m.paused_for, m.seq LIMIT ?2)`

// promote brings back what is due, and with pauses what waited for a pause that has
// ended.
func (s *Store) promote(t *tx, w *toDo, b *budget, pauses bool) error {
	if w.due {
		n, err := t.exec("promote", s.q.promote, b.left)
		if err != nil {
			return err
		}
		b.spend(n)
	}
	if !w.over || !pauses || b.over() {
		return nil
	}
	var names []string
	if err := t.query("pauses over", s.q.pausesOver, sqlrows.Collect(&names)); err != nil {
		return err
	}
	for _, name := range names {
		if b.over() {
			break
		}
		n, err := t.exec("unpark", s.q.unpark, name, b.left)
		if err != nil {
			return err
		}
		b.spend(n)
	}
	return nil
}
