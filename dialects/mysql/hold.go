package mysql

import "github.com/outward-dev/outward/dialects/internal/reading"

// holdSQL moves blocked rows out of the ready set.
const holdSQL = `UPDATE {messages} ` + byKey + ` SET state = 2 WHERE seq IN (?) AND state = 0`

// hold holds the rows behind an entry of their key.
func (s *Store) hold(t *tx, c *reading.Choice, crowded bool, b *budget) error {
	seqs, entered := c.Holds(b.cut(len(c.Behind)), crowded)
	if len(seqs) == 0 {
		return nil
	}
	if _, err := t.exec("hold", s.q.hold, seqs); err != nil {
		return err
	}
	b.spend(len(seqs))
	if len(entered) == 0 {
		return nil
	}
	_, err := t.exec("leave", s.q.remove, entered)
	return err
}
