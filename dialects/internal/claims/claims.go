// Package claims remembers what is unanswered of a process's claims. It is what
// lets a dialect free a claim's lanes in the transaction that settles the claim's
// last message.
package claims

import (
	"slices"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

// A Book knows the live claims of one store. A token never outlives its process,
// so nothing of it has to stand in the table; what is forgotten here too early
// costs the rest of a lease, and no more. The zero value is an empty book, and it
// may be used concurrently.
type Book struct {
	mu      sync.Mutex
	byToken map[engine.ID]*claim
	orphans []Orphan
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

// An Orphan is a claim whose lanes still have to be freed: its COMMIT was not
// answered, or two settlements answered its last messages at the same time.
type Orphan struct {
	Token engine.ID
	Lanes []int16
	Until time.Time // then the lease is over anyway
}

// Add notes a claim that was committed; start is when it was sent.
func (b *Book) Add(token engine.ID, lanes []int16, seqs []int64, lease time.Duration, start time.Time) {
	left := make(map[int64]struct{}, len(seqs))
	for _, seq := range seqs {
		left[seq] = struct{}{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byToken == nil {
		b.byToken = map[engine.ID]*claim{}
	}
	for t, old := range b.byToken {
		// Twice the lease: a late Extend may still revive it.
		if old.busy == 0 && start.After(old.expires.Add(old.lease)) {
			delete(b.byToken, t)
		}
	}
	b.byToken[token] = &claim{lanes: lanes, left: left, lease: lease, expires: start.Add(lease)}
}

// Extended notes that a claim's lease was renewed by a call that began at start.
func (b *Book) Extended(token engine.ID, lease time.Duration, start time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cl := b.byToken[token]; cl != nil {
		cl.lease, cl.expires = lease, start.Add(lease)
	}
}

// Len is how many claims are remembered.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byToken)
}

// An Answer is one settlement's part in the claims that it touches.
type Answer struct {
	book  *Book
	taken map[engine.ID][]int64 // what this settlement answers
	// Frees are the claims that it answers the last of, with their lanes: they are to
	// be freed in its transaction.
	Frees map[engine.ID][]int16
}

// Begin takes what rs answer out of their claims. A claim of which nothing is left
// then, and that nobody else is answering, is in Frees. End must follow.
func (b *Book) Begin(rs []engine.Receipt) *Answer {
	a := &Answer{book: b, taken: map[engine.ID][]int64{}, Frees: map[engine.ID][]int16{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rs {
		cl := b.byToken[r.Token]
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
		if cl := b.byToken[token]; len(cl.left) == 0 && cl.busy == 1 {
			a.Frees[token] = cl.lanes
		}
	}
	return a
}

// End says whether the settlement was committed. It returns the claims that are
// now answered and were freed by no transaction.
func (a *Answer) End(committed bool) (unfreed []Orphan) {
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	for token, seqs := range a.taken {
		cl := a.book.byToken[token]
		cl.busy--
		if !committed {
			for _, seq := range seqs {
				cl.left[seq] = struct{}{}
			}
			continue
		}
		if _, freed := a.Frees[token]; freed {
			cl.freed = true
		}
		if len(cl.left) > 0 || cl.busy > 0 {
			continue
		}
		delete(a.book.byToken, token)
		if !cl.freed {
			unfreed = append(unfreed, Orphan{Token: token, Lanes: cl.lanes, Until: cl.expires})
		}
	}
	return unfreed
}

// Forget takes receipts that are lost out of their claims.
func (b *Book) Forget(lost []engine.Receipt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range lost {
		if cl := b.byToken[r.Token]; cl != nil {
			delete(cl.left, r.Seq)
			if len(cl.left) == 0 && cl.busy == 0 {
				delete(b.byToken, r.Token)
			}
		}
	}
}

// KeepOrphan keeps a claim for the next Claim to free.
func (b *Book) KeepOrphan(o Orphan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphans = append(b.orphans, o)
}

// TakeOrphans hands over the claims that still have to be freed.
func (b *Book) TakeOrphans(now time.Time) []Orphan {
	b.mu.Lock()
	defer b.mu.Unlock()
	os := slices.DeleteFunc(b.orphans, func(o Orphan) bool { return now.After(o.Until) })
	b.orphans = nil
	return os
}
