package memory

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance"
	"github.com/outward-dev/outward/conformance/suite"
	"github.com/outward-dev/outward/engine"
)

// subject is db as the suite sees it.
func subject(db *Database) *suite.StoreSubject {
	return &suite.StoreSubject{
		Open:  func(suite.T) engine.Store { return db.NewStore() },
		Begin: func(suite.T) suite.Tx { return db.Begin() },
		Shift: func(_ suite.T, d time.Duration) { db.Shift(d) },
		Look: func(_ suite.T, id engine.ID) suite.Row {
			r := db.Look(id)
			return suite.Row{State: suite.State(r.State), Attempts: r.Attempts, Crashes: r.Crashes, Resends: r.Resends, PausedFor: r.PausedFor,
				LastError: r.LastError, LastClass: r.LastClass, Due: r.Due, Failing: r.Failing}
		},
		Plant: func(_ suite.T, topic, key string) engine.ID {
			return db.Plant(engine.Message{Topic: topic, Key: key, Type: "t"}, errors.New("headers are an array"))
		},
		// A claim here reads what is committed, whatever anybody has read before.
		HoldSnapshot: func(suite.T) func() { return func() {} },
	}
}

func TestConformance(t *testing.T) {
	conformance.TestStore(t, func(t *testing.T) *suite.StoreSubject { return subject(NewDatabase(nil)) })
}

// Without retention published messages are gone at once, and everything else is
// as it was.
func TestWithoutRetention(t *testing.T) {
	ctx := context.Background()
	db := NewDatabase(&Options{Retention: -1})
	ids, err := db.Enqueue(ctx, engine.Message{Topic: "t", Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	s := db.NewStore()
	cs, err := s.Claim(ctx, engine.ClaimRequest{Limit: 1, Lease: time.Second})
	if err != nil || len(cs) != 1 {
		t.Fatalf("claimed %d, error %v", len(cs), err)
	}
	if lost, err := s.Settle(ctx, engine.MarkPublished(cs[0].Receipt)); err != nil || len(lost) != 0 {
		t.Fatalf("lost %d, error %v", len(lost), err)
	}
	if got := db.Look(ids[0]).State; got != "absent" {
		t.Fatalf("the message is %s, want absent", got)
	}
}
