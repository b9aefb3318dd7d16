package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// extendLanesSQL renews the leases of lanes by the database's clock; it never adds
// to an old deadline. A lease that ran out and that nobody took is alive again. A
// freed lane is not: what it had handed out is answered, and nobody would answer
// for it a second time.
const extendLanesSQL = `
UPDATE {lanes} l SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
  FROM unnest($1::smallint[], $2::uuid[]) AS v(lane, token)
 WHERE l.lane = v.lane AND l.token = v.token AND cardinality(l.handed_seq) > 0`

// extendRowsSQL renews the leases of detached rows.
var extendRowsSQL = `
UPDATE {messages} m SET available_at = clock_timestamp() + $5::bigint * interval '1 microsecond'
  FROM unnest($1::bigint[], $2::smallint[], $3::smallint[]) AS v(seq, lane, t)
 WHERE m.seq = ANY ($1::bigint[]) AND ` + stateIs(1) + ` AND m.lease_token = ANY ($4::uuid[])
   AND m.seq = v.seq AND m.lane = v.lane AND m.lease_token = ($4::uuid[])[v.t]`

// extendLostsSQL finds the receipts that no longer hold: their lane is another's, or
// it was freed and the row has come back; and they are not detached.
const extendLostsSQL = `
SELECT v.n
  FROM unnest($1::bigint[], $2::smallint[], $3::smallint[]) WITH ORDINALITY AS v(seq, lane, t, n)
  LEFT JOIN LATERAL (SELECT l.lane, cardinality(l.handed_seq) AS handed FROM {lanes} l
                      WHERE l.lane = v.lane AND l.token = ($4::uuid[])[v.t] LIMIT 1) l ON true
  LEFT JOIN LATERAL (SELECT m.state, m.lease_token FROM {messages} m WHERE m.seq = v.seq AND m.lane = v.lane LIMIT 1) m ON true
 WHERE NOT coalesce(m.state = 1 AND m.lease_token = ($4::uuid[])[v.t], false)
   AND (l.lane IS NULL OR l.handed = 0 AND m.state = 0)`

// Extend implements [engine.Store].
func (s *Store) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) (lost []engine.Receipt, err error) {
	if len(rs) == 0 {
		return nil, nil
	}
	if lease <= 0 {
		return nil, fmt.Errorf("postgres: extend: lease %v must be positive", lease)
	}
	start := time.Now()
	type held struct {
		lane  int16
		token engine.ID
	}
	var (
		tokens     tokenList
		seqs       []int64
		rowLanes   []int16
		t          []int16
		heldLanes  []int16
		heldTokens []pgtype.UUID
	)
	seen := map[held]bool{}
	for _, r := range rs {
		lane := reading.LaneOf(r)
		seqs, rowLanes, t = append(seqs, r.Seq), append(rowLanes, lane), append(t, tokens.add(r.Token))
		if h := (held{lane, r.Token}); !seen[h] {
			seen[h] = true
			heldLanes, heldTokens = append(heldLanes, lane), append(heldTokens, uuidOf(r.Token))
		}
	}
	us := writing.Microseconds(lease)
	var losts []int64
	err = s.run(ctx, func() []statement {
		return transaction(lockTimeout,
			s.lockStatement(reading.LanesOf(lanes, len(rs), func(i int) engine.Receipt { return rs[i] }), nil),
			statement{name: "extend lanes", sql: s.q.extendLanes, args: []any{heldLanes, heldTokens, us}},
			statement{name: "extend rows", sql: s.q.extendRows, args: []any{seqs, rowLanes, t, tokens.list, us}},
			statement{name: "extend lost", sql: s.q.extendLosts, args: []any{seqs, rowLanes, t, tokens.list}, rows: collect(&losts)})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: extend: %w", err)
	}
	for _, n := range losts {
		lost = append(lost, rs[n-1])
	}
	s.claims.Forget(lost)
	for token := range tokens.index {
		s.claims.Extended(token, lease, start)
	}
	return lost, nil
}
