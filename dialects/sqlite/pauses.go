package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

const (
	pausedBySQL = `SELECT p.by_relay FROM {pauses} p WHERE p.destination = ?1`

	// A second relay that finds the same destination failing tells no news: the pause
	// keeps its beginning and its earlier probe.
	putPauseSQL = `
INSERT INTO {pauses} AS p (destination, by_name, by_relay, reason, class, since, probe_at)
VALUES (?1, ?2, ?3, ?4, ?5, {now}, CASE WHEN ?3 THEN {now} + ?6 ELSE ?7 END)
    ON CONFLICT (destination) DO UPDATE
   SET by_name = excluded.by_name, by_relay = excluded.by_relay, reason = excluded.reason, class = excluded.class,
       since = CASE WHEN p.by_relay = excluded.by_relay THEN p.since ELSE excluded.since END,
       probe_at = CASE WHEN excluded.by_relay THEN min(p.probe_at, excluded.probe_at) ELSE ?7 END
 WHERE p.by_relay OR NOT excluded.by_relay`

	// Resuming deletes the pause and nothing else; unparkSQL does the rest.
	endPauseSQL = `DELETE FROM {pauses} WHERE destination = ?1 AND (by_relay OR NOT ?2)`

	notePauseSQL = `INSERT INTO {audit} (actor, by_relay, action, reason, destination) VALUES (?1, ?2, ?3, ?4, ?5)`

	takeProbeSQL = `UPDATE {pauses} SET probe_at = {now} + ?2 WHERE destination = ?1 AND by_relay AND probe_at <= {now}`

	pausesSQL = `
SELECT p.destination, p.by_name, p.by_relay, p.reason, p.class, p.since, {now} - p.since, CASE WHEN p.by_relay THEN p.probe_at - {now} ELSE 0 END
  FROM {pauses} p ORDER BY p.destination`
)

func (s *Store) note(t *tx, action, destination string, by engine.Actor) error {
	_, err := t.exec("note", s.names.sql(notePauseSQL), reading.Storable(by.Name), by.Relay, action, reading.Storable(by.Reason), destination)
	return err
}

// Pause implements [engine.Operator].
func (s *Store) Pause(ctx context.Context, p engine.Pause) error {
	if p.Destination == "" {
		return errors.New("sqlite: pause: the destination is empty")
	}
	class := ""
	if p.By.Relay {
		class = p.Class.String()
	}
	err := s.write(ctx, func(t *tx) error {
		known := false // by a relay
		if err := t.one("paused by", s.names.sql(pausedBySQL), []any{p.Destination}, &known); err != nil {
			return err
		}
		n, err := t.exec("put pause", s.names.sql(putPauseSQL), p.Destination, reading.Storable(p.By.Name), p.By.Relay,
			reading.Storable(p.By.Reason), class, writing.Microseconds(p.ProbeAfter), int64(forever))
		if err != nil || n == 0 || p.By.Relay && known {
			return err
		}
		return s.note(t, "pause", p.Destination, p.By)
	})
	if err != nil {
		return fmt.Errorf("sqlite: pause: %w", err)
	}
	return nil
}

// Resume implements [engine.Operator].
func (s *Store) Resume(ctx context.Context, destination string, by engine.Actor) (did bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec("end pause", s.names.sql(endPauseSQL), destination, by.Relay)
		if did = n > 0; err != nil || !did {
			return err
		}
		return s.note(t, "resume", destination, by)
	})
	if err != nil {
		return false, fmt.Errorf("sqlite: resume: %w", err)
	}
	if did {
		s.Wake()
	}
	return did, nil
}

// Pauses implements [engine.Operator].
func (s *Store) Pauses(ctx context.Context) (ps []engine.Pause, err error) {
	err = retried(ctx, func() error {
		ps = nil
		return sqlrows.Query(ctx, s.db, "pauses", s.names.sql(pausesSQL), func(rows *sql.Rows) error {
			var p engine.Pause
			var class string
			var since, lasting, probe int64
			if err := rows.Scan(&p.Destination, &p.By.Name, &p.By.Relay, &p.By.Reason, &class, &since, &lasting, &probe); err != nil {
				return err
			}
			if class != "" {
				if p.Class, err = engine.ParseClass(class); err != nil {
					return err
				}
			}
			p.Since = time.UnixMicro(since).UTC()
			p.For, p.ProbeIn = time.Duration(lasting)*time.Microsecond, time.Duration(probe)*time.Microsecond
			ps = append(ps, p)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	return ps, nil
}

// TakeProbe implements [engine.Operator].
func (s *Store) TakeProbe(ctx context.Context, destination string, next time.Duration) (did bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec("take probe", s.names.sql(takeProbeSQL), destination, writing.Microseconds(next))
		did = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("sqlite: take probe: %w", err)
	}
	return did, nil
}
