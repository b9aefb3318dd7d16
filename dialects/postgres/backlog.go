package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outward-dev/outward/engine"
)

// countCap is how far Backlog counts.
const countCap = 10_000

// Every part reads one index and stops at the cap. The oldest message is the oldest
// of the lanes' heads and of the first row that is aside (waiting or held).
var backlogSQL = `
SELECT ` + capped(`{messages} m WHERE m.state = 0`) + `,
       ` + capped(`{messages} m WHERE m.state = 1 AND m.paused_for IS NULL`) + `,
       ` + capped(`{messages} m WHERE m.state = 2`) + `,
       ` + capped(`{messages} m WHERE m.state = 3`) + `,
       ` + capped(`{messages} m WHERE m.paused_for IS NOT NULL`) + `,
       (SELECT count(*) FROM {lanes} l WHERE l.lease_until > now() AND cardinality(l.handed_seq) > 0)
         + ` + capped(`{messages} m WHERE m.lease_token IS NOT NULL AND m.available_at > now()`) + `,
       coalesce((extract(epoch FROM clock_timestamp() - least(
         (SELECT min(h.created_at) FROM {lanes} l CROSS JOIN LATERAL (
            SELECT m.created_at FROM {messages} m WHERE m.lane = l.lane AND m.state = 0 ORDER BY m.lane, m.seq NULLS FIRST LIMIT 1) h),
         (SELECT m.created_at FROM {messages} m WHERE m.state IN (1, 2) AND m.lane >= 0 ORDER BY m.seq NULLS FIRST LIMIT 1))) * 1000000)::bigint, 0),
       (SELECT count(DISTINCT k.ordering_key) FROM (SELECT b.ordering_key FROM {blocks} b ORDER BY b.ordering_key, b.seq LIMIT 20001) k),
       (SELECT count(*) FROM (SELECT FROM {blocks} b ORDER BY b.ordering_key, b.seq LIMIT 20001) k),
       coalesce((SELECT (extract(epoch FROM clock_timestamp() - m.created_at) * 1000000)::bigint
          FROM {messages} m WHERE m.seq = (SELECT b.seq FROM {blocks} b WHERE b.seq > 0 AND b.lane >= 0 ORDER BY b.seq LIMIT 1)), 0)`

func capped(what string) string {
	return fmt.Sprintf(`(SELECT count(*) FROM (SELECT FROM %s LIMIT %d) c)`, what, countCap+1)
}

// Backlog implements [engine.Monitor]. Leased counts lanes and
// detached messages; the latter are waiting as well.
func (s *Store) Backlog(ctx context.Context) (engine.Backlog, error) {
	var ready, timed, held, dead, parked, leased, keys, entries int
	var oldest, oldestHold int64
	err := s.run(ctx, func() []statement {
		return transaction(lockTimeout, statement{name: "backlog", sql: s.q.backlog, rows: func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&ready, &timed, &held, &dead, &parked, &leased, &oldest, &keys, &entries, &oldestHold); err != nil {
					return err
				}
			}
			return rows.Err()
		}})
	})
	if err != nil {
		return engine.Backlog{}, fmt.Errorf("postgres: backlog: %w", err)
	}
	c := func(n int) engine.Count { return engine.Count{N: min(n, countCap), Capped: n > countCap} }
	b := engine.Backlog{Ready: c(ready), Waiting: c(timed + parked), Held: c(held), Dead: c(dead), Parked: c(parked), Leased: leased,
		Oldest: time.Duration(oldest) * time.Microsecond, HeldKeys: c(keys), OldestHold: time.Duration(oldestHold) * time.Microsecond}
	b.HeldKeys.Capped = b.HeldKeys.Capped || entries > 20000
	return b, nil
}
