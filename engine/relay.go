package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Relay claims messages from one store and publishes them through the
// transports of its routes. It is made by [New], which starts nothing; [Relay.Run]
// or [Relay.Step] does the work. Wake and Status may be called at any time and
// concurrently; Run and Step one at a time.
//
// Claim, publish and settle overlap: several batches are in flight, outcomes are
// settled as they come, one statement for many of them.
type Relay struct {
	store  Store
	opts   Options
	log    *slog.Logger
	routes []route
	byName map[string]*broker // by TransportInfo.Name

	// The optional abilities of the store, nil where it lacks them.
	notifier Notifier
	purger   Purger
	monitor  Monitor
	operator Operator
	checker  Checker
	suspects Suspicious

	wake       chan struct{} // capacity 1: there may be work
	running    sync.Mutex    // held by Run and Step
	refreshing sync.Mutex    // held while pauses are written and read
	gate       *gate

	mu           sync.Mutex
	claiming     time.Time // since when the claim loop has waited for its claim; zero: it doesn't
	assisting    bool      // another claim is under way beside it
	plenty       bool      // the last claim was full
	lastAlone    time.Time // the last claim that could hand out suspects
	gaveUp       time.Time // when one last waited in vain to be that
	after        []func()  // to be called when mu is given up: hooks, logs
	destinations map[destinationKey]*destination
	batches      map[*batch]struct{} // with something not settled
	attached     int                 // batches that occupy a place in flight
	outcomes     []outcome           // to be settled
	unsettled    int                 // messages whose outcome is known and not yet settled
	pauses       map[string]*pause
	pausesKnown  bool // nothing is claimed before the table's pauses were read
	ended        int  // pauses that ended so far
	probing      map[string]bool
	relapses     map[string]relapse
	checked      bool                    // Step has found nothing against this database
	topics       map[string]*destination // topics met, for what a claim should park
	grudges      map[ID]*grudge
	work         *work // the running Run or Step; nil between
	status       Status
	storeErrors  map[string]storeError // by operation
	loops        map[string]*heartbeat
}

// work is what lives as long as one Run or Step.
type work struct {
	ctx       context.Context    // of settling, renewing and pausing: outlives the caller's
	stopSends context.CancelFunc // aborts what is at the transports
	sends     context.Context
	publishes sync.WaitGroup
	draining  bool          // nothing more is handed to a transport
	aborted   bool          // the drain limit is over: what is unresolved keeps its lease
	settle    chan struct{} // capacity 1: there are outcomes
	urgent    chan struct{} // capacity 1: enough of them, or all of a batch
	free      chan struct{} // capacity 1: a place in flight, or the end of a pause
	assist    chan struct{} // capacity 1: another claim may make sense
	idle      chan struct{} // capacity 1: nothing is left
	pause     chan struct{} // capacity 1: a pause was made or is due
}

// New makes a relay. It checks everything that needs no I/O, reports all faults
// at once, and starts nothing.
func New(store Store, routes []Route, opts *Options) (*Relay, error) {
	if store == nil {
		return nil, errors.New("engine: a relay needs a store")
	}
	r := &Relay{
		store:        store,
		opts:         opts.withDefaults(store.Describe()),
		wake:         make(chan struct{}, 1),
		gate:         &processGate,
		byName:       map[string]*broker{},
		destinations: map[destinationKey]*destination{},
		batches:      map[*batch]struct{}{},
		pauses:       map[string]*pause{},
		probing:      map[string]bool{},
		relapses:     map[string]relapse{},
		topics:       map[string]*destination{},
		grudges:      map[ID]*grudge{},
		loops:        map[string]*heartbeat{},
		storeErrors:  map[string]storeError{},
	}
	faults := []error{r.opts.check()}
	if len(routes) == 0 {
		faults = append(faults, errors.New("there are no routes; AllTo(transport) sends every topic to the destination of its own name"))
	}
	for i, given := range routes {
		if err := r.addRoute(given); err != nil {
			faults = append(faults, fmt.Errorf("route %d: %w", i, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("engine: relay %q: %w", r.opts.Name, err)
	}
	r.log = r.opts.Logger.With("relay", r.opts.Name)
	r.status.Name = r.opts.Name
	r.notifier, _ = store.(Notifier)
	r.purger, _ = store.(Purger)
	r.monitor, _ = store.(Monitor)
	r.operator, _ = store.(Operator)
	r.checker, _ = store.(Checker)
	r.suspects, _ = store.(Suspicious)
	return r, nil
}

func (r *Relay) addRoute(given Route) error {
	var faults []error
	if err := checkPattern(given.Topics); err != nil {
		faults = append(faults, err)
	}
	delivery := given.Delivery.over(r.opts.Delivery)
	if given.Transport == nil {
		faults = append(faults, errors.New("it has no transport"))
	} else {
		info := given.Transport.Describe()
		b := r.byName[info.Name]
		switch {
		case strings.Contains(info.Name, ":") || slices.Contains(pauseKinds, info.Name):
			faults = append(faults, fmt.Errorf("a transport is named %q; its pauses could be taken for others", info.Name))
		case b == nil:
			b = newBroker(given.Transport)
			r.byName[info.Name] = b
		case b.transport != given.Transport:
			faults = append(faults, fmt.Errorf("two transports are named %q; pauses and metrics need different names", info.Name))
		}
		r.routes = append(r.routes, route{topics: given.Topics, destination: given.Destination, broker: b, delivery: &delivery})
	}
	if err := delivery.check(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// Wake says that there may be new work, after a commit in this process, say. It
// never blocks, and many calls count as one.
func (r *Relay) Wake() { signal(r.wake) }

// Run relays messages until ctx ends, and then returns nil. It first checks the
// schema: a database that no relay may work on (a missing table, a wrong version,
// numbering on which the order per key cannot rest) ends it with an error.
// Everything else is survived: what is out of reach is tried again, with an alarm.
//
// When ctx ends it stops claiming, lets what was handed to a transport finish
// within Options.Drain, settles it, gives back what was never handed over, and
// leaves the lease on what is sent and unresolved. It does not close transports.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.TryLock() {
		return fmt.Errorf("engine: relay %q is running already", r.opts.Name)
	}
	defer r.running.Unlock()
	if err := r.checkUntilReached(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	w, stop := r.begin(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { r.listenLoop(ctx) })
	loops.Go(func() { r.purgeLoop(ctx) })
	loops.Go(func() { r.monitorLoop(ctx) })
	var claims sync.WaitGroup
	claims.Go(func() { r.assistLoop(ctx, w) })
	r.claimLoop(ctx, w)
	claims.Wait()
	r.drain(w)
	loops.Wait()
	stop()
	return nil
}

// Step does one batch: it claims, publishes, settles, and returns how many
// messages it took in hand. It is for tests and for programs that are started by
// a clock. When ctx ends it drains as Run does.
func (r *Relay) Step(ctx context.Context) (int, error) {
	if !r.running.TryLock() {
		return 0, fmt.Errorf("engine: relay %q is running already", r.opts.Name)
	}
	defer r.running.Unlock()
	if err := r.checkOnce(ctx); err != nil {
		return 0, err
	}
	w, stop := r.begin(ctx)
	defer stop()
	if err := r.refreshPauses(ctx); err != nil {
		r.drain(w)
		return 0, err
	}
	var probes sync.WaitGroup
	r.probeDue(ctx, &probes)
	probes.Wait()
	t, err := r.takeTicket(ctx)
	if err != nil {
		r.drain(w)
		return 0, err
	}
	n, err := r.claim(ctx, t)
	if err == nil {
		select {
		case <-ctx.Done():
		case <-r.whenIdle(w):
		}
	}
	r.drain(w)
	return n, err
}

// begin starts what settles, renews and pauses. stop ends it and waits for it.
func (r *Relay) begin(ctx context.Context) (w *work, stop func()) {
	w = &work{
		settle: make(chan struct{}, 1),
		urgent: make(chan struct{}, 1),
		free:   make(chan struct{}, 1),
		assist: make(chan struct{}, 1),
		idle:   make(chan struct{}, 1),
		pause:  make(chan struct{}, 1),
	}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.sends, w.stopSends = context.WithCancel(w.ctx)
	r.lock()
	r.work, r.pausesKnown = w, false
	r.claiming, r.assisting, r.plenty = time.Time{}, false, false // the last Run may have ended at the gate
	clear(r.loops)
	r.unlock()
	var loops sync.WaitGroup
	loops.Go(func() { r.settleLoop(w) })
	loops.Go(func() { r.keepLoop(w) })
	loops.Go(func() { r.pauseLoop(w) })
	return w, func() {
		cancel()
		loops.Wait()
		r.lock()
		r.work = nil
		r.outcomes = nil // what the last call of Settle may have given back
		r.unlock()
	}
}

// signal makes a channel of capacity 1 ready, if it isn't.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lock and unlock guard the relay's bookkeeping. What is to be told to hooks and
// logs meanwhile goes to r.later and is told when the lock has been given up.
func (r *Relay) lock() { r.mu.Lock() }

func (r *Relay) unlock() {
	after := r.after
	r.after = nil
	r.mu.Unlock()
	for _, f := range after {
		f()
	}
}

func (r *Relay) later(f func()) { r.after = append(r.after, f) }

// sleep waits for d, or less if one of the channels is ready or ctx ends.
func sleep(ctx context.Context, d time.Duration, early ...<-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	var a, b <-chan struct{}
	if len(early) > 0 {
		a = early[0]
	}
	if len(early) > 1 {
		b = early[1]
	}
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-a:
	case <-b:
	}
}
