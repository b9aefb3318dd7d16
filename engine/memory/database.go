package memory

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Options of a Database; nil and the zero value are the defaults.
type Options struct {
	// Retention is how long published messages stay in the archive: 0 means 72 h,
	// a negative value that nothing of them is kept.
	Retention time.Duration
	// DiscardRetention is how long discarded messages stay there; 0: 90 days.
	DiscardRetention time.Duration
	// Lanes is how many lanes the messages are spread over; 0: 64.
	Lanes int
	// LanesPerClaim is how many lanes one claim leases at most; 0: 8.
	LanesPerClaim int
}

// Database is one outbox table. Its methods may be called concurrently.
type Database struct {
	opts Options

	mu        sync.Mutex
	ahead     time.Duration // how far the clock is ahead of the process's
	seq       int64
	claims    int64 // counts them, to find the lane that was used longest ago
	rows      map[int64]*row
	ids       map[engine.ID]bool // of rows and of what open transactions have enqueued
	lanes     []lane
	waiting   map[int64]*row
	held      map[string]map[int64]*row // by key
	blocks    map[string][]int64        // by key: the rows that hold it back, ascending
	pauses    map[string]engine.Pause
	probes    map[string]time.Time // when the next probe of a relay's pause is due
	archive   []archived
	audit     []Audit
	listeners map[chan struct{}]bool

	off rule // set by tests only
}

// NewDatabase returns an empty table.
func NewDatabase(opts *Options) *Database {
	db := &Database{
		rows: map[int64]*row{}, ids: map[engine.ID]bool{},
		waiting: map[int64]*row{}, held: map[string]map[int64]*row{}, blocks: map[string][]int64{},
		pauses: map[string]engine.Pause{}, probes: map[string]time.Time{}, listeners: map[chan struct{}]bool{},
	}
	if opts != nil {
		db.opts = *opts
	}
	db.opts.Retention = cmp.Or(db.opts.Retention, 72*time.Hour)
	db.opts.DiscardRetention = cmp.Or(db.opts.DiscardRetention, 90*24*time.Hour)
	db.opts.LanesPerClaim = cmp.Or(max(db.opts.LanesPerClaim, 0), 8)
	db.lanes = make([]lane, cmp.Or(max(db.opts.Lanes, 0), 64))
	return db
}

// Shift moves the database's clock ahead by d: what was to come in d is now.
func (db *Database) Shift(d time.Duration) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.ahead += d
}

// now is the database's clock, to the microsecond as tables keep it. In a bubble
// of testing/synctest it is the bubble's.
func (db *Database) now() time.Time {
	return time.Now().Add(db.ahead).UTC().Round(0).Truncate(time.Microsecond)
}

// The states of a row.
type state uint8

const (
	ready   state = iota // may go, if it is due and its key is free
	waiting              // for its time, for the end of a pause, or detached
	held                 // behind a row that blocks its key
	dead                 // until an operator acts
)

var stateNames = [...]string{"ready", "waiting", "held", "dead"}

// A row is one message that still has to go, or is dead.
type row struct {
	engine.Message
	seq     int64
	lane    int
	created time.Time

	state     state
	due       time.Time
	attempts  int
	crashes   int
	resends   int
	stamp     uint32    // changed by every answer, takeover and operator action
	company   int       // 0: no suspect; else how many may be in flight with it
	token     engine.ID // a detached row's claim
	pausedFor string

	firstFailed time.Time
	deadAt      time.Time
	lastError   string
	lastClass   string
	bad         error
}

// A lane is the unit of claim. It is free when its lease is over and nothing is
// handed; freeing it keeps the token, so that the last holder's repeat after a
// lost answer is still known to be its own.
type lane struct {
	token  engine.ID
	until  time.Time
	used   int64
	handed map[int64]uint32 // the stamps of the rows that the current lease handed out
	total  int              // how many messages that claim had in all its lanes
	ready  []*row           // ascending
}

func (l *lane) freed() bool { return len(l.handed) == 0 && l.until.IsZero() }

// laneOf is the lane of a key, or of a row without one.
func (db *Database) laneOf(key string, seq int64) int {
	if key == "" {
		return int(seq % int64(len(db.lanes)))
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(len(db.lanes)))
}

func bySeq(r *row, seq int64) int { return cmp.Compare(r.seq, seq) }

// insert puts a row into the table, in state r.state.
func (db *Database) insert(r *row) {
	db.rows[r.seq] = r
	db.ids[r.ID] = true
	db.enter(r)
}

// move changes the state of a row.
func (db *Database) move(r *row, to state) {
	db.leave(r)
	r.state = to
	db.enter(r)
}

// remove takes a row out of the table, and out of the way of those behind it.
func (db *Database) remove(r *row) {
	db.leave(r)
	delete(db.rows, r.seq)
	if db.keeps(idsReusable) {
		delete(db.ids, r.ID)
	}
	db.unblock(r)
}

func (db *Database) enter(r *row) {
	switch r.state {
	case ready:
		l := &db.lanes[r.lane]
		i, _ := slices.BinarySearchFunc(l.ready, r.seq, bySeq)
		l.ready = slices.Insert(l.ready, i, r)
	case waiting:
		db.waiting[r.seq] = r
	case held:
		if db.held[r.Key] == nil {
			db.held[r.Key] = map[int64]*row{}
		}
		db.held[r.Key][r.seq] = r
	}
}

func (db *Database) leave(r *row) {
	switch r.state {
	case ready:
		l := &db.lanes[r.lane]
		switch i, ok := slices.BinarySearchFunc(l.ready, r.seq, bySeq); {
		case ok && i == 0: // the usual case, and the one in which nothing need be moved
			l.ready[0] = nil
			l.ready = l.ready[1:]
		case ok:
			l.ready = slices.Delete(l.ready, i, i+1)
		}
	case waiting:
		delete(db.waiting, r.seq)
	case held:
		delete(db.held[r.Key], r.seq)
	}
}

// block makes r hold back the later rows of its key.
func (db *Database) block(r *row) {
	if r.Key == "" {
		return
	}
	entries := db.blocks[r.Key]
	if len(entries) > 0 && !db.keeps(entryEach) {
		return
	}
	if i, found := slices.BinarySearch(entries, r.seq); !found {
		db.blocks[r.Key] = slices.Insert(entries, i, r.seq)
	}
}

// unblock ends that, and releases the held rows up to the next one that blocks
// the key: two rows of one key may have failed, and both must be in the way.
func (db *Database) unblock(r *row) {
	i, found := slices.BinarySearch(db.blocks[r.Key], r.seq)
	if r.Key == "" || !found {
		return
	}
	left := slices.Delete(db.blocks[r.Key], i, i+1)
	if !db.keeps(upToNext) {
		left = nil
	}
	db.blocks[r.Key] = left
	for n, seq := range slices.Sorted(maps.Keys(db.held[r.Key])) {
		if len(left) > 0 && seq > left[0] || n > 10_000 && !db.keeps(releasesAll) {
			break
		}
		db.move(db.rows[seq], ready)
	}
	if len(left) == 0 {
		delete(db.blocks, r.Key)
		delete(db.held, r.Key)
	}
}

// isBlocking reports whether r holds back the later rows of its key.
func (db *Database) isBlocking(r *row) bool {
	_, found := slices.BinarySearch(db.blocks[r.Key], r.seq)
	return found
}

// notify wakes the listeners; one signal that waits is enough.
func (db *Database) notify() {
	for ch := range db.listeners {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Listen implements [engine.Notifier].
func (s *Store) Listen(ctx context.Context) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	db, ch := s.db, make(chan struct{}, 1)
	db.mu.Lock()
	defer db.mu.Unlock()
	db.listeners[ch] = true
	context.AfterFunc(ctx, func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		delete(db.listeners, ch)
		close(ch)
	})
	return ch, nil
}
