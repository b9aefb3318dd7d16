package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// drainingSQL finds the lanes in which a key's held rows are still being brought
// back.
const drainingSQL = `SELECT DISTINCT b.lane FROM {blocks} b WHERE b.seq = 0 AND b.lane >= 0 LIMIT 64`

// entries is the CTE e of a statement that removes entries: those of the rows in
// rows (which has ordering_key and seq). They are looked up one by one: joined, a
// plan made while there were no entries would walk over all of them for ever after.
func entries(rows string) string {
	return `
e AS MATERIALIZED (
  SELECT x.okey, x.seq, x.ctid FROM ` + rows + ` g CROSS JOIN LATERAL (
    SELECT b.ordering_key AS okey, b.seq, b.ctid FROM {blocks} b WHERE b.ordering_key = g.ordering_key AND b.seq = g.seq LIMIT 1) x),
removed AS (DELETE FROM {blocks} b WHERE b.ctid = ANY (ARRAY(SELECT e.ctid FROM e))),
k AS (SELECT DISTINCT e.okey FROM e),`
}

// release is the tail of every statement that removes entries. It begins where e
// has the entries that go and k the keys that have to be looked at. Held rows of a
// key come back up to its next entry. More than a chunk of them stay held behind the
// drain marker, seq 0, which holds back the whole key until the rest has come back
// too: with the entry gone and no marker, a later row would overtake them, and if
// the one who releases died between two chunks they would wait for ever.
var release = fmt.Sprintf(`
low AS MATERIALIZED (
  SELECT k.okey, coalesce((
           SELECT b.seq FROM {blocks} b
            WHERE b.ordering_key = k.okey AND b.seq > 0
              AND b.seq <> ALL (ARRAY(SELECT e.seq FROM e WHERE e.okey = k.okey))
            ORDER BY b.ordering_key, b.seq LIMIT 1), 9223372036854775807) AS seq
    FROM k),
r AS MATERIALIZED (
  SELECT low.okey, h.seq FROM low CROSS JOIN LATERAL (
    SELECT m.seq FROM {messages} m
     WHERE m.state = 2 AND m.ordering_key = low.okey AND m.seq < low.seq
     ORDER BY m.ordering_key, m.seq LIMIT %[1]d) h
   LIMIT %[1]d),
last AS (SELECT r.okey, max(r.seq) AS seq FROM r GROUP BY r.okey),
rest AS MATERIALIZED (
  SELECT low.okey FROM low LEFT JOIN last ON last.okey = low.okey CROSS JOIN LATERAL (
    SELECT m.seq FROM {messages} m
     WHERE m.state = 2 AND m.ordering_key = low.okey AND m.seq < low.seq AND m.seq > coalesce(last.seq, 0)
     ORDER BY m.ordering_key, m.seq LIMIT 1) h),
released AS (UPDATE {messages} m SET state = 0 WHERE m.seq = ANY (ARRAY(SELECT r.seq FROM r)) AND %[2]s RETURNING m.seq),
marked AS (INSERT INTO {blocks} (ordering_key, seq) SELECT okey, 0 FROM rest ON CONFLICT DO NOTHING),
unmarked AS (
  DELETE FROM {blocks} b WHERE b.ctid = ANY (ARRAY(
    SELECT x.ctid FROM low CROSS JOIN LATERAL (SELECT b.ctid FROM {blocks} b WHERE b.ordering_key = low.okey AND b.seq = 0 LIMIT 1) x
     WHERE low.okey NOT IN (SELECT rest.okey FROM rest))))`, chunk, stateIs(2))

// drainSQL goes on with what a release had to leave, for keys of lanes that are
// locked.
var drainSQL = `
WITH marks AS MATERIALIZED (SELECT b.ordering_key AS okey, b.lane FROM {blocks} b WHERE b.seq = 0 AND b.lane >= 0 ORDER BY b.lane NULLS FIRST LIMIT 10000),
k AS MATERIALIZED (SELECT marks.okey FROM marks WHERE marks.lane = ANY ($1::smallint[]) LIMIT 16),
e AS (SELECT NULL::text COLLATE "C" AS okey, NULL::bigint AS seq WHERE false),` + release + `
SELECT (SELECT count(*) FROM released) + (SELECT count(*) FROM k)`

// drainMarked brings back one more chunk of rows in lanes with a marker, and
// returns how many came and how many markers were looked at. Lanes that others have locked are left to others.
func (s *Store) drainMarked(ctx context.Context, marked []int16) (drained int) {
	if len(marked) == 0 {
		return 0
	}
	err := retried(ctx, func() error {
		return s.with(ctx, func(conn *pgx.Conn) error {
			var locked []int16
			if err := s.send(ctx, conn, begin(), limits(lockTimeout),
				statement{name: "lock free", sql: s.q.lockFree, args: []any{marked}, rows: collect(&locked)}); err != nil {
				return err
			}
			if len(locked) == 0 {
				return s.send(ctx, conn, commit())
			}
			return s.send(ctx, conn, statement{name: "drain", sql: s.q.drain, args: []any{locked}, rows: count(&drained)}, commit())
		})
	})
	if err != nil {
		s.later(ctx, "drain", err) // the marker stands, and the next claim sees it
	}
	return drained
}
