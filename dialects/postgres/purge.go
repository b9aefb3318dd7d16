package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// purgeSQL deletes the oldest settled rows whose time is over, along the primary
// key. One purger at a time: two would wait for each other's rows and delete half
// as much. The lock is the transaction's, so none is left behind.
var purgeSQL = `
WITH alone AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(hashtextextended('outward purge ' || $2::text, 0)) AS mine),
kept AS MATERIALIZED (SELECT now() - retention AS published, now() - discard_retention AS discarded FROM {schema_}),
old AS MATERIALIZED (
  SELECT a.settled_at, a.seq FROM {archive} a
   WHERE (SELECT mine FROM alone)
     AND a.settled_at < (SELECT greatest(published, discarded) FROM kept)
     AND a.settled_at < (SELECT CASE a.outcome WHEN 'published' THEN published ELSE discarded END FROM kept)
   ORDER BY a.settled_at, a.seq LIMIT $1::integer)
DELETE FROM {archive} a USING old WHERE a.settled_at = old.settled_at AND a.seq = old.seq`

// Purge implements [engine.Purger].
func (s *Store) Purge(ctx context.Context, limit int) (n int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("postgres: purge: limit %d must be positive", limit)
	}
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, fmt.Errorf("postgres: purge: %w", err)
	}
	defer rollback(ctx, tx)
	tag, err := tx.Exec(ctx, s.names.sql(purgeSQL), limit, s.names.table())
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("postgres: purge: %w", err))
	}
	return int(tag.RowsAffected()), nil
}
