package postgres

import (
	"slices"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

// claims remembers, of each live claim of this process, which messages are
// unanswered. It is what lets a settlement free the lanes in its own transaction.
// A token never outlives its process, so nothing of it has to stand in the table;
// what is forgotten here too early costs the rest of a lease, and no more.
type claims struct {
	sync.Mutex
	byToken map[engine.ID]*claim
	orphans []orphan
}

// A claim is what is known of one token.
type claim struct {
	lanes   []int16
	left    map[int64]struct{} // not answered
	busy    int                // settlements under way that answer some of it
	freed   bool               // its lanes are free, or another one has them
	lease   time.Duration
	expires time.Time // by this process's clock; only for forgetting
}

// An orphan is a claim whose COMMIT was not answered and whose lanes could not be
// freed yet.
type orphan struct {
	token engine.ID
	lanes []int16
	until time.Time // then the lease is over anyway
}

func (c *claims) add(token engine.ID, lanes []int16, seqs []int64, lease time.Duration, start time.Time) {
	left := make(map[int64]struct{}, len(seqs))
	for _, seq := range seqs {
		left[seq] = struct{}{}
	}
	c.Lock()
	defer c.Unlock()
	for t, old := range c.byToken {
		// Twice the lease: a late Extend may still revive it.
		if old.busy == 0 && start.After(old.expires.Add(old.lease)) {
			delete(c.byToken, t)
		}
	}
	c.byToken[token] = &claim{lanes: lanes, left: left, lease: lease, expires: start.Add(lease)}
}

// extended notes that a claim's lease was renewed.
func (c *claims) extended(token engine.ID, lease time.Duration, start time.Time) {
	c.Lock()
	defer c.Unlock()
	if cl := c.byToken[token]; cl != nil {
		cl.lease, cl.expires = lease, start.Add(lease)
	}
}

// An answer is one settlement's part in the claims it touches.
type answer struct {
	claims *claims
	taken  map[engine.ID][]int64 // what this settlement answers
	frees  map[engine.ID][]int16 // claims it answers the last of, and their lanes
}

// begin takes what rs answer out of their claims. A claim of which nothing is left
// then, and that nobody else is answering, is to be freed in the same transaction.
func (c *claims) begin(rs []engine.Receipt) *answer {
	a := &answer{claims: c, taken: map[engine.ID][]int64{}, frees: map[engine.ID][]int16{}}
	c.Lock()
	defer c.Unlock()
	for _, r := range rs {
		cl := c.byToken[r.Token]
		if cl == nil {
			continue
		}
		seqs, touched := a.taken[r.Token]
		if !touched {
			cl.busy++
		}
		if _, open := cl.left[r.Seq]; open {
			delete(cl.left, r.Seq)
			seqs = append(seqs, r.Seq)
		}
		a.taken[r.Token] = seqs
	}
	for token := range a.taken {
		if cl := c.byToken[token]; len(cl.left) == 0 && cl.busy == 1 {
			a.frees[token] = cl.lanes
		}
	}
	return a
}

// end says whether the settlement was committed. It returns the claims that are
// now answered and were freed by no transaction, because two settlements answered
// their last messages at a time.
func (a *answer) end(committed bool) (unfreed []orphan) {
	a.claims.Lock()
	defer a.claims.Unlock()
	for token, seqs := range a.taken {
		cl := a.claims.byToken[token]
		cl.busy--
		if !committed {
			for _, seq := range seqs {
				cl.left[seq] = struct{}{}
			}
			continue
		}
		if _, freed := a.frees[token]; freed {
			cl.freed = true
		}
		if len(cl.left) > 0 || cl.busy > 0 {
			continue
		}
		delete(a.claims.byToken, token)
		if !cl.freed {
			unfreed = append(unfreed, orphan{token: token, lanes: cl.lanes, until: cl.expires})
		}
	}
	return unfreed
}

// forget takes receipts that are lost out of their claims.
func (c *claims) forget(lost []engine.Receipt) {
	c.Lock()
	defer c.Unlock()
	for _, r := range lost {
		if cl := c.byToken[r.Token]; cl != nil {
			delete(cl.left, r.Seq)
			if len(cl.left) == 0 && cl.busy == 0 {
				delete(c.byToken, r.Token)
			}
		}
	}
}

// keepOrphan keeps a claim for the next Claim to free.
func (c *claims) keepOrphan(o orphan) {
	c.Lock()
	defer c.Unlock()
	c.orphans = append(c.orphans, o)
}

// takeOrphans hands over the claims that still have to be freed.
func (c *claims) takeOrphans(now time.Time) []orphan {
	c.Lock()
	defer c.Unlock()
	os := slices.DeleteFunc(c.orphans, func(o orphan) bool { return now.After(o.until) })
	c.orphans = nil
	return os
}
