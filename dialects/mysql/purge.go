package mysql

import (
	"context"
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
)

// purgedSQL finds the oldest settled rows whose time is over, along the index;
// purgeSQL deletes them by their primary key, which locks nothing else.
const (
	purgedSQL = `
SELECT a.id FROM {archive} a CROSS JOIN {schema_} k
 WHERE a.settled_at < {now} - INTERVAL LEAST(k.retention, k.discard_retention) MICROSECOND
   AND a.settled_at < CASE a.outcome WHEN 'published' THEN {now} - INTERVAL k.retention MICROSECOND ELSE {now} - INTERVAL k.discard_retention MICROSECOND END
 ORDER BY a.settled_at, a.seq, a.id LIMIT ?`
	purgeSQL = `DELETE a FROM {archive} a ` + byKey + ` WHERE a.id IN (?)`
)

// Purge implements [engine.Purger]. Of two at a time the second finds what the first
// has left.
func (s *Store) Purge(ctx context.Context, limit int) (n int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("mysql: purge: limit %d must be positive", limit)
	}
	err = s.write(ctx, func(t *tx) error {
		var ids []int64
		if err := t.query("purged", s.names.sql(purgedSQL), sqlrows.Collect(&ids), min(limit, chunk)); err != nil || len(ids) == 0 {
			n = 0
			return err
		}
		n, err = t.exec("purge", s.names.sql(purgeSQL), ids)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("mysql: %w", err)
	}
	return n, nil
}
