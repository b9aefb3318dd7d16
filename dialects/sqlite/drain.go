package sqlite

import (
	"database/sql"
	"math"
)

// removeSQL takes away entries of rows that no longer hold back their key.
const removeSQL = `DELETE FROM {blocks} WHERE seq > 0 AND seq IN (SELECT j.value FROM json_each(?1) j) RETURNING ordering_key, lane`

const (
	lowestSQL  = `SELECT min(b.seq) FROM {blocks} b WHERE b.ordering_key = ?1 AND b.seq > 0`
	releaseSQL = `
UPDATE {messages} SET state = 0
 WHERE seq IN (SELECT m.seq FROM {messages} m WHERE m.state = 2 AND m.ordering_key = ?1 AND m.seq < ?2 ORDER BY m.ordering_key, m.seq LIMIT ?3)`
	moreSQL    = `SELECT EXISTS (SELECT 1 FROM {messages} m WHERE m.state = 2 AND m.ordering_key = ?1 AND m.seq < ?2)`
	markSQL    = `INSERT INTO {blocks} (ordering_key, seq, lane) VALUES (?1, 0, ?2) ON CONFLICT DO NOTHING`
	unmarkSQL  = `DELETE FROM {blocks} WHERE ordering_key = ?1 AND seq = 0`
	markersSQL = `SELECT b.ordering_key, b.lane FROM {blocks} b WHERE b.seq = 0 ORDER BY b.lane LIMIT 16`
)

// A blocked is a key that something holds back.
type blocked struct {
	key  string
	lane int16
}

// unblock removes the entries of rows and lets go on what they held back.
func (s *Store) unblock(t *tx, seqs []int64, b *budget) error {
	if len(seqs) == 0 {
		return nil
	}
	var keys []blocked
	seen := map[string]bool{}
	err := t.query("remove", s.q.remove, func(rows *sql.Rows) error {
		var k blocked
		if err := rows.Scan(&k.key, &k.lane); err != nil {
			return err
		}
		if !seen[k.key] {
			seen[k.key], keys = true, append(keys, k)
		}
		return nil
	}, list(seqs))
	if err != nil {
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
	low := sql.NullInt64{}
	if err := t.one("lowest", s.q.lowest, []any{k.key}, &low); err != nil {
		return err
	}
	if !low.Valid {
		low.Int64 = math.MaxInt64
	}
	more := b.over()
	if !more {
		n, err := t.exec("release", s.q.release, k.key, low.Int64, b.left)
		if err != nil {
			return err
		}
		more = n >= b.left
		b.spend(n)
	}
	if more {
		if err := t.one("more", s.q.more, []any{k.key, low.Int64}, &more); err != nil {
			return err
		}
	}
	if more {
		_, err := t.exec("mark", s.q.mark, k.key, k.lane)
		return err
	}
	_, err := t.exec("unmark", s.q.unmark, k.key)
	return err
}

// drain goes on with what earlier releases had to leave.
func (s *Store) drain(t *tx, b *budget) error {
	var keys []blocked
	err := t.query("markers", s.q.markers, func(rows *sql.Rows) error {
		var k blocked
		err := rows.Scan(&k.key, &k.lane)
		keys = append(keys, k)
		return err
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if b.over() {
			break
		}
		if err := s.release(t, k, b); err != nil {
			return err
		}
	}
	return nil
}
