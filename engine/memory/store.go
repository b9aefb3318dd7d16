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
		if len(batch) == 0 && db.keeps(freesEmpty) {
			db.free(lanes, token)
		}
		if !db.keeps(claimLooksOn) {
			break
		}
	}
	if len(batch) == 0 {
		return nil, nil
	}

	for _, r := range batch {
		l := &db.lanes[r.lane]
		if l.handed == nil {
			l.handed = map[int64]uint32{}
		}
		l.handed[r.seq], l.total = r.stamp, len(batch)
		if !db.keeps(wholeClaim) {
			l.total = len(l.handed)
		}
	}
	// A lane of which nothing is handed out must not stay leased: nobody would
	// answer for it, and it would be closed until the lease is over.
	c := &claim{left: map[int64]bool{}}
	for _, i := range lanes {
		if len(db.lanes[i].handed) > 0 {
			c.lanes = append(c.lanes, i)
		} else if db.keeps(freesCut) {
			db.free([]int{i}, token)
		}
	}
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
			if _, paused := db.pauses[r.pausedFor]; !paused && db.keeps(pausesEnd) {
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
			if db.keeps(promoteClears) {
				r.token = engine.ID{}
			}
			if db.keeps(detachedAlone) {
				r.company = 1
			}
			r.stamp++
		}
		db.move(r, ready)
		if !db.keeps(promoteBlocks) {
			db.unblock(r)
		}
	}
}

// lease gives some lanes that have work and no live lease to token, those first
// that were used longest ago, and none that this claim has seen.
func (db *Database) lease(token engine.ID, now time.Time, lease time.Duration, seen map[int]bool) []int {
	var open []int
	for i := range db.lanes {
		if l := &db.lanes[i]; len(l.ready) > 0 && !seen[i] && !(l.until.After(now) && db.keeps(leaseExcludes)) {
			open = append(open, i)
		}
	}
	if db.keeps(lruLanes) {
		slices.SortStableFunc(open, func(a, b int) int { return cmp.Compare(db.lanes[a].used, db.lanes[b].used) })
	}
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
			if !db.keeps(keepsToken) {
				l.token = engine.ID{}
			}
		}
	}
}

// takeOver makes suspects of the rows that a lease which has run out still had in
// hand. Nobody is charged for company: each goes again with half of what was in
// flight with it, and only one that was alone already counts a crash.
func (db *Database) takeOver(l *lane) {
	for _, r := range l.ready {
		stamp, handed := l.handed[r.seq]
		if !handed && (db.keeps(onlyHanded) || len(l.handed) == 0) || handed && stamp != r.stamp && db.keeps(takeoverStamp) {
			continue
		}
		if r.company == 1 && db.keeps(crashAlone) || !db.keeps(crashOnlyAlone) {
			r.crashes++
		}
		r.company = max(1, l.total/2)
		if !db.keeps(halves) {
			r.company = l.total
		}
		r.stamp++
	}
}

// read chooses what may go out of the leased lanes, in the order of seq, and
// moves out of the ready set what may not: each such row is met once.
func (db *Database) read(lanes []int, req engine.ClaimRequest, now time.Time) (batch []*row, suspects bool) {
	closed := map[string]bool{} // keys of which nothing more may go in this claim
	var later, behind, parked []*row
	room := req.Limit
	if !db.keeps(limitHolds) {
		room++
	}
	for r := range db.readyIn(lanes) {
		if len(batch) >= room {
			break
		}
		if r.due.After(now) {
			later = append(later, r)
			continue
		}
		if db.blocked(r) {
			if !db.isBlocking(r) && db.keeps(movesBehind) {
				behind = append(behind, r)
			}
			continue
		}
		if closed[r.Key] {
			continue
		}
		if slices.Contains(req.Paused, r.Topic) && db.keeps(pausedParks) {
			if parked = append(parked, r); !db.keeps(pausedLeaves) {
				room-- // as where a query reads so many rows and filters them afterwards
			}
			closed[r.Key] = r.Key != "" && db.keeps(pausedBlocks)
			continue
		}
		if r.company > 0 && !req.Idle && db.keeps(suspectsIdle) {
			suspects = true
			closed[r.Key] = r.Key != "" && db.keeps(suspectCloses)
			if !db.keeps(suspectsAside) {
				break
			}
			continue
		}
		if r.company > 0 && db.keeps(companyLimits) {
			if len(batch) >= r.company {
				break
			}
			room = min(room, r.company)
		}
		batch = append(batch, r)
	}
	for _, r := range later {
		db.move(r, waiting)
		if !db.keeps(delayPassesKey) {
			db.block(r)
		}
	}
	for _, r := range behind {
		db.move(r, held)
	}
	for _, r := range parked {
		if !db.keeps(pausedLeaves) {
			continue
		}
		r.pausedFor = req.PausedFor[r.Topic]
		if db.keeps(pausedNamed) {
			r.pausedFor = cmp.Or(r.pausedFor, r.Topic)
		}
		r.stamp++
		db.move(r, waiting)
		if db.keeps(pausedBlocks) {
			db.block(r)
		}
	}
	return batch, suspects
}

// blocked reports whether an earlier row of its key is in r's way.
func (db *Database) blocked(r *row) bool {
	entries := db.blocks[r.Key]
	switch {
	case r.Key == "" || len(entries) == 0 || !db.keeps(readSeesBlocks):
		return false
	case !db.keeps(smallerBlocks):
		return slices.ContainsFunc(entries, func(seq int64) bool { return seq != r.seq })
	}
	return entries[0] < r.seq
}

// readyIn yields the ready rows of some lanes in the order of seq. The rows must
// not be moved meanwhile.
func (db *Database) readyIn(lanes []int) func(yield func(*row) bool) {
	return func(yield func(*row) bool) {
		heads := make([][]*row, len(lanes))
		for i, l := range lanes {
			heads[i] = db.lanes[l].ready
			if !db.keeps(inSeqOrder) {
				heads[i] = slices.Clone(heads[i])
				slices.Reverse(heads[i])
			}
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
func (db *Database) inHand(rc engine.Receipt, now time.Time) (r *row, lost bool) {
	r = db.rows[rc.Seq]
	l := db.laneOfReceipt(rc)
	if db.detachedBy(r, rc.Token) && (l.token == rc.Token || db.keeps(detachedByToken)) {
		return r, !db.keeps(lateCounts) && !r.due.After(now)
	}
	if (rc.Token.IsZero() || l.token != rc.Token) && db.keeps(fenced) {
		return nil, true
	}
	if l.until.Before(now) && !db.keeps(lateCounts) {
		return nil, true
	}
	if r == nil || r.state != ready && db.keeps(answeredOnce) {
		return nil, !db.keeps(goneIsDone)
	}
	return r, false
}

// detachedBy reports whether r is a detached row of the claim with this token.
func (db *Database) detachedBy(r *row, token engine.ID) bool {
	return r != nil && (r.state == waiting || !db.keeps(promoteClears)) && !r.token.IsZero() && r.token == token
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
		r, gone := s.db.inHand(st.Receipt, now)
		switch {
		case gone:
			lost = append(lost, st.Receipt)
		case r != nil:
			s.db.settle(r, st, now)
		}
	}
	for _, st := range ss {
		if st.Kind != engine.Detached || s.db.keeps(detachAnswers) {
			s.answered(st.Receipt)
		}
	}
	return lost, nil
}

// settle changes one row that is in the holder's hands.
func (db *Database) settle(r *row, st engine.Settlement, now time.Time) {
	if st.Kind == engine.Published {
		db.archiveRow(r, archivedPublished, "", now)
		db.remove(r)
		return
	}
	// Another stamp means that this verdict was heard before and the row has moved
	// on: repeating it would charge it twice, or undo what an operator did.
	if !db.detachedBy(r, st.Receipt.Token) && r.stamp != stampOf(st.Receipt) && db.keeps(stampCompared) && db.keeps(answeredOnce) {
		return
	}
	r.stamp++
	if st.Kind == engine.Detached {
		r.token, r.due = st.Receipt.Token, now.Add(st.After)
		if !db.keeps(detachLease) {
			r.due = db.lanes[r.lane].until
		}
		db.move(r, waiting)
		if db.keeps(detachBlocks) {
			db.block(r)
		}
		return
	}
	r.token = engine.ID{}
	holds := st.HoldKey
	switch st.Kind {
	case engine.Released:
		if db.keeps(releaseNow) {
			r.due = now // a detached row's was the end of its lease
		}
		if !db.keeps(releaseKeeps) {
			r.company = 0
		}
		db.move(r, ready)
		return
	case engine.Retried:
		r.due = now.Add(st.After)
		if db.keeps(parksForPause) {
			r.pausedFor = st.PausedFor
		}
		if st.Charge {
			r.attempts++
			if r.firstFailed.IsZero() || !db.keeps(firstFailure) {
				r.firstFailed = now
			}
		}
		holds = holds && db.keeps(retryHolds) || !db.keeps(retryPasses)
		db.move(r, waiting)
	case engine.Buried:
		r.deadAt = now
		holds = holds && db.keeps(deadHolds)
		db.move(r, dead)
	}
	if db.keeps(retryClears) {
		r.company = 0
	}
	r.lastError, r.lastClass = st.Fault.Text(), st.Fault.Class.String()
	if holds {
		db.block(r)
	} else if st.Kind == engine.Retried || db.keeps(passReleases) {
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
	if len(c.left) > 0 && s.db.keeps(freesOnlyThen) || !s.db.keeps(freesAnswered) {
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
	db := s.db
	for _, rc := range rs {
		r, gone := db.inHand(rc, now)
		l := db.laneOfReceipt(rc)
		detached := db.detachedBy(r, rc.Token)
		switch {
		case gone, r != nil && !detached && l.freed() && db.keeps(noRevival):
			// A freed lane is not revived: nobody would answer for it again.
			lost = append(lost, rc)
			s.answered(rc)
		case detached:
			r.due = db.extended(r.due, now, lease)
		case !l.freed() || !db.keeps(noRevival):
			l.until = db.extended(l.until, now, lease)
		}
	}
	return lost, nil
}

func (db *Database) extended(until, now time.Time, lease time.Duration) time.Time {
	switch {
	case !db.keeps(extendsFromNow):
		return until.Add(lease)
	case !db.keeps(extendShortens) && until.After(now.Add(lease)):
		return until
	}
	return now.Add(lease)
}
