package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// A rig is one table, one broker and the relays over them, in a bubble in which
// time passes by itself.
type rig struct {
	t      *testing.T
	db     *memory.Database
	broker *memory.Transport
	opts   engine.Options

	mu      sync.Mutex
	buried  []engine.Fault
	charged int
	retried int
	paused  []engine.Pause
	resumed []string
	lost    int
	failed  int
	claims  atomic.Int64
	cancel  context.CancelFunc
	ended   chan error
}

// bubble runs a test in a bubble with a rig of its own.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, db: memory.NewDatabase(nil), broker: memory.NewTransport(nil)}
		r.opts.Hooks = engine.Hooks{
			Buried:      func(_ engine.Claimed, f engine.Fault) { r.locked(func() { r.buried = append(r.buried, f) }) },
			Retried:     func(_ engine.Claimed, _ engine.Fault, c bool) { r.locked(func() { r.retried++; r.charged += btoi(c) }) },
			Paused:      func(p engine.Pause) { r.locked(func() { r.paused = append(r.paused, p) }) },
			Resumed:     func(d string) { r.locked(func() { r.resumed = append(r.resumed, d) }) },
			Lost:        func(n int, _ string) { r.locked(func() { r.lost += n }) },
			Claimed:     func(int, time.Duration) { r.claims.Add(1) },
			StoreFailed: func(string, error) { r.locked(func() { r.failed++ }) },
		}
		defer r.stop()
		test(t, r)
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (r *rig) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// relay makes a relay over the rig's table with every topic going to the broker.
func (r *rig) relay(store engine.Store, routes ...engine.Route) *engine.Relay {
	r.t.Helper()
	if store == nil {
		store = r.db.NewStore()
	}
	if len(routes) == 0 {
		routes = engine.AllTo(r.broker)
	}
	relay, err := engine.New(store, routes, &r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return relay
}

// run starts a relay; stop, or the end of the test, ends it.
func (r *rig) run(relay *engine.Relay) {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- relay.Run(ctx) }()
}

func (r *rig) stop() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

func (r *rig) enqueue(msgs ...engine.Message) []engine.ID {
	r.t.Helper()
	tx := r.db.Begin()
	ids, err := tx.Enqueue(r.t.Context(), msgs...)
	if err == nil {
		err = tx.Commit(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// messages makes n messages of a topic whose payloads are their numbers.
func messages(n int, topic, key string) []engine.Message {
	ms := make([]engine.Message, n)
	for i := range ms {
		ms[i] = engine.Message{Topic: topic, Key: key, Type: "test.v1", Payload: fmt.Appendf(nil, "%d", i)}
	}
	return ms
}

// until waits, in the bubble's time, until cond holds.
func (r *rig) until(what string, limit time.Duration, cond func() bool) {
	r.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(max(5*time.Millisecond, limit/1000)) {
		synctest.Wait()
		if cond() {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func (r *rig) state(id engine.ID) string { return r.db.Look(id).State }

// all reports whether every message is in a state.
func (r *rig) all(ids []engine.ID, state string) func() bool {
	return func() bool {
		for _, id := range ids {
			if r.state(id) != state {
				return false
			}
		}
		return true
	}
}

// wantOrder checks that, of the first deliveries of a key, the payloads are 0, 1, 2, …
func (r *rig) wantOrder(key string, n int) {
	r.t.Helper()
	seen := map[engine.ID]bool{}
	next := 0
	for _, d := range r.broker.Delivered() {
		if d.Key != key || seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		if got := string(d.Payload); got != fmt.Sprint(next) {
			r.t.Fatalf("key %q: first delivery number %d is message %s", key, next, got)
		}
		next++
	}
	if next != n {
		r.t.Fatalf("key %q: %d of %d messages delivered", key, next, n)
	}
}

// faultOn makes the script that gives a fault to the message with this id.
func faultOn(id engine.ID, f engine.Fault) func(string, engine.Outgoing) memory.Outcome {
	return func(_ string, m engine.Outgoing) memory.Outcome {
		if m.ID == id {
			return memory.Outcome{Result: engine.Result{Fault: &f}}
		}
		return memory.Outcome{}
	}
}

// after returns a channel that is closed after d.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}
