// Package suite holds the clauses of the conformance suite: what a dialect, a
// transport or a pair must do, each clause with a stable id and one sentence. It
// is free of package testing, so that the same clauses run in `go test` (package
// conformance) and in a program.
package suite

import (
	"context"
	"time"

	"github.com/outward-dev/outward/engine"
)

// T is what a clause needs of whatever runs it; *testing.T fits.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A StoreSubject is one empty outbox of a dialect, as the clauses see it. The
// fields marked optional may be nil; the clauses that need them are then reported
// as NOT CHECKED. Published messages must be kept in the archive for more than a day
// and less than half a year, so that a clause can see where a message ended.
type StoreSubject struct {
	// Open returns a Store on the table as another process would have it: it shares
	// nothing with the Stores opened before but the database.
	Open func(t T) engine.Store
	// Begin opens a transaction of the caller's own, in which Enqueue is called. Up to
	// four are open at a time, from several goroutines.
	Begin func(t T) Tx
	// Shift lets d pass for the table: it moves every instant that is stored in it
	// back by d, or the database's clock ahead. Nothing else changes.
	Shift func(t T, d time.Duration)
	// Look returns what the table and its archive have under id.
	Look func(t T, id engine.ID) Row
	// Plant inserts a row as a foreign writer might that no store can decode:
	// headers that are no object of strings, say. Optional.
	Plant func(t T, topic, key string) engine.ID
	// HoldSnapshot opens a transaction that sees the table as it is now, and keeps it
	// open until the returned function is called. Optional.
	HoldSnapshot func(t T) (release func())
	// Seed makes the random clause repeat what it did under the same seed before;
	// zero: another one each time. It is printed.
	Seed uint64
}

// Tx is a business transaction.
type Tx interface {
	Enqueue(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// State is where a row stands.
type State string

// The states of a row, and the three ways to be gone.
const (
	Ready     State = "ready"
	Waiting   State = "waiting"
	Held      State = "held"
	Dead      State = "dead"
	Archived  State = "published" // in the archive, published
	Discarded State = "discarded" // in the archive, discarded
	Absent    State = "absent"
)

// A Row is what a table knows of a message.
type Row struct {
	State     State
	Attempts  int
	Crashes   int
	Resends   int
	PausedFor string
	LastError string
	LastClass string
	Due       time.Duration // until it is due, by the database's clock; negative: overdue
	Failing   bool          // the first charged failure is recorded
}
