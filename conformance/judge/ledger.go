package judge

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"sync"

	"github.com/outward-dev/outward/engine"
)

// A Fate is how a producer's transaction ended.
type Fate uint8

// How a transaction ends.
const (
	Committed  Fate = iota
	RolledBack      // or was never committed
	Unknown         // the answer to COMMIT was lost
)

var fateNames = [...]string{"committed", "rolled back", "unknown"}

// String returns the fate in lower case.
func (f Fate) String() string { return fateNames[f] }

// A Ledger is what the producers of a test know of what they wrote. Its zero value
// is empty and ready. It may be used concurrently. It keeps no payload, only what
// tells one from another.
type Ledger struct {
	mu      sync.Mutex
	entries map[string]*entry // by the id's text
	numbers map[string]int    // by key: how many were logged
	txs     int
}

// An entry is one message that somebody wrote.
type entry struct {
	id     engine.ID
	fate   Fate
	tx     int    // its transaction
	number int    // within its key
	blamed string // why it may be charged and die; empty: it may not
	msg    engine.Message
	sum    [sha256.Size]byte // of the payload
	size   int
}

// ordered reports whether the message has a place among others. One that was
// delayed takes it when it becomes due.
func (e *entry) ordered() bool { return e.msg.Key != "" && e.msg.Delay <= 0 }

// Log writes down one transaction and how it ended; ids are those of msgs, as
// Enqueue returned them. Messages of one key are numbered in the order of the calls:
// so log a transaction before the key's next one begins. Transactions of one key
// that overlap have no order, here as little as in the table.
//
// A message that is logged again was tried again: one that was rolled back may be
// committed later and takes its number then; of one whose fate was unknown it is
// known now. What was committed stays committed.
//
// Log keeps the Headers and changes nothing. It panics where there are not as many
// ids as messages, for then it can't tell which is which.
func (l *Ledger) Log(f Fate, ids []engine.ID, msgs []engine.Message) {
	if len(ids) != len(msgs) {
		panic(fmt.Sprintf("judge: %d ids of %d messages", len(ids), len(msgs)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries, l.numbers = map[string]*entry{}, map[string]int{}
	}
	l.txs++
	for i, m := range msgs {
		name := ids[i].String()
		old := l.entries[name]
		if old != nil && old.fate == Committed {
			continue
		}
		e := &entry{id: ids[i], fate: f, tx: l.txs, msg: m, sum: sha256.Sum256(m.Payload), size: len(m.Payload)}
		e.msg.Payload, e.msg.Headers = nil, maps.Clone(m.Headers)
		if old != nil {
			e.blamed, e.number = old.blamed, old.number
		}
		if m.Key != "" && (old == nil || old.fate == RolledBack) {
			l.numbers[m.Key]++
			e.number = l.numbers[m.Key]
		}
		l.entries[name] = e
	}
}

// Blame says that messages are themselves at fault, and why: poison, too large, one
// that kills its relay. They may be charged, may die, and have no place in the order
// of their key. Lost they may not be. They have been logged before.
func (l *Ledger) Blame(why string, ids ...engine.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		e := l.entries[id.String()]
		if e == nil {
			panic(fmt.Sprintf("judge: message %s is blamed and was never logged", id))
		}
		e.blamed = why
	}
}

// Count returns how many messages of a fate were logged.
func (l *Ledger) Count(f Fate) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.fate == f {
			n++
		}
	}
	return n
}
