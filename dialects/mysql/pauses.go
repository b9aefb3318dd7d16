package mysql

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
	pausedBySQL = `SELECT p.by_relay FROM {pauses} p WHERE p.destination = ? FOR UPDATE`

	putPauseSQL = `
INSERT INTO {pauses} (destination, by_name, by_relay, reason, class, since, probe_at)
VALUES (?, ?, ?, ?, ?, {now}, CASE WHEN ? THEN {now} + INTERVAL ? MICROSECOND ELSE ` + forever + ` END)`

	// A second relay that finds the same destination failing tells no news: the pause
	// keeps its beginning and its earlier probe. since comes before by_relay: assignments
	// are made from left to right.
	changePauseSQL = `
UPDATE {pauses}
   SET since = CASE WHEN by_relay = ? THEN since ELSE {now} END,
       probe_at = CASE WHEN ? THEN LEAST(probe_at, {now} + INTERVAL ? MICROSECOND) ELSE ` + forever + ` END,
       by_name = ?, by_relay = ?, reason = ?, class = ?
 WHERE destination = ?`

	// Resuming deletes the pause and nothing else; unparkSQL does the rest.
	endPauseSQL = `DELETE FROM {pauses} WHERE destination = ? AND (by_relay OR NOT ?)`

	notePauseSQL = `INSERT INTO {audit} (actor, by_relay, action, reason, destination) VALUES (?, ?, ?, ?, ?)`

	takeProbeSQL = `UPDATE {pauses} SET probe_at = {now} + INTERVAL ? MICROSECOND WHERE destination = ? AND by_relay AND probe_at <= {now}`
)

var pausesSQL = `
SELECT p.destination, p.by_name, p.by_relay, p.reason, p.class, ` + micros("p.since") + `, ` + since("p.since", nowSQL) + `,
       CASE WHEN p.by_relay THEN ` + since(nowSQL, "p.probe_at") + ` ELSE 0 END
  FROM {pauses} p ORDER BY p.destination`

func (s *Store) note(t *tx, action, destination string, by engine.Actor) error {
	_, err := t.exec("note", s.names.sql(notePauseSQL), reading.Storable(by.Name), by.Relay, action, reading.Storable(by.Reason), destination)
	return err
}

// Pause implements [engine.Operator].
func (s *Store) Pause(ctx context.Context, p engine.Pause) error {
	if p.Destination == "" {
		return errors.New("mysql: pause: the destination is empty")
	}
	class := ""
	if p.By.Relay {
		class = p.Class.String()
	}
	name, reason, after := reading.Storable(p.By.Name), reading.Storable(p.By.Reason), writing.Microseconds(p.ProbeAfter)
	// Two that find no pause both insert one; the second is told of its double, and
	// finds it the next time.
	err := retriedDuplicate(func() error {
		return s.write(ctx, func(t *tx) error {
			var byRelay []bool // who paused it before
			if err := t.query("paused by", s.names.sql(pausedBySQL), sqlrows.Collect(&byRelay), p.Destination); err != nil {
				return err
			}
			if len(byRelay) == 0 {
				if _, err := t.exec("put pause", s.names.sql(putPauseSQL), p.Destination, name, p.By.Relay, reason, class, p.By.Relay, after); err != nil {
					return err
				}
				return s.note(t, "pause", p.Destination, p.By)
			}
			if p.By.Relay && !byRelay[0] {
				return nil // an operator's pause is not a relay's to change
			}
			if _, err := t.exec("change pause", s.names.sql(changePauseSQL), p.By.Relay, p.By.Relay, after, name, p.By.Relay, reason, class, p.Destination); err != nil {
				return err
			}
			if p.By.Relay {
				return nil
			}
			return s.note(t, "pause", p.Destination, p.By)
		})
	})
	if err != nil {
		return fmt.Errorf("mysql: pause: %w", err)
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
		return false, fmt.Errorf("mysql: resume: %w", err)
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
		return queryRows(ctx, s.db, "pauses", s.names.sql(pausesSQL), func(rows *sql.Rows) error {
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
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return ps, nil
}

// TakeProbe implements [engine.Operator].
func (s *Store) TakeProbe(ctx context.Context, destination string, next time.Duration) (did bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec("take probe", s.names.sql(takeProbeSQL), writing.Microseconds(next), destination)
		did = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("mysql: take probe: %w", err)
	}
	return did, nil
}
