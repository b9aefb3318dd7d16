package mysql

import "github.com/outward-dev/outward/dialects/internal/reading"

// holdSQL moves blocked rows out of the ready set.
const holdSQL = `UPDATE {messages} ` + byKey + ` SET state = 2 WHERE seq IN (?) AND state = 0`

// hold holds the rows behind an entry of their key.
//
// A row that has an entry of its own keeps its place by that entry, and stays. But
// where such rows crowd the front of a lane (a lost connection leaves hundreds of
// them behind one that is dead) every claim would read them in vain and the lane
// would stand still; so there they are held as well and their entries go. The
// smaller entry holds back what is behind them anyway.
func (s *Store) hold(t *tx, c *reading.Choice, crowded bool, b *budget) error {
	var seqs, entered []int64
	for _, row := range c.Behind[:b.cut(len(c.Behind))] {
		if row.Own && !crowded {
			continue
		}
		if seqs = append(seqs, row.Receipt.Seq); row.Own {
			entered = append(entered, row.Receipt.Seq)
		}
	}
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
