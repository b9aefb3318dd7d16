package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

// A Set is the relays of a configuration, running in one process. None disturbs
// another: each has its own connections, and one that can't work is tried again
// while others go on. All methods may be called concurrently; Run once.
type Set struct {
	opts BuildOptions

	reload sync.Mutex // held by Reload, which may take as long as a drain

	mu      sync.Mutex
	members []*member // in the order of the file
	ctx     context.Context
	running sync.WaitGroup
	ended   chan struct{} // capacity 1: a member has ended or failed
}

// Build makes the set of relays. It does no I/O and starts nothing.
func (c *Config) Build(o *BuildOptions) (*Set, error) {
	s := &Set{opts: o.withDefaults(), ended: make(chan struct{}, 1)}
	var faults []error
	for _, r := range c.Relays {
		m, err := r.build(s.opts)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		s.members = append(s.members, m)
	}
	if err := errors.Join(faults...); err != nil {
		for _, m := range s.members {
			m.close()
		}
		return nil, err
	}
	return s, nil
}

// retryRelay is how soon a relay that ended with an error is tried again.
const retryRelay = 5 * time.Second

// Run runs all relays until ctx ends, drains them, closes what was opened, and
// returns nil. A relay that ends with an error, for its schema say, is reported and
// tried again; when none is left that works, Run ends with all their errors.
func (s *Set) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if s.ctx != nil {
		s.mu.Unlock()
		return errors.New("config: the relays were run already")
	}
	s.ctx = ctx
	for _, m := range s.members {
		s.start(m)
	}
	s.mu.Unlock()
	var err error
	for ctx.Err() == nil && err == nil {
		select {
		case <-ctx.Done():
		case <-s.ended:
			err = s.allFailed()
		}
	}
	cancel()
	s.mu.Lock()   // no Reload starts another from here on
	s.mu.Unlock() //nolint:staticcheck // empty on purpose: it waits for a Reload under way
	s.running.Wait()
	return err
}

// start runs a member until it is stopped; s.mu is held.
func (s *Set) start(m *member) {
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(s.ctx)
	s.running.Go(func() {
		defer close(m.done)
		defer m.close()
		m.run(ctx, func() {
			select {
			case s.ended <- struct{}{}:
			default:
			}
		})
	})
}

// run runs the relay until ctx ends, again and again if it must.
func (m *member) run(ctx context.Context, failed func()) {
	for {
		err := m.once(ctx)
		if err == nil {
			return
		}
		m.log.Error("the relay can't work; trying again while others do", "error", err)
		m.mu.Lock()
		m.err, m.failed = err, true
		m.mu.Unlock()
		failed()
		if !sleep(ctx, retryRelay) {
			return
		}
		m.mu.Lock()
		m.failed = false
		m.mu.Unlock()
	}
}

func (m *member) once(ctx context.Context) error {
	if m.paused {
		// A schema that isn't there can't be paused in: that is Run's to report.
		fatal := false
		if c, ok := m.db.Store().(engine.Checker); ok {
			try, cancel := context.WithTimeout(ctx, m.conf.options.Lease)
			fatal = slices.ContainsFunc(c.Check(try), func(f engine.Finding) bool { return f.Level == engine.Fatal })
			cancel()
		}
		if !fatal {
			if err := m.pauseAll(ctx); err != nil {
				return err
			}
			m.paused = false
		}
	}
	return m.relay.Run(ctx)
}

// allFailed returns the errors of all members if none is running.
func (s *Set) allFailed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, m := range s.members {
		m.mu.Lock()
		err, failed := m.err, m.failed
		m.mu.Unlock()
		if !failed {
			return nil
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// A RelayStatus is how one relay of a set does.
type RelayStatus struct {
	engine.Status
	// Err is why the relay ended last; nil: it did not, or it works again.
	Err error
}

// Status returns how the relays do, in the order of the file.
func (s *Set) Status() []RelayStatus {
	s.mu.Lock()
	members := slices.Clone(s.members)
	s.mu.Unlock()
	all := make([]RelayStatus, len(members))
	for i, m := range members {
		all[i].Status = m.relay.Status()
		m.mu.Lock()
		if m.failed || !all[i].Ready {
			all[i].Err = m.err
		}
		m.mu.Unlock()
	}
	return all
}

// Changes are what a Reload did, by the names of the relays.
type Changes struct{ Added, Changed, Removed, Unchanged []string }

func (c Changes) String() string {
	return fmt.Sprintf("added %v, changed %v, removed %v, unchanged %v", c.Added, c.Changed, c.Removed, c.Unchanged)
}

// Reload goes over to another configuration. Relays whose settings are the same are
// not touched; changed and removed ones drain and end, and changed and added ones
// start. It returns when that is done. After an error everything is as before.
func (s *Set) Reload(c *Config) (Changes, error) {
	s.reload.Lock()
	defer s.reload.Unlock()
	s.mu.Lock()
	running := s.ctx != nil && s.ctx.Err() == nil
	current := s.members // nobody else changes it while reload is held
	s.mu.Unlock()
	if !running {
		return Changes{}, errors.New("config: the relays are not running")
	}
	var changes Changes
	var faults []error
	var fresh, stay, members []*member
	for _, r := range c.Relays {
		old := memberOf(current, r.Name)
		if old != nil && old.conf.fingerprint == r.fingerprint {
			changes.Unchanged = append(changes.Unchanged, r.Name)
			stay = append(stay, old)
			members = append(members, old)
			continue
		}
		m, err := r.build(s.opts)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if old != nil {
			changes.Changed = append(changes.Changed, r.Name)
		} else {
			changes.Added = append(changes.Added, r.Name)
		}
		fresh = append(fresh, m)
		members = append(members, m)
	}
	if err := errors.Join(faults...); err != nil {
		for _, m := range fresh {
			m.close()
		}
		return Changes{}, err
	}
	var leaving []*member
	for _, m := range current {
		if !slices.Contains(stay, m) {
			m.cancel()
			leaving = append(leaving, m)
			if c.Relay(m.conf.Name) == nil {
				changes.Removed = append(changes.Removed, m.conf.Name)
			}
		}
	}
	for _, m := range leaving { // all drain at the same time
		<-m.done
	}
	for _, name := range changes.Removed {
		s.opts.Removed(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range fresh {
		m.paused = false // a pause is for the start of the process
		s.start(m)
	}
	s.members = members
	return changes, nil
}

func memberOf(members []*member, name string) *member {
	for _, m := range members {
		if m.conf.Name == name {
			return m
		}
	}
	return nil
}

// Close closes a set that is not to be run.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		return // Run closes what it ran
	}
	for _, m := range s.members {
		m.close()
	}
}
