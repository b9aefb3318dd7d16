package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

// BuildOptions are what a set of relays gets to know of its process. A nil
// *BuildOptions means all defaults.
type BuildOptions struct {
	// Logger takes the relays' logs; nil: none.
	Logger *slog.Logger
	// Hooks returns the hooks of a relay by its name; nil: none.
	Hooks func(relay string) engine.Hooks
	// Removed is told when a relay is gone for good; nil: nobody is.
	Removed func(relay string)
	// Paused pauses every transport before the relays claim anything, as an operator
	// would: for all relays on the table, until somebody resumes them.
	Paused bool
}

func (o *BuildOptions) withDefaults() BuildOptions {
	var v BuildOptions
	if o != nil {
		v = *o
	}
	if v.Logger == nil {
		v.Logger = slog.New(slog.DiscardHandler)
	}
	if v.Hooks == nil {
		v.Hooks = func(string) engine.Hooks { return engine.Hooks{} }
	}
	if v.Removed == nil {
		v.Removed = func(string) {}
	}
	return v
}

// A member is one relay of a set, with what was opened for it.
type member struct {
	conf       *Relay
	log        *slog.Logger
	paused     bool
	db         Database
	operator   engine.Operator // nil where the dialect has none
	transports []engine.Transport
	relay      *engine.Relay

	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended and everything is closed

	mu     sync.Mutex
	err    error // why it ended last; nil: it did not, or it works again
	failed bool  // it has ended and is not running now
}

// build opens what a relay needs. It does no I/O.
func (r *Relay) build(o BuildOptions) (*member, error) {
	m := &member{conf: r, log: o.Logger.With("relay", r.Name), paused: o.Paused, done: make(chan struct{})}
	fail := func(err error) (*member, error) {
		m.close()
		return nil, fmt.Errorf("config: relay %s: %w", r.Name, err)
	}
	var err error
	if m.db, err = r.table.open(r.Name, m.log); err != nil {
		return fail(err)
	}
	m.operator, _ = m.db.Store().(engine.Operator)
	byName := map[*transport]engine.Transport{}
	for _, t := range r.transports {
		opened, err := t.settings.open(brokerOptions{
			name: t.name, relay: r.Name, destinations: r.destinations(t), logger: m.log.With("transport", t.name),
		})
		if err != nil {
			return fail(fmt.Errorf("transport %s: %w", t.name, err))
		}
		byName[t] = opened
		m.transports = append(m.transports, opened)
	}
	routes := make([]engine.Route, len(r.routes))
	for i, rt := range r.routes {
		routes[i] = engine.Route{Topics: rt.topics, Transport: byName[rt.transport], Destination: rt.destination, Delivery: rt.delivery}
	}
	options := r.options
	options.Logger = o.Logger
	options.Hooks = o.Hooks(r.Name)
	if m.relay, err = engine.New(m.db.Store(), routes, &options); err != nil {
		return fail(err)
	}
	return m, nil
}

// destinations are those of a transport that the routes name.
func (r *Relay) destinations(t *transport) []string {
	var names []string
	seen := map[string]bool{"": true}
	for _, rt := range r.routes {
		if rt.transport == t && !seen[rt.destination] {
			seen[rt.destination] = true
			names = append(names, rt.destination)
		}
	}
	return names
}

// closeTimeout bounds closing a connection to a broker or a database: it must not
// keep a process from ending.
const closeTimeout = 5 * time.Second

// close closes what was opened. The relay must have ended.
func (m *member) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var closing sync.WaitGroup
	for _, t := range m.transports {
		closing.Go(func() {
			if err := t.Close(ctx); err != nil {
				m.log.Warn("a transport did not close in time", "transport", t.Describe().Name, "error", err)
			}
		})
	}
	closing.Wait()
	if m.db == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		m.db.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		m.log.Warn("the connections of the database did not close in time")
	}
}

// pauseAll pauses every transport of the relay. It returns when that has succeeded
// or ctx has ended.
func (m *member) pauseAll(ctx context.Context) error {
	if m.operator == nil {
		return errors.New("the dialect can't pause, so the relay can't start paused")
	}
	for _, t := range m.transports {
		p := engine.Pause{
			Destination: engine.TransportPause(t.Describe().Name),
			By:          engine.Actor{Name: "outward relay", Reason: "started with --paused"},
		}
		for ctx.Err() == nil {
			try, cancel := context.WithTimeout(ctx, m.conf.options.SettleTimeout)
			err := m.operator.Pause(try, p)
			cancel()
			if err == nil {
				m.log.Warn("started paused", "destination", p.Destination, "until", "outward resume "+p.Destination)
				break
			}
			m.log.Error("not paused yet, so nothing is relayed; trying again", "destination", p.Destination, "error", err)
			sleep(ctx, retryPause)
		}
	}
	return nil
}

const retryPause = 2 * time.Second

// sleep waits for d and reports whether ctx still goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
