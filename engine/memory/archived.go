package memory

import (
	"context"
	"iter"

	"github.com/outward-dev/outward/engine"
)

var _ engine.Archive = (*Store)(nil)

// Archived implements [engine.Archive].
func (s *Store) Archived(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		_, end, err := s.begin(ctx, "archived")
		if err != nil {
			yield(engine.Record{}, err)
			return
		}
		last := map[engine.ID]int{} // of those that match, as in Replay
		for n, a := range s.db.archive {
			if matches(f, &a.row, a.settled) {
				last[a.ID] = n
			}
		}
		var records []engine.Record
		for n := range s.db.archive {
			a := &s.db.archive[n]
			if at, found := last[a.ID]; !found || at != n {
				continue
			}
			records = append(records, engine.Record{Message: a.Message, Seq: a.seq, CreatedAt: a.created, DeadAt: a.deadAt,
				Attempts: a.attempts, Crashes: a.crashes, Resends: a.resends, LastError: a.lastError, LastErrorClass: a.lastClass,
				SettledAt: a.settled, Discarded: a.outcome == archivedDiscarded})
			if len(records) == f.Limit {
				break
			}
		}
		end()
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}
