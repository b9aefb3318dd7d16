package mysql

import (
	"context"
	"fmt"
	"time"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// extendLanesSQL renews the leases of lanes by the database's clock; it never adds
// to an old deadline. A lease that ran out and that nobody took is alive again. A
// freed lane is not: what it had handed out is answered, and nobody would answer
// for it a second time.
const extendLanesSQL = `
UPDATE {lanes} ` + byKey + ` SET lease_until = {now} + INTERVAL ? MICROSECOND WHERE lane IN (?) AND token = ? AND handed_total > 0`

// extendRowsSQL renews the leases of detached rows.
const extendRowsSQL = `
UPDATE {messages} ` + byKey + ` SET available_at = {now} + INTERVAL ? MICROSECOND WHERE seq IN (?) AND state = 1 AND lease_token = ?`

// Extend implements [engine.Store].
func (s *Store) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) (lost []engine.Receipt, err error) {
	if len(rs) == 0 {
		return nil, nil
	}
	if lease <= 0 {
		return nil, fmt.Errorf("mysql: extend: lease %v must be positive", lease)
	}
	start := time.Now()
	byToken := map[engine.ID][]engine.Receipt{}
	for _, r := range rs {
		byToken[r.Token] = append(byToken[r.Token], r)
	}
	err = s.write(ctx, func(t *tx) error {
		lost, err = s.extend(t, byToken, rs, writing.Microseconds(lease))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("mysql: extend: %w", err)
	}
	s.book.Forget(lost)
	for token := range byToken {
		s.book.Extended(token, lease, start)
	}
	return lost, nil
}

func (s *Store) extend(t *tx, byToken map[engine.ID][]engine.Receipt, rs []engine.Receipt, us int64) (lost []engine.Receipt, err error) {
	of := func(rs []engine.Receipt) []int16 {
		return reading.LanesOf(lanes, len(rs), func(i int) engine.Receipt { return rs[i] })
	}
	o, err := s.owners(t, of(rs))
	if err != nil {
		return nil, err
	}
	all := make([]int64, len(rs))
	for i, r := range rs {
		all[i] = r.Seq
	}
	rows, err := s.standing(t, all)
	if err != nil {
		return nil, err
	}
	for token, some := range byToken {
		if _, err := t.exec("extend lanes", s.q.extendLanes, us, of(some), token); err != nil {
			return nil, err
		}
		var detached []int64
		for _, r := range some {
			if rows[r.Seq].detachedBy(r) {
				detached = append(detached, r.Seq)
			}
		}
		if len(detached) == 0 {
			continue
		}
		if _, err := t.exec("extend rows", s.q.extendRows, us, detached, token); err != nil {
			return nil, err
		}
	}
	for _, r := range rs {
		row, found := rows[r.Seq]
		// Of a lane that was freed a row that is ready has come back, and is nobody's.
		back := o.standing(r) && o.freed[reading.LaneOf(r)] && found && row.state == 0
		if (!o.standing(r) || back) && !row.detachedBy(r) {
			lost = append(lost, r)
		}
	}
	return lost, nil
}
