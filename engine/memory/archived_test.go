package memory_test

import (
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// Archived shows what Replay would take: of a message that was settled twice the
// last settling alone.
func TestArchived(t *testing.T) {
	db := memory.NewDatabase(&memory.Options{Retention: time.Hour})
	store := db.NewStore()
	ids, err := db.Enqueue(t.Context(), engine.Message{Topic: "a", Type: "a.v1"}, engine.Message{Topic: "b", Type: "b.v1"})
	if err != nil {
		t.Fatal(err)
	}
	settle := func() {
		t.Helper()
		claimed, err := store.Claim(t.Context(), engine.ClaimRequest{Limit: 10, Lease: time.Second})
		if err != nil || len(claimed) == 0 {
			t.Fatalf("claimed %d, %v", len(claimed), err)
		}
		for _, c := range claimed {
			if _, err := store.Settle(t.Context(), engine.MarkPublished(c.Receipt)); err != nil {
				t.Fatal(err)
			}
		}
	}
	settle()
	if n, err := store.Replay(t.Context(), engine.Filter{Topic: "a"}, engine.Actor{Name: "anna"}); n != 1 || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	settle()
	var got []engine.ID
	for r, err := range store.Archived(t.Context(), engine.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.SettledAt.IsZero() || r.Discarded || r.ID == ids[0] && r.Resends != 1 {
			t.Errorf("%+v", r)
		}
		got = append(got, r.ID)
	}
	if len(got) != 2 || got[0] != ids[1] || got[1] != ids[0] {
		t.Errorf("archived are %v, want %v then %v", got, ids[1], ids[0])
	}
	for r, err := range store.Archived(t.Context(), engine.Filter{Topic: "b", Limit: 1}) {
		if err != nil || r.ID != ids[1] {
			t.Errorf("%v, %v", r.ID, err)
		}
	}
}
