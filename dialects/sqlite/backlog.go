package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/engine"
)

// countCap is how far Backlog counts.
const countCap = 10_000

// Every part reads one index and stops at the cap. The oldest message is the oldest
// of the lanes' heads and of the first row that is aside (waiting or held).
var backlogSQL = `
SELECT ` + capped(`{messages} m WHERE m.state = 0`) + `,
       ` + capped(`{messages} m WHERE m.state = 1`) + `,
       ` + capped(`{messages} m WHERE m.state = 2`) + `,
       ` + capped(`{messages} m WHERE m.state = 3`) + `,
       ` + capped(`{messages} m WHERE m.state = 1 AND m.paused_for IS NOT NULL`) + `,
       (SELECT count(*) FROM {lanes} l WHERE l.lease_until > {now} AND l.handed <> '[]')
         + ` + capped(`{messages} m WHERE m.state = 1 AND m.lease_token IS NOT NULL AND m.available_at > {now}`) + `,
       coalesce({now} - (SELECT min(o.at) FROM (
         SELECT (SELECT m.created_at FROM {messages} m WHERE m.lane = l.lane AND m.state = 0 ORDER BY m.lane, m.seq LIMIT 1) AS at FROM {lanes} l
         UNION ALL
         SELECT (SELECT m.created_at FROM {messages} m WHERE m.state IN (1, 2) ORDER BY m.seq LIMIT 1)) o), 0),
       (SELECT count(DISTINCT k.ordering_key) FROM (SELECT b.ordering_key FROM {blocks} b ORDER BY b.ordering_key, b.seq LIMIT 20001) k),
       (SELECT count(*) FROM (SELECT 1 FROM {blocks} b LIMIT 20001) k),
       coalesce({now} - (SELECT m.created_at FROM {messages} m WHERE m.seq = (SELECT min(b.seq) FROM {blocks} b WHERE b.seq > 0)), 0)`

func capped(what string) string {
	return fmt.Sprintf(`(SELECT count(*) FROM (SELECT 1 FROM %s LIMIT %d) c)`, what, countCap+1)
}

// Backlog implements [engine.Monitor]. Leased counts lanes and detached messages;
// the latter are waiting as well.
func (s *Store) Backlog(ctx context.Context) (engine.Backlog, error) {
	var ready, waiting, held, dead, parked, leased, keys, entries int
	var oldest, oldestHold int64
	err := retried(ctx, func() error {
		return sqlrows.Query(ctx, s.db, "backlog", s.names.sql(backlogSQL), func(rows *sql.Rows) error {
			return rows.Scan(&ready, &waiting, &held, &dead, &parked, &leased, &oldest, &keys, &entries, &oldestHold)
		})
	})
	if err != nil {
		return engine.Backlog{}, fmt.Errorf("sqlite: %w", err)
	}
	c := func(n int) engine.Count { return engine.Count{N: min(n, countCap), Capped: n > countCap} }
	b := engine.Backlog{Ready: c(ready), Waiting: c(waiting), Held: c(held), Dead: c(dead), Parked: c(parked), Leased: leased,
		Oldest: time.Duration(oldest) * time.Microsecond, HeldKeys: c(keys), OldestHold: time.Duration(oldestHold) * time.Microsecond}
	b.HeldKeys.Capped = b.HeldKeys.Capped || entries > 20000
	return b, nil
}
