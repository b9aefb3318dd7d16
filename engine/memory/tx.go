package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Tx stands for a business transaction. What it enqueues has its number at once
// and is seen when it commits, as in a database: numbers do not follow commits.
// A Tx is for one goroutine.
type Tx struct {
	db   *Database
	rows []*row
	over bool
}

// ErrTxDone is what a transaction says that was committed or rolled back before.
var ErrTxDone = errors.New("memory: the transaction is over")

// Begin opens a transaction.
func (db *Database) Begin() *Tx { return &Tx{db: db} }

// Enqueue adds messages to the transaction and returns their ids. An id that the
// table has gives [engine.ErrDuplicateID] and leaves the transaction usable; so
// does one that another open transaction has enqueued, where a SQL database would
// wait for that transaction to end.
func (tx *Tx) Enqueue(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
	if err := cmp.Or(ctx.Err(), tx.err()); err != nil {
		return nil, fmt.Errorf("memory: enqueue: %w", err)
	}
	if err := engine.CheckAll(msgs, 0, nil); err != nil {
		return nil, fmt.Errorf("memory: enqueue: %w", err)
	}
	db := tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	for i, m := range msgs {
		if db.ids[m.ID] {
			return nil, fmt.Errorf("memory: enqueue: message %d: id %v: %w", i, m.ID, engine.ErrDuplicateID)
		}
	}
	ids := make([]engine.ID, len(msgs))
	for i, m := range msgs {
		r := db.newRow(m)
		db.ids[r.ID] = true
		tx.rows = append(tx.rows, r)
		ids[i] = r.ID
	}
	return ids, nil
}

// newRow gives a message its number and its defaults.
func (db *Database) newRow(m engine.Message) *row {
	now := db.now()
	db.seq++
	r := &row{Message: m, seq: db.seq, lane: db.laneOf(m.Key, db.seq), created: now, due: now.Add(m.Delay)}
	r.Delay = 0
	if db.keeps(copies) {
		r.Headers, r.Payload = maps.Clone(m.Headers), bytes.Clone(m.Payload)
	}
	r.ContentType = cmp.Or(m.ContentType, engine.DefaultContentType)
	if r.ID.IsZero() {
		r.ID = engine.NewID()
	}
	if r.OccurredAt.IsZero() {
		r.OccurredAt = now
	}
	r.OccurredAt = r.OccurredAt.UTC().Round(0).Truncate(time.Microsecond)
	return r
}

// Commit makes what was enqueued part of the table.
func (tx *Tx) Commit(ctx context.Context) error {
	return tx.end(ctx, func(r *row) { tx.db.insert(r) })
}

// Rollback drops it.
func (tx *Tx) Rollback(ctx context.Context) error {
	return tx.end(ctx, func(r *row) { delete(tx.db.ids, r.ID) })
}

func (tx *Tx) end(ctx context.Context, each func(*row)) error {
	if err := cmp.Or(ctx.Err(), tx.err()); err != nil {
		return err
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.over = true
	for _, r := range tx.rows {
		each(r)
	}
	tx.db.notify()
	return nil
}

func (tx *Tx) err() error {
	if tx.over {
		return ErrTxDone
	}
	return nil
}

// Enqueue commits messages in a transaction of their own.
func (db *Database) Enqueue(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
	tx := db.Begin()
	ids, err := tx.Enqueue(ctx, msgs...)
	if err != nil {
		return nil, err
	}
	return ids, tx.Commit(ctx)
}

// Plant adds a row that can't be decoded, as a foreign writer might leave one: a
// claim returns it with Bad set to bad.
func (db *Database) Plant(m engine.Message, bad error) engine.ID {
	db.mu.Lock()
	defer db.mu.Unlock()
	r := db.newRow(m)
	r.bad = bad
	db.insert(r)
	db.notify()
	return r.ID
}

// A Row is what a table knows of a message.
type Row struct {
	State     string // ready, waiting, held, dead, published, discarded or absent
	Attempts  int
	Crashes   int
	Resends   int
	PausedFor string
	LastError string
	LastClass string
	Due       time.Duration // until it is due; negative: overdue
	Failing   bool          // a charged failure is recorded
}

// Look returns what the table, or else its archive, has under id.
func (db *Database) Look(id engine.ID) Row {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, r := range db.rows {
		if r.ID == id {
			return Row{State: stateNames[r.state], Attempts: r.attempts, Crashes: r.crashes, Resends: r.resends,
				PausedFor: r.pausedFor, LastError: r.lastError, LastClass: r.lastClass,
				Due: r.due.Sub(db.now()), Failing: !r.firstFailed.IsZero()}
		}
	}
	for i := len(db.archive) - 1; i >= 0; i-- {
		if a := db.archive[i]; a.ID == id {
			return Row{State: a.outcome, Attempts: a.attempts, Crashes: a.crashes, Resends: a.resends,
				LastError: a.lastError, LastClass: a.lastClass}
		}
	}
	return Row{State: "absent"}
}
