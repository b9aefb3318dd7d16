package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/outward-dev/outward/dialects/internal/bell"
	"github.com/outward-dev/outward/dialects/internal/claims"
	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/engine"
)

// Store implements engine.Store and all its optional abilities. It keeps in
// memory what is unanswered of its claims, so that a claim's lanes are freed with
// its last answer, and who listens; nothing else. It may be shared, and it closes
// nothing: the *sql.DB is the caller's.
type Store struct {
	db    *sql.DB
	names names
	want  *Retention
	log   *slog.Logger // may be nil
	q     statements
	chunk int   // how many rows a transaction moves at most
	bytes int64 // and a claim's payloads have

	book     claims.Book
	suspects atomic.Bool
	bell     bell.Bell
	settings schema.Known

	// hook, which only tests set, is called before every statement of a transaction.
	// An error of the hook is the statement's.
	hook func(name string) error
}

var (
	_ engine.Store      = (*Store)(nil)
	_ engine.Suspicious = (*Store)(nil)
	_ engine.Notifier   = (*Store)(nil)
	_ engine.Purger     = (*Store)(nil)
	_ engine.Monitor    = (*Store)(nil)
	_ engine.Operator   = (*Store)(nil)
	_ engine.Checker    = (*Store)(nil)
)

// NewStore returns a Store on the table that opts name. It does no I/O. The
// table's retention is read from the database; opts.Retention is only compared
// with it, by Check.
//
// Each call takes a connection of db for one transaction; none is kept in between,
// and no session variable is changed.
func NewStore(db *sql.DB, opts *Options) (*Store, error) {
	n, err := opts.names()
	if db == nil {
		err = errors.Join(err, errors.New("the database is nil"))
	}
	var want *Retention
	if opts != nil && opts.Retention != nil {
		w := *opts.Retention
		want, err = &w, errors.Join(err, w.Check())
	}
	if err != nil {
		return nil, fmt.Errorf("mysql: new store: %w", err)
	}
	s := &Store{db: db, names: n, want: want, q: newStatements(n), chunk: chunk, bytes: reading.MaxBytes}
	if opts != nil {
		s.log = opts.Logger
	}
	return s, nil
}

// Describe implements [engine.Store].
func (s *Store) Describe() engine.StoreInfo {
	return engine.StoreInfo{Dialect: "mysql", Table: s.names.table()}
}

// Suspects implements [engine.Suspicious].
func (s *Store) Suspects() bool { return s.suspects.Load() }

// current returns the table's settings.
func (s *Store) current(ctx context.Context) (schema.Settings, error) {
	return s.settings.Current(ctx, s.names.table(), func(ctx context.Context) (schema.Settings, error) { return readSettings(ctx, s.db, s.names) })
}

// later says that something was left for a later claim to do again. It is no
// caller's error: nothing was lost but time.
func (s *Store) later(ctx context.Context, what string, err error) {
	if s.log != nil {
		s.log.WarnContext(ctx, "mysql: put off to the next claim", "what", what, "table", s.names.table(), "error", err)
	}
}
