package memory

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Outcomes in the archive.
const (
	archivedPublished = "published"
	archivedDiscarded = "discarded"
)

// archived is a message that was settled.
type archived struct {
	row
	outcome string
	reason  string
	settled time.Time
}

// Audit is one thing that somebody did to messages or destinations.
type Audit struct {
	Action string // requeue, discard, replay, pause or resume
	By     engine.Actor
	Target string // a message's id, or a destination
	At     time.Time
}

// Audit returns what operators and relays did, oldest first.
func (db *Database) Audit() []Audit {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Clone(db.audit)
}

func (db *Database) record(action string, by engine.Actor, target string, now time.Time) {
	db.audit = append(db.audit, Audit{Action: action, By: by, Target: target, At: now})
}

// archiveRow keeps a copy of a row that is about to go, if it is to be kept.
func (db *Database) archiveRow(r *row, outcome, reason string, now time.Time) {
	if outcome == archivedDiscarded || db.opts.Retention > 0 {
		db.archive = append(db.archive, archived{row: *r, outcome: outcome, reason: reason, settled: now})
	}
}

func matches(f engine.Filter, r *row, at time.Time) bool {
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, r.ID)) &&
		(f.Topic == "" || f.Topic == r.Topic) &&
		(f.Key == "" || f.Key == r.Key) &&
		(f.Type == "" || f.Type == r.Type) &&
		(f.ErrorClass == "" || f.ErrorClass == r.lastClass) &&
		(f.From.IsZero() || !at.Before(f.From)) &&
		(f.To.IsZero() || at.Before(f.To))
}

// deadRows returns the dead rows that match, in the order of seq.
func (db *Database) deadRows(f engine.Filter) []*row {
	var found []*row
	for _, seq := range slices.Sorted(maps.Keys(db.rows)) {
		if r := db.rows[seq]; (r.state == dead || !db.keeps(deadOnly)) && matches(f, r, r.created) {
			found = append(found, r)
			if len(found) == f.Limit {
				break
			}
		}
	}
	return found
}

// Dead implements [engine.Operator].
func (s *Store) Dead(ctx context.Context, f engine.Filter) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		_, end, err := s.begin(ctx, "dead")
		if err != nil {
			yield(engine.Record{}, err)
			return
		}
		var records []engine.Record
		for _, r := range s.db.deadRows(f) {
			records = append(records, engine.Record{Message: r.Message, Seq: r.seq, CreatedAt: r.created, DeadAt: r.deadAt,
				Attempts: r.attempts, Crashes: r.crashes, Resends: r.resends,
				LastError: r.lastError, LastErrorClass: r.lastClass, HoldsKey: s.db.isBlocking(r)})
		}
		end()
		for _, rec := range records {
			if err := ctx.Err(); err != nil {
				yield(engine.Record{}, fmt.Errorf("memory: dead: %w", err))
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// Requeue implements [engine.Operator].
func (s *Store) Requeue(ctx context.Context, f engine.Filter, by engine.Actor) (int, error) {
	return s.each(ctx, "requeue", f, by, func(r *row, now time.Time) {
		if !s.db.isBlocking(r) && !s.db.keeps(requeuePassed) {
			return
		}
		r.deadAt, r.due = time.Time{}, now
		if s.db.keeps(requeueResets) {
			r.attempts, r.crashes, r.firstFailed = 0, 0, time.Time{}
		}
		r.resends++
		// A new stamp, not an old one again: the verdict that buried it may be repeated.
		r.stamp++
		// Its entry stays. It is the head of its key as before.
		s.db.move(r, ready)
	})
}

// Discard implements [engine.Operator].
func (s *Store) Discard(ctx context.Context, f engine.Filter, by engine.Actor) (int, error) {
	return s.each(ctx, "discard", f, by, func(r *row, now time.Time) {
		s.db.archiveRow(r, archivedDiscarded, by.Reason, now)
		if s.db.keeps(discardFrees) {
			s.db.remove(r)
		} else {
			s.db.leave(r)
			delete(s.db.rows, r.seq)
		}
	})
}

func (s *Store) each(ctx context.Context, action string, f engine.Filter, by engine.Actor, do func(*row, time.Time)) (int, error) {
	now, end, err := s.begin(ctx, action)
	if err != nil {
		return 0, err
	}
	defer end()
	rows := s.db.deadRows(f)
	for _, r := range rows {
		do(r, now)
		s.db.record(action, by, r.ID.String(), now)
	}
	s.db.notify()
	return len(rows), nil
}

// Replay implements [engine.Operator]. Of a message that was archived more than
// once the last copy counts; one that is in the table is left alone.
func (s *Store) Replay(ctx context.Context, f engine.Filter, by engine.Actor) (int, error) {
	now, end, err := s.begin(ctx, "replay")
	if err != nil {
		return 0, err
	}
	defer end()
	db := s.db
	last := map[engine.ID]*archived{}
	for i := range db.archive {
		if a := &db.archive[i]; matches(f, &a.row, a.settled) && !db.ids[a.ID] {
			last[a.ID] = a
		}
	}
	chosen := slices.SortedFunc(maps.Values(last), func(a, b *archived) int { return int(a.seq - b.seq) })
	if f.Limit > 0 {
		chosen = chosen[:min(len(chosen), f.Limit)]
	}
	for _, a := range chosen {
		if !db.keeps(replaySameID) {
			a.ID = engine.NewID()
		}
		r := db.newRow(a.Message)
		r.resends, r.bad = a.resends+1, a.bad
		db.insert(r)
		db.record("replay", by, r.ID.String(), now)
	}
	db.notify()
	return len(chosen), nil
}

// Pause implements [engine.Operator].
func (s *Store) Pause(ctx context.Context, p engine.Pause) error {
	now, end, err := s.begin(ctx, "pause")
	if err != nil {
		return err
	}
	defer end()
	db := s.db
	// The first relay to find a destination ill pauses it; the next ones must not
	// push its probe away.
	if _, paused := db.pauses[p.Destination]; paused && p.By.Relay {
		return nil
	}
	p.Since = now
	db.pauses[p.Destination] = p
	if p.By.Relay {
		db.probes[p.Destination] = now.Add(p.ProbeAfter)
	} else {
		delete(db.probes, p.Destination)
	}
	db.record("pause", p.By, p.Destination, now)
	return nil
}

// Resume implements [engine.Operator]. What was parked is ready when it returns.
func (s *Store) Resume(ctx context.Context, destination string, by engine.Actor) (bool, error) {
	now, end, err := s.begin(ctx, "resume")
	if err != nil {
		return false, err
	}
	defer end()
	db := s.db
	p, paused := db.pauses[destination]
	if !paused || by.Relay && !p.By.Relay {
		return false, nil
	}
	delete(db.pauses, destination)
	delete(db.probes, destination)
	for _, r := range db.waiting {
		if r.pausedFor == destination || r.pausedFor != "" && !db.keeps(resumesItsOwn) {
			r.pausedFor = ""
			db.move(r, ready)
		}
	}
	db.record("resume", by, destination, now)
	db.notify()
	return true, nil
}

// Pauses implements [engine.Operator].
func (s *Store) Pauses(ctx context.Context) ([]engine.Pause, error) {
	now, end, err := s.begin(ctx, "pauses")
	if err != nil {
		return nil, err
	}
	defer end()
	var ps []engine.Pause
	for _, name := range slices.Sorted(maps.Keys(s.db.pauses)) {
		p := s.db.pauses[name]
		p.For, p.ProbeAfter = now.Sub(p.Since), 0
		if due, probed := s.db.probes[name]; probed {
			p.ProbeIn = due.Sub(now)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// TakeProbe implements [engine.Operator].
func (s *Store) TakeProbe(ctx context.Context, destination string, next time.Duration) (bool, error) {
	now, end, err := s.begin(ctx, "take probe")
	if err != nil {
		return false, err
	}
	defer end()
	due, probed := s.db.probes[destination]
	if !probed || due.After(now) {
		return false, nil
	}
	s.db.probes[destination] = now.Add(next)
	return true, nil
}

// Purge implements [engine.Purger].
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	now, end, err := s.begin(ctx, "purge")
	if err != nil {
		return 0, err
	}
	defer end()
	purged := 0
	for _, r := range s.db.rows {
		if r.state == dead && now.Sub(r.created) > s.db.opts.DiscardRetention && !s.db.keeps(purgeArchive) {
			s.db.remove(r)
		}
	}
	s.db.archive = slices.DeleteFunc(s.db.archive, func(a archived) bool {
		keep := s.db.opts.Retention
		if a.outcome == archivedDiscarded {
			keep = s.db.opts.DiscardRetention
		}
		if purged >= limit || now.Sub(a.settled) <= keep {
			return false
		}
		purged++
		return true
	})
	return purged, nil
}

// Backlog implements [engine.Monitor]. Its counts are exact.
func (s *Store) Backlog(ctx context.Context) (engine.Backlog, error) {
	now, end, err := s.begin(ctx, "backlog")
	if err != nil {
		return engine.Backlog{}, err
	}
	defer end()
	db := s.db
	var b engine.Backlog
	counts := [...]*engine.Count{ready: &b.Ready, waiting: &b.Waiting, held: &b.Held, dead: &b.Dead}
	for _, r := range db.rows {
		counts[r.state].N++
		if r.pausedFor != "" {
			b.Parked.N++
		}
		if r.state == waiting && !r.token.IsZero() && r.due.After(now) {
			b.Leased++
		}
		age := now.Sub(r.created)
		if r.state != dead {
			b.Oldest = max(b.Oldest, age)
		}
		if db.isBlocking(r) {
			b.OldestHold = max(b.OldestHold, age)
		}
	}
	for i := range db.lanes {
		if db.lanes[i].until.After(now) {
			b.Leased++
		}
	}
	b.HeldKeys.N = len(db.blocks)
	return b, nil
}
