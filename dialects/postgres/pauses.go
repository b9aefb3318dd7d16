package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// pauseNoteSQL records a command about a destination, if the CTE done has a row.
func pauseNoteSQL(action string) string {
	return `
INSERT INTO {audit} (actor, by_relay, action, reason, destination)
SELECT $2::text, $3::boolean, '` + action + `', $4::text, destination FROM done`
}

// A second relay that finds the same destination failing tells no news: the pause
// keeps its beginning and its earlier probe, and nothing is recorded again.
var pauseDestinationSQL = `
WITH old AS (SELECT p.by_relay FROM {pauses} p WHERE p.destination = $1::text),
put AS (
  INSERT INTO {pauses} AS p (destination, by_name, by_relay, reason, class, since, probe_at)
  VALUES ($1::text, $2::text, $3::boolean, $4::text, $5::text, clock_timestamp(),
          CASE WHEN $3::boolean THEN clock_timestamp() + $6::bigint * interval '1 microsecond' ELSE 'infinity' END)
      ON CONFLICT (destination) DO UPDATE
     SET by_name = excluded.by_name, by_relay = excluded.by_relay, reason = excluded.reason, class = excluded.class,
         since = CASE WHEN p.by_relay = excluded.by_relay THEN p.since ELSE excluded.since END,
         probe_at = CASE WHEN excluded.by_relay THEN least(p.probe_at, excluded.probe_at) ELSE 'infinity' END
   WHERE p.by_relay OR NOT excluded.by_relay
  RETURNING p.destination),
done AS (SELECT destination FROM put WHERE NOT $3::boolean OR NOT EXISTS (SELECT FROM old WHERE old.by_relay))` + pauseNoteSQL("pause")

// Resuming deletes the pause and nothing else; unparkSQL does the rest.
var resumeSQL = `
WITH done AS (DELETE FROM {pauses} p WHERE p.destination = $1::text AND (p.by_relay OR NOT $3::boolean) RETURNING p.destination)` +
	pauseNoteSQL("resume")

// Pause implements [engine.Operator].
func (s *Store) Pause(ctx context.Context, p engine.Pause) error {
	if p.Destination == "" {
		return fmt.Errorf("postgres: pause: the destination is empty")
	}
	class := ""
	if p.By.Relay {
		class = p.Class.String()
	}
	_, err := s.pool.Exec(ctx, s.names.sql(pauseDestinationSQL), p.Destination, reading.Storable(p.By.Name), p.By.Relay, reading.Storable(p.By.Reason), class,
		writing.Microseconds(p.ProbeAfter))
	if err != nil {
		return fmt.Errorf("postgres: pause: %w", err)
	}
	return nil
}

// Resume implements [engine.Operator].
func (s *Store) Resume(ctx context.Context, destination string, by engine.Actor) (bool, error) {
	tag, err := s.pool.Exec(ctx, s.names.sql(resumeSQL), destination, reading.Storable(by.Name), by.Relay, reading.Storable(by.Reason))
	if err != nil {
		return false, fmt.Errorf("postgres: resume: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// Pauses implements [engine.Operator].
func (s *Store) Pauses(ctx context.Context) ([]engine.Pause, error) {
	rows, err := s.pool.Query(ctx, s.names.sql(`
SELECT destination, by_name, by_relay, reason, class, since, (extract(epoch FROM clock_timestamp() - since) * 1000000)::bigint,
       CASE WHEN by_relay THEN (extract(epoch FROM probe_at - clock_timestamp()) * 1000000)::bigint ELSE 0 END
  FROM {pauses} ORDER BY destination`))
	if err != nil {
		return nil, fmt.Errorf("postgres: pauses: %w", err)
	}
	defer rows.Close()
	var list []engine.Pause
	for rows.Next() {
		var p engine.Pause
		var class string
		var lasting, probe int64
		if err := rows.Scan(&p.Destination, &p.By.Name, &p.By.Relay, &p.By.Reason, &class, &p.Since, &lasting, &probe); err != nil {
			return nil, fmt.Errorf("postgres: pauses: %w", err)
		}
		if class != "" {
			if p.Class, err = engine.ParseClass(class); err != nil {
				return nil, fmt.Errorf("postgres: pauses: %w", err)
			}
		}
		p.Since = p.Since.UTC()
		p.For, p.ProbeIn = time.Duration(lasting)*time.Microsecond, time.Duration(probe)*time.Microsecond
		list = append(list, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("postgres: pauses: %w", err)
	}
	return list, nil
}

// TakeProbe implements [engine.Operator].
func (s *Store) TakeProbe(ctx context.Context, destination string, next time.Duration) (bool, error) {
	tag, err := s.pool.Exec(ctx, s.names.sql(`
UPDATE {pauses} SET probe_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
 WHERE destination = $1::text AND by_relay AND probe_at <= clock_timestamp()`), destination, writing.Microseconds(next))
	if err != nil {
		return false, fmt.Errorf("postgres: take probe: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}
