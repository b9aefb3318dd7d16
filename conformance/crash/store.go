package crash

import (
	"context"
	"errors"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Store returns s with the rig around it. A relay finds in it the optional abilities
// that s has. Where not to have one and to have it with nothing to say is the same to
// a relay, it finds one that says nothing; a Backlog that s can't count is
// [errors.ErrUnsupported].
func (r *Rig) Store(s engine.Store) engine.Store {
	w := &store{Store: s, r: r}
	operator, operates := s.(engine.Operator)
	suspicious, suspects := s.(engine.Suspicious)
	switch {
	case operates && suspects:
		return struct {
			*store
			engine.Operator
			engine.Suspicious
		}{w, operator, suspicious}
	case operates:
		return struct {
			*store
			engine.Operator
		}{w, operator}
	case suspects:
		return struct {
			*store
			engine.Suspicious
		}{w, suspicious}
	}
	return w
}

// A store is one with a rig around it. It passes on what is not told here.
type store struct {
	engine.Store
	r *Rig
}

// Claim stops where messages were claimed.
func (s *store) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	s.r.pass()
	rows, err := s.Store.Claim(ctx, req)
	s.r.lock()
	defer s.r.mu.Unlock()
	if len(rows) > 0 {
		s.r.at(Claimed)
	}
	return rows, err
}

// Settle waits until enough was confirmed, and stops where it was settled.
func (s *store) Settle(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
	s.r.lock()
	s.r.hold(func() bool { return s.r.stopped || s.r.confirmed < s.r.After })
	s.r.mu.Unlock()
	lost, err := s.Store.Settle(ctx, ss...)
	s.r.lock()
	defer s.r.mu.Unlock()
	if err == nil {
		s.r.settled += len(ss) - len(lost)
		if s.r.settled >= s.r.After {
			s.r.at(Settled)
		}
	}
	return lost, err
}

// Extend goes on unless the process was stopped.
func (s *store) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) ([]engine.Receipt, error) {
	s.r.pass()
	lost, err := s.Store.Extend(ctx, rs, lease)
	s.r.pass()
	return lost, err
}

// Listen gives no signals where the store has none: they are hints.
func (s *store) Listen(ctx context.Context) (<-chan struct{}, error) {
	if n, ok := s.Store.(engine.Notifier); ok {
		return n.Listen(ctx)
	}
	signals := make(chan struct{})
	context.AfterFunc(ctx, func() { close(signals) })
	return signals, nil
}

// Purge deletes nothing where the store can't.
func (s *store) Purge(ctx context.Context, limit int) (int, error) {
	if p, ok := s.Store.(engine.Purger); ok {
		return p.Purge(ctx, limit)
	}
	return 0, nil
}

// Backlog can't be counted where the store can't.
func (s *store) Backlog(ctx context.Context) (engine.Backlog, error) {
	if m, ok := s.Store.(engine.Monitor); ok {
		return m.Backlog(ctx)
	}
	return engine.Backlog{}, errors.ErrUnsupported
}

// Check finds nothing where the store can't look.
func (s *store) Check(ctx context.Context) []engine.Finding { return check(ctx, s.Store) }

func check(ctx context.Context, v any) []engine.Finding {
	if c, ok := v.(engine.Checker); ok {
		return c.Check(ctx)
	}
	return nil
}
