package reading

import "github.com/outward-dev/outward/engine"

// A Choice is what becomes of the rows of one read.
type Choice struct {
	Batch    []*Row   // may go now, in the order of their Seq
	Later    []int64  // not due: to be put aside; they hold nothing back
	Parked   []int64  // of a paused topic: to be put aside, each with an entry if it has a key
	Pauses   []string // and for which pause, side by side with Parked
	Behind   []*Row   // an entry with a smaller seq holds them back: to be held
	Suspects bool     // a suspect was met that could not go
	read     int
	full     bool // there may be more behind the last row
}

// Choose decides about rows, which must be in the order of their Seq. Those that go
// get token in their receipts; their payloads have at most bytes together, but for a
// single one that is larger.
func Choose(rows []Row, req *engine.ClaimRequest, token engine.ID, bytes int64) Choice {
	c := Choice{read: len(rows), full: len(rows) >= req.Limit}
	closed := map[string]bool{} // keys of which nothing more goes in this claim
	room, cut, size := req.Limit, false, int64(0)
	paused := make(map[string]string, len(req.Paused))
	for _, topic := range req.Paused {
		paused[topic] = topic
		if name := req.PausedFor[topic]; name != "" {
			paused[topic] = name
		}
	}
	var read int64
	for i := range rows {
		row := &rows[i]
		if read += row.Size; read >= bytes {
			c.full = true
		}
		key := row.Key
		closes := func() {
			if key != "" {
				closed[key] = true
			}
		}
		if row.Later {
			c.Later = append(c.Later, row.Receipt.Seq)
			continue
		}
		if row.Low >= 0 && row.Low < row.Receipt.Seq {
			// A drain marker (0) means that the key's rows are just coming back: they wait,
			// and are not held again.
			if row.Low > 0 {
				c.Behind = append(c.Behind, row)
			}
			closes()
			continue
		}
		if closed[key] {
			continue
		}
		if row.Low == row.Receipt.Seq {
			closes() // the head that holds back its key goes alone
		}
		if name, is := paused[row.Topic]; is {
			c.Parked, c.Pauses = append(c.Parked, row.Receipt.Seq), append(c.Pauses, name)
			closes()
			continue
		}
		if row.Company > 0 && !req.Idle {
			c.Suspects = true
			closes()
			continue
		}
		if row.Company > 0 && !cut {
			if len(c.Batch) >= row.Company {
				cut = true
			} else {
				room = min(room, row.Company)
			}
		}
		if len(c.Batch) > 0 && size+row.Size > bytes {
			cut = true
		}
		if cut || len(c.Batch) >= room {
			cut = true
			closes()
			continue
		}
		row.Receipt.Token = token
		size += row.Size
		c.Batch = append(c.Batch, row)
	}
	return c
}

// Crowded reports whether so many of the rows have to go aside that it is time to
// look far ahead and clear the front of the lanes in large chunks.
func (c *Choice) Crowded() bool {
	return c.full && 2*(len(c.Later)+len(c.Parked)+len(c.Behind)) >= c.read
}

// Hidden reports whether suspects, which stay where they are until the process is
// idle, may hide so much that it is worth while to look past them.
func (c *Choice) Hidden(limit int) bool {
	return c.Suspects && c.read >= limit && 2*len(c.Batch) < limit
}

// Claimed are the rows that go.
func (c *Choice) Claimed() []engine.Claimed {
	claimed := make([]engine.Claimed, len(c.Batch))
	for i, row := range c.Batch {
		claimed[i] = row.Claimed
	}
	return claimed
}

// Holds are the rows to be held behind an entry of their key, at most most of them, and
// of these the ones whose own entries go.
//
// A row that has an entry of its own keeps its place by that entry, and stays. But where
// such rows crowd the front of a lane (a lost connection leaves hundreds of them behind
// one that is dead) every claim would read them in vain and the lane would stand still;
// so there they are held as well and their entries go. The smaller entry holds back what
// is behind them anyway.
func (c *Choice) Holds(most int, crowded bool) (seqs, entered []int64) {
	for _, row := range c.Behind[:min(most, len(c.Behind))] {
		if row.Own && !crowded {
			continue
		}
		if seqs = append(seqs, row.Receipt.Seq); row.Own {
			entered = append(entered, row.Receipt.Seq)
		}
	}
	return seqs, entered
}

// Seqs are the numbers of the rows that go.
func (c *Choice) Seqs() []int64 {
	seqs := make([]int64, len(c.Batch))
	for i, row := range c.Batch {
		seqs[i] = row.Receipt.Seq
	}
	return seqs
}

// Lanes are the lanes below count of the rows that go, each once.
func (c *Choice) Lanes(count int) []int16 {
	return LanesOf(count, len(c.Batch), func(i int) engine.Receipt { return c.Batch[i].Receipt })
}
