package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/engine"
)

// lockSQL comes first in every transaction that changes blocks, held or dead rows,
// or rows in hand: whoever has a lane's row locked is alone with its keys. It is a
// statement of its own, because what the next statement decides by must be read
// after the wait, not before. Lanes are locked in one order.
const lockSQL = `SELECT l.lane, l.token FROM {lanes} l WHERE l.lane = ANY ($1::smallint[]) ORDER BY l.lane FOR NO KEY UPDATE`

// lockFreeSQL is for work that can wait: it takes the lanes that nobody has locked.
const lockFreeSQL = `SELECT l.lane FROM {lanes} l WHERE l.lane = ANY ($1::smallint[]) ORDER BY l.lane FOR NO KEY UPDATE SKIP LOCKED`

// freeSQL frees the lanes of claims. The token stays: who repeats a settlement
// whose answer was lost must still be told that it was done.
const freeSQL = `
UPDATE {lanes} SET lease_until = '-infinity', handed_seq = '{}', handed_stamp = '{}', handed_total = 0
 WHERE token = ANY ($1::uuid[]) AND lane = ANY ($2::smallint[])`

// lockStatement locks lanes and, where tokens is not nil, notes who has them.
func (s *Store) lockStatement(lanes []int16, tokens map[int16]engine.ID) statement {
	slices.Sort(lanes)
	st := statement{name: "lock", sql: s.q.lock, args: []any{slices.Compact(lanes)}}
	if tokens != nil {
		st.rows = func(rows pgx.Rows) error {
			for rows.Next() {
				var lane int16
				var token pgtype.UUID
				if err := rows.Scan(&lane, &token); err != nil {
					return err
				}
				tokens[lane] = token.Bytes
			}
			return rows.Err()
		}
	}
	return st
}
