package sqlite

import (
	"context"
	"fmt"
)

// purgeSQL deletes the oldest settled rows whose time is over, along the index.
const purgeSQL = `
DELETE FROM {archive} WHERE id IN (
  SELECT a.id FROM {archive} a CROSS JOIN (SELECT {now} - retention AS published, {now} - discard_retention AS discarded FROM {schema_}) k
   WHERE a.settled_at < (SELECT {now} - min(retention, discard_retention) FROM {schema_})
     AND a.settled_at < CASE a.outcome WHEN 'published' THEN k.published ELSE k.discarded END
   ORDER BY a.settled_at, a.seq LIMIT ?1)`

// Purge implements [engine.Purger]. Two at a time wait for each other, as all
// writers do.
func (s *Store) Purge(ctx context.Context, limit int) (n int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("sqlite: purge: limit %d must be positive", limit)
	}
	err = s.write(ctx, func(t *tx) error {
		n, err = t.exec("purge", s.names.sql(purgeSQL), min(limit, chunk))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlite: %w", err)
	}
	return n, nil
}
