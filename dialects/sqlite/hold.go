package sqlite

import "github.com/outward-dev/outward/dialects/internal/reading"

// holdSQL moves blocked rows out of the ready set.
var holdSQL = `UPDATE {messages} SET state = 2 WHERE ` + ready("") + ` AND seq IN (SELECT j.value FROM json_each(?1) j)`

// leaveSQL drops the entries of rows that are held behind a smaller one.
const leaveSQL = `DELETE FROM {blocks} WHERE seq > 0 AND seq IN (SELECT j.value FROM json_each(?1) j)`

// hold holds the rows behind an entry of their key.
func (s *Store) hold(t *tx, c *reading.Choice, crowded bool, b *budget) error {
	seqs, entered := c.Holds(b.cut(len(c.Behind)), crowded)
	if len(seqs) == 0 {
		return nil
	}
	if _, err := t.exec("hold", s.q.hold, list(seqs)); err != nil {
		return err
	}
	b.spend(len(seqs))
	if len(entered) == 0 {
		return nil
	}
	_, err := t.exec("leave", s.q.leave, list(entered))
	return err
}
