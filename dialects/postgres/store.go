package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/dialects/internal/claims"
	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/engine"
)

// Store implements engine.Store and all its optional abilities. It keeps in
// memory what is unanswered of its claims, so that a claim's lanes are freed with
// its last answer; nothing else. It may be shared, and it closes nothing: the pool
// is the caller's.
type Store struct {
	pool  *pgxpool.Pool
	names names
	want  *Retention
	log   *slog.Logger // may be nil
	q     statements

	claims    claims.Book
	suspects  atomic.Bool
	clearance clearance

	settings schema.Known

	// hook, which only tests set, is called before every statement, which then goes
	// out alone instead of with the others. An error of the hook is the statement's.
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
// Each Claim, Settle and Extend takes a connection of the pool for one or two
// round trips; none is kept in between. A dead peer is noticed by the keepalive of
// pgx's dialer.
func NewStore(pool *pgxpool.Pool, opts *Options) (*Store, error) {
	n, err := opts.names()
	if pool == nil {
		err = errors.Join(err, errors.New("the pool is nil"))
	}
	var want *Retention
	if opts != nil && opts.Retention != nil {
		w := *opts.Retention
		want, err = &w, errors.Join(err, w.Check())
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: new store: %w", err)
	}
	s := &Store{pool: pool, names: n, want: want, q: newStatements(n)}
	if opts != nil {
		s.log = opts.Logger
	}
	return s, nil
}

// Describe implements [engine.Store].
func (s *Store) Describe() engine.StoreInfo {
	return engine.StoreInfo{Dialect: "postgres", Table: s.names.table()}
}

// Suspects implements [engine.Suspicious].
func (s *Store) Suspects() bool { return s.suspects.Load() }

// current returns the table's settings.
func (s *Store) current(ctx context.Context) (schema.Settings, error) {
	return s.settings.Current(ctx, s.names.table(), func(ctx context.Context) (schema.Settings, error) { return readSettings(ctx, s.pool, s.names) })
}
