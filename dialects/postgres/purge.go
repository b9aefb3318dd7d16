package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// purgeSQL deletes the oldest settled rows whose time is over, along the primary
// key. One purger at a time: two would wait for each other's rows and delete half
// as much. The lock is the transaction's, so none is left behind.
const purgeSQL = `
WITH alone AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(hashtextextended('outward purge ' || $2::text, 0)) AS mine),
kept AS MATERIALIZED (SELECT now() - retention AS published, now() - discard_retention AS discarded FROM {schema_}),
old AS MATERIALIZED (
  SELECT a.ctid FROM {archive} a
   WHERE (SELECT mine FROM alone)
     AND a.settled_at < (SELECT greatest(published, discarded) FROM kept)
     AND a.settled_at < (SELECT CASE a.outcome WHEN 'published' THEN published ELSE discarded END FROM kept)
   ORDER BY a.settled_at, a.seq LIMIT $1::integer)
DELETE FROM {archive} a WHERE a.ctid = ANY (ARRAY(SELECT old.ctid FROM old))`

// Purge implements [engine.Purger].
func (s *Store) Purge(ctx context.Context, limit int) (n int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("postgres: purge: limit %d must be positive", limit)
	}
	err = s.run(ctx, func() []statement {
		return transaction(lockTimeout, statement{name: "purge", sql: s.q.purge, args: []any{limit, s.names.table()},
			tag: func(tag pgconn.CommandTag) { n = int(tag.RowsAffected()) }})
	})
	if err != nil {
		return 0, fmt.Errorf("postgres: purge: %w", err)
	}
	return n, nil
}
