package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Store is one process's view of a [Database]. It may be shared.
type Store struct {
	db *Database

	// What is unanswered of each claim, so that the lanes of a claim are freed with
	// its last answer. It is memory, not table: a token never outlives its process.
	mu       sync.Mutex
	claims   map[engine.ID]*claim
	suspects bool
}

// A claim is what one call of Claim took.
type claim struct {
	lanes []int
	left  map[int64]bool
}

var (
	_ engine.Store      = (*Store)(nil)
	_ engine.Suspicious = (*Store)(nil)
	_ engine.Notifier   = (*Store)(nil)
	_ engine.Purger     = (*Store)(nil)
	_ engine.Monitor    = (*Store)(nil)
	_ engine.Operator   = (*Store)(nil)
)

// NewStore returns a Store as another process would have it: it shares nothing
// with the others but the database.
func (db *Database) NewStore() *Store {
	return &Store{db: db, claims: map[engine.ID]*claim{}}
}

// Describe implements [engine.Store].
func (s *Store) Describe() engine.StoreInfo {
	return engine.StoreInfo{Dialect: "memory", Table: "memory"}
}

// Suspects implements [engine.Suspicious].
func (s *Store) Suspects() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspects
}

// begin is how every call starts: with the database locked and at one instant of
// its clock.
func (s *Store) begin(ctx context.Context, what string) (now time.Time, end func(), err error) {
	if err := ctx.Err(); err != nil {
		return now, nil, fmt.Errorf("memory: %s: %w", what, err)
	}
	s.mu.Lock()
	s.db.mu.Lock()
	return s.db.now(), func() { s.db.mu.Unlock(); s.mu.Unlock() }, nil
}

// A receipt's Scope is the row's lane and its stamp when it was handed out.
func receipt(r *row, token engine.ID) engine.Receipt {
	return engine.Receipt{Seq: r.seq, Token: token, Scope: int64(r.lane)<<32 | int64(r.stamp)}
}

func (db *Database) laneOfReceipt(r engine.Receipt) *lane {
	if i := r.Scope >> 32; i >= 0 && i < int64(len(db.lanes)) {
		return &db.lanes[i]
	}
	return &lane{}
}

func stampOf(r engine.Receipt) uint32 { return uint32(r.Scope) }

// Claim implements [engine.Store].
func (s *Store) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	if req.Limit < 1 || req.Lease <= 0 {
		return nil, fmt.Errorf("memory: claim: limit %d and lease %v must be positive", req.Limit, req.Lease)
	}
	now, end, err := s.begin(ctx, "claim")
	if err != nil {
		return nil, err
	}
	defer end()
	db := s.db
	db.promote(now)
	if req.Idle {
		s.suspects = false
	}
	token := engine.NewID()
	// An empty claim says that nothing may go. So lanes that hold nothing but what
	// must wait are no reason to stop: the next ones are looked at.
	var lanes []int
	var batch []*row
	for seen := map[int]bool{}; len(batch) == 0; {
		if lanes = db.lease(token, now, req.Lease, seen); len(lanes) == 0 {
			return nil, nil
		}
		var suspects bool
		batch, suspects = db.read(lanes, req, now)
		s.suspects = s.suspects || suspects
		if len(batch) == 0 {
			db.free(lanes, token)
		}
	}

	for _, r := range batch {
		l := &db.lanes[r.lane]
		if l.handed == nil {
			l.handed = map[int64]uint32{}
		}
		l.handed[r.seq], l.total = r.stamp, len(batch)
	}
	// A lane of which nothing is handed out must not stay leased: nobody would
	// answer for it, and it would be closed until the lease is over.
	idle := slices.DeleteFunc(slices.Clone(lanes), func(i int) bool { return len(db.lanes[i].handed) > 0 })
	db.free(idle, token)
	c := &claim{lanes: lanes, left: map[int64]bool{}}
	claimed := make([]engine.Claimed, len(batch))
	for i, r := range batch {
		c.left[r.seq] = true
		claimed[i] = engine.Claimed{Message: r.Message, Receipt: receipt(r, token),
			Attempts: r.attempts, Crashes: r.crashes, Resends: r.resends, CreatedAt: r.created, Company: r.company, Bad: r.bad}
		claimed[i].Headers, claimed[i].Payload = maps.Clone(r.Headers), slices.Clone(r.Payload)
		if !r.firstFailed.IsZero() {
			claimed[i].FailingFor = now.Sub(r.firstFailed)
		}
	}
	s.claims[token] = c
	return claimed, nil
}

// promote makes ready what waited for an instant that has come, or for a pause
// that is over. Entries stay: a row that blocks its key does so until it is
// settled.
func (db *Database) promote(now time.Time) {
	for _, r := range db.waiting {
		if r.pausedFor != "" {
			// Not only in Resume: a relay may park a row for a pause that has ended since.
			if _, paused := db.pauses[r.pausedFor]; !paused {
				r.pausedFor = ""
				db.move(r, ready)
			}
			continue
		}
		if r.due.After(now) {
			continue
		}
		if !r.token.IsZero() {
			// Its holder is late or gone. The old token must not settle it any more, and
			// since nobody knows what it does to a relay, it goes alone.
			r.token, r.company = engine.ID{}, 1
			r.stamp++
		}
		db.move(r, ready)
	}
}

// lease gives some lanes that have work and no live lease to token, those first
// that were used longest ago, and none that this claim has seen.
func (db *Database) lease(token engine.ID, now time.Time, lease time.Duration, seen map[int]bool) []int {
	var open []int
	for i := range db.lanes {
		if l := &db.lanes[i]; len(l.ready) > 0 && !l.until.After(now) && !seen[i] {
			open = append(open, i)
		}
	}
	slices.SortStableFunc(open, func(a, b int) int { return cmp.Compare(db.lanes[a].used, db.lanes[b].used) })
	open = open[:min(len(open), db.opts.LanesPerClaim)]
	slices.Sort(open)
	db.claims++
	for _, i := range open {
		l := &db.lanes[i]
		seen[i] = true
		db.takeOver(l)
		l.token, l.until, l.used, l.handed, l.total = token, now.Add(lease), db.claims, nil, 0
	}
	return open
}

// free ends the leases that token has on lanes. The token stays: see lane.
func (db *Database) free(lanes []int, token engine.ID) {
	for _, i := range lanes {
		if l := &db.lanes[i]; l.token == token {
			l.handed, l.total, l.until = nil, 0, time.Time{}
		}
	}
}

// takeOver makes suspects of the rows that a lease which has run out still had in
// hand. Nobody is charged for company: each goes again with half of what was in
// flight with it, and only one that was alone already counts a crash.
func (db *Database) takeOver(l *lane) {
	for _, r := range l.ready {
		if stamp, handed := l.handed[r.seq]; handed && stamp == r.stamp {
			if r.company == 1 {
				r.crashes++
			}
			r.company = max(1, l.total/2)
			r.stamp++
		}
	}
}

// read chooses what may go out of the leased lanes, in the order of seq, and
// moves out of the ready set what may not: each such row is met once.
func (db *Database) read(lanes []int, req engine.ClaimRequest, now time.Time) (batch []*row, suspects bool) {
	closed := map[string]bool{} // keys of which nothing more may go in this claim
	var later, behind, parked []*row
	room := req.Limit
	for r := range db.readyIn(lanes) {
		if len(batch) >= room {
			break
		}
		if r.due.After(now) {
			later = append(later, r)
			continue
		}
		if low, blocked := db.lowest(r.Key); blocked && low < r.seq {
			if !db.isBlocking(r) {
				behind = append(behind, r)
			}
			continue
		} else if closed[r.Key] {
			continue
		} else if blocked {
			closed[r.Key] = true // the head itself, and nothing behind it
		}
		closes := func() { closed[r.Key] = r.Key != "" }
		if slices.Contains(req.Paused, r.Topic) {
			parked = append(parked, r)
			closes()
			continue
		}
		if r.company > 0 {
			if !req.Idle {
				suspects = true
				closes()
				continue
			}
			if len(batch) >= r.company {
				break
			}
			room = min(room, r.company)
		}
		batch = append(batch, r)
	}
	for _, r := range later {
		db.move(r, waiting)
	}
	for _, r := range behind {
		db.move(r, held)
	}
	for _, r := range parked {
		r.pausedFor = cmp.Or(req.PausedFor[r.Topic], r.Topic)
		r.stamp++
		db.move(r, waiting)
		db.block(r)
	}
	return batch, suspects
}

// readyIn yields the ready rows of some lanes in the order of seq. The rows must
// not be moved meanwhile.
func (db *Database) readyIn(lanes []int) func(yield func(*row) bool) {
	return func(yield func(*row) bool) {
		heads := make([][]*row, len(lanes))
		for i, l := range lanes {
			heads[i] = db.lanes[l].ready
		}
		for {
			first := -1
			for i, h := range heads {
				if len(h) > 0 && (first < 0 || h[0].seq < heads[first][0].seq) {
					first = i
				}
			}
			if first < 0 || !yield(heads[first][0]) {
				return
			}
			heads[first] = heads[first][1:]
		}
	}
}

// inHand says how a receipt stands: the row, while it is in the holder's hands;
// nil and no loss when it was answered before; lost when the token no longer
// stands.
func (db *Database) inHand(rc engine.Receipt) (r *row, lost bool) {
	r = db.rows[rc.Seq]
	if r != nil && r.detachedBy(rc.Token) {
		return r, false
	}
	if l := db.laneOfReceipt(rc); rc.Token.IsZero() || l.token != rc.Token {
		return nil, true
	}
	if r == nil || r.state != ready {
		return nil, false
	}
	return r, false
}

func (r *row) detachedBy(token engine.ID) bool {
	return r.state == waiting && !r.token.IsZero() && r.token == token
}

// Settle implements [engine.Store].
func (s *Store) Settle(ctx context.Context, ss ...engine.Settlement) (lost []engine.Receipt, err error) {
	now, end, err := s.begin(ctx, "settle")
	if err != nil {
		return nil, err
	}
	defer end()
	// Confirmations first: a later failure of the same key must not find its
	// predecessor still there.
	ss = slices.Clone(ss)
	slices.SortStableFunc(ss, func(a, b engine.Settlement) int {
		return cmp.Compare(min(a.Kind, 1), min(b.Kind, 1))
	})
	for _, st := range ss {
		r, gone := s.db.inHand(st.Receipt)
		switch {
		case gone:
			lost = append(lost, st.Receipt)
		case r != nil:
			s.db.settle(r, st, now)
		}
	}
	for _, st := range ss {
		s.answered(st.Receipt)
	}
	return lost, nil
}

// settle changes one row that is in the holder's hands.
func (db *Database) settle(r *row, st engine.Settlement, now time.Time) {
	if st.Kind == engine.Published {
		db.bury(r, archivedPublished, "", now)
		return
	}
	// Another stamp means that this verdict was heard before and the row has moved
	// on: repeating it would charge it twice, or undo what an operator did.
	if !r.detachedBy(st.Receipt.Token) && r.stamp != stampOf(st.Receipt) {
		return
	}
	r.stamp++
	if st.Kind == engine.Detached {
		r.token, r.due = st.Receipt.Token, now.Add(st.After)
		db.move(r, waiting)
		db.block(r)
		return
	}
	r.token = engine.ID{}
	switch st.Kind {
	case engine.Released:
		r.due = now // a detached row's was the end of its lease
		db.move(r, ready)
		return
	case engine.Retried:
		r.due, r.pausedFor = now.Add(st.After), st.PausedFor
		if st.Charge {
			r.attempts++
			if r.firstFailed.IsZero() {
				r.firstFailed = now
			}
		}
		db.move(r, waiting)
	case engine.Buried:
		r.deadAt = now
		db.move(r, dead)
	}
	r.company = 0
	r.lastError, r.lastClass = st.Fault.Text(), st.Fault.Class.String()
	if st.HoldKey {
		db.block(r)
	} else {
		db.unblock(r)
	}
}

// answered strikes a receipt off its claim; with the last one, or when the rest
// is lost, the claim's lanes are free.
func (s *Store) answered(rc engine.Receipt) {
	c := s.claims[rc.Token]
	if c == nil {
		return
	}
	delete(c.left, rc.Seq)
	if len(c.left) > 0 {
		return
	}
	s.db.free(c.lanes, rc.Token)
	delete(s.claims, rc.Token)
}

// Extend implements [engine.Store].
func (s *Store) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) (lost []engine.Receipt, err error) {
	now, end, err := s.begin(ctx, "extend")
	if err != nil {
		return nil, err
	}
	defer end()
	for _, rc := range rs {
		r, gone := s.db.inHand(rc)
		l := s.db.laneOfReceipt(rc)
		switch {
		case gone, r != nil && !r.detachedBy(rc.Token) && l.freed():
			// A freed lane is not revived: nobody would answer for it again.
			lost = append(lost, rc)
			s.answered(rc)
		case r != nil && r.detachedBy(rc.Token):
			r.due = now.Add(lease)
		case !l.freed():
			l.until = now.Add(lease)
		}
	}
	return lost, nil
}
