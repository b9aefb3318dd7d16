package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// holdSQL holds rows that a claim read as blocked. That is only a hint: between then
// and now the entry may have gone, and a row held without one would wait for ever.
// So the statement looks again, after the lock, and under the claim's token, for a
// ready row may be in the hands of whoever has the lane now.
//
// A row that has an entry of its own keeps its place by that entry, and stays. But
// where such rows crowd the front of a lane (a lost connection leaves hundreds of
// them behind one that is dead) every claim would read them in vain and the lane
// would stand still; so there ($3) they are held as well and their entries go. The
// smaller entry holds back what is behind them anyway.
var holdSQL = `
WITH c AS MATERIALIZED (
  SELECT m.seq, m.ordering_key
    FROM {messages} m CROSS JOIN LATERAL (
      SELECT b.seq FROM {blocks} b WHERE b.ordering_key = m.ordering_key ORDER BY b.ordering_key, b.seq LIMIT 1) low
   WHERE m.seq = ANY ($1::bigint[]) AND ` + stateIs(0) + ` AND m.lane = ANY (ARRAY(SELECT l.lane FROM {lanes} l WHERE l.token = $2::uuid))
     AND low.seq > 0 AND low.seq < m.seq
     AND ($3::boolean OR (SELECT b.seq FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq = m.seq LIMIT 1) IS NULL)),
own AS MATERIALIZED (
  SELECT o.ctid FROM c CROSS JOIN LATERAL (SELECT b.ctid FROM {blocks} b WHERE b.ordering_key = c.ordering_key AND b.seq = c.seq LIMIT 1) o),
h AS (UPDATE {messages} m SET state = 2 WHERE m.seq = ANY (ARRAY(SELECT c.seq FROM c)) AND ` + stateIs(0) + ` RETURNING m.seq),
e AS (DELETE FROM {blocks} b WHERE b.ctid = ANY (ARRAY(SELECT own.ctid FROM own)))
SELECT count(*) FROM h`

// holdBlocked moves the blocked rows that were read out of the ready set, so that
// each is met once. It returns how many went.
func (s *Store) holdBlocked(ctx context.Context, r *look) (held int) {
	if len(r.Behind) == 0 {
		return 0
	}
	seqs := make([]int64, len(r.Behind))
	for i, row := range r.Behind {
		seqs[i] = row.Receipt.Seq
	}
	err := s.run(ctx, func() []statement {
		return transaction(r.req.Lease, s.lockStatement(r.lanes, nil),
			statement{name: "hold", sql: s.q.hold, args: []any{seqs, uuidOf(r.token), r.Crowded()}, rows: count(&held)})
	})
	if err != nil {
		s.later(ctx, "hold", err) // the next claim reads them again
		return 0
	}
	return held
}

// count reads a result of one number.
func count(n *int) func(rows pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(n); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}
