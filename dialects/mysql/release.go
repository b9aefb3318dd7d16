package mysql

import (
	"database/sql"
	"math"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
)

const (
	// entriesSQL finds entries of rows that no longer hold back their key, and removeSQL
	// takes them away.
	entriesSQL = `SELECT b.ordering_key, b.lane FROM {blocks} b FORCE INDEX ({i_entries}) WHERE b.seq IN (?)`
	removeSQL  = `DELETE b FROM {blocks} b FORCE INDEX ({i_entries}) WHERE b.seq IN (?)`

	lowestSQL = `SELECT COALESCE(MIN(b.seq), -1) FROM {blocks} b WHERE b.ordering_key = ? AND b.seq > 0`
	heldSQL   = `
SELECT m.seq FROM {messages} m FORCE INDEX ({i_held}) WHERE m.state = 2 AND m.ordering_key = ? AND m.seq < ? ORDER BY m.seq LIMIT ?`
	releaseSQL = `UPDATE {messages} ` + byKey + ` SET state = 0 WHERE seq IN (?) AND state = 2`
	markSQL    = `INSERT INTO {blocks} (ordering_key, seq, lane) VALUES (?, 0, ?) ON DUPLICATE KEY UPDATE lane = {blocks}.lane`
	unmarkSQL  = `DELETE FROM {blocks} WHERE ordering_key = ? AND seq = 0`
	markersSQL = `SELECT b.ordering_key, b.lane FROM {blocks} b WHERE b.seq = 0 ORDER BY b.seq, b.lane LIMIT 16`

	drainedLanesSQL = `SELECT l.lane FROM {lanes} l ` + byKey + ` WHERE l.lane IN (?) ORDER BY l.lane FOR UPDATE SKIP LOCKED`
)

// A blocked is a key that something holds back.
type blocked struct {
	key  string
	lane int16
}

// unblock removes the entries of rows and lets go on what they held back. The lanes of
// the rows are locked.
func (s *Store) unblock(t *tx, seqs []int64, b *budget) error {
	if len(seqs) == 0 {
		return nil
	}
	var keys []blocked
	seen := map[string]bool{}
	err := t.query("entries", s.q.entries, func(rows *sql.Rows) error {
		var k blocked
		if err := rows.Scan(&k.key, &k.lane); err != nil {
			return err
		}
		if !seen[k.key] {
			seen[k.key], keys = true, append(keys, k)
		}
		return nil
	}, seqs)
	if err != nil || len(keys) == 0 {
		return err
	}
	if _, err := t.exec("remove", s.q.remove, seqs); err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.release(t, k, b); err != nil {
			return err
		}
	}
	return nil
}

// release brings back held rows of a key up to its next entry. Those for which the
// budget does not last stay held behind the drain marker, seq 0, which holds back
// the whole key until the rest has come back too: with the entry gone and no
// marker, a later row would overtake them, and if the one who releases died
// between two chunks they would wait for ever.
func (s *Store) release(t *tx, k blocked, b *budget) error {
	low := int64(-1)
	if err := t.query("lowest", s.q.lowest, func(rows *sql.Rows) error { return rows.Scan(&low) }, k.key); err != nil {
		return err
	}
	if low < 0 {
		low = math.MaxInt64
	}
	var held []int64
	room := b.cut(math.MaxInt)
	if err := t.query("held", s.q.held, sqlrows.Collect(&held), k.key, low, room+1); err != nil {
		return err
	}
	more := len(held) > room
	if held = held[:min(len(held), room)]; len(held) > 0 {
		if _, err := t.exec("release", s.q.release, held); err != nil {
			return err
		}
		b.spend(len(held))
	}
	if more {
		_, err := t.exec("mark", s.q.mark, k.key, k.lane)
		return err
	}
	_, err := t.exec("unmark", s.q.unmark, k.key)
	return err
}
