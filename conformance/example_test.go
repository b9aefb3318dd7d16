package conformance_test

import (
	"errors"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance"
	"github.com/outward-dev/outward/conformance/suite"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// TestDialect is what the author of a dialect writes. A SQL dialect would create a
// table of its own here, and drop it with t.Cleanup.
func TestDialect(t *testing.T) {
	conformance.TestStore(t, newSubject,
		conformance.Waive("store.order.flood", "the other clauses of order say enough for an example"))
}

func newSubject(*testing.T) *suite.StoreSubject {
	db := memory.NewDatabase(nil)
	return &suite.StoreSubject{
		Open:  func(suite.T) engine.Store { return db.NewStore() },
		Begin: func(suite.T) suite.Tx { return db.Begin() },
		Shift: func(_ suite.T, d time.Duration) { db.Shift(d) },
		Look: func(_ suite.T, id engine.ID) suite.Row {
			r := db.Look(id)
			return suite.Row{State: suite.State(r.State), Attempts: r.Attempts, Crashes: r.Crashes, Resends: r.Resends,
				PausedFor: r.PausedFor, LastError: r.LastError, LastClass: r.LastClass, Due: r.Due, Failing: r.Failing}
		},
		Plant: func(_ suite.T, topic, key string) engine.ID {
			return db.Plant(engine.Message{Topic: topic, Key: key, Type: "planted"}, errors.New("headers are an array"))
		},
		HoldSnapshot: func(suite.T) func() { return func() {} }, // no statement here has a snapshot
	}
}
