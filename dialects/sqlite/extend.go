package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// extendLanesSQL renews the leases of lanes by the database's clock; it never adds
// to an old deadline. A lease that ran out and that nobody took is alive again. A
// freed lane is not: what it had handed out is answered, and nobody would answer
// for it a second time.
const extendLanesSQL = `
UPDATE {lanes} SET lease_until = {now} + ?3 WHERE token = ?1 AND handed <> '[]' AND lane IN (SELECT j.value FROM json_each(?2) j)`

// extendRowsSQL renews the leases of detached rows.
const extendRowsSQL = `
UPDATE {messages} SET available_at = {now} + ?3
 WHERE state = 1 AND lease_token = ?1 AND seq IN (SELECT j.value FROM json_each(?2) j) RETURNING seq`

// statesSQL finds those rows that are ready.
var statesSQL = `SELECT m.seq FROM {messages} m WHERE ` + ready("m.") + ` AND m.seq IN (SELECT j.value FROM json_each(?1) j)`

// Extend implements [engine.Store].
func (s *Store) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) (lost []engine.Receipt, err error) {
	if len(rs) == 0 {
		return nil, nil
	}
	if lease <= 0 {
		return nil, fmt.Errorf("sqlite: extend: lease %v must be positive", lease)
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
		return nil, fmt.Errorf("sqlite: extend: %w", err)
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
	detached, freed := map[int64]bool{}, []int64{}
	for token, some := range byToken {
		if _, err := t.exec("extend lanes", s.q.extendLanes, token.String(), list(of(some)), us); err != nil {
			return nil, err
		}
		seqs := make([]int64, len(some))
		for i, r := range some {
			if seqs[i] = r.Seq; o.standing(r) && o.freed[reading.LaneOf(r)] {
				freed = append(freed, r.Seq)
			}
		}
		err := t.query("extend rows", s.q.extendRows, func(rows *sql.Rows) error {
			var seq int64
			err := rows.Scan(&seq)
			detached[seq] = true
			return err
		}, token.String(), list(seqs), us)
		if err != nil {
			return nil, err
		}
	}
	// Of a lane that was freed a row that is ready has come back, and is nobody's.
	var back []int64
	if len(freed) > 0 {
		if err := t.query("states", s.q.states, sqlrows.Collect(&back), list(freed)); err != nil {
			return nil, err
		}
	}
	ready := make(map[int64]bool, len(back))
	for _, seq := range back {
		ready[seq] = true
	}
	for _, r := range rs {
		gone := !o.standing(r) || o.freed[reading.LaneOf(r)] && ready[r.Seq]
		if gone && !detached[r.Seq] {
			lost = append(lost, r)
		}
	}
	return lost, nil
}
