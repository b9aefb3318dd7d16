package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// Relays over one table, brokers that fail in every way, a database that loses
// answers, relays that die, operators; then all faults end. Everything must have
// arrived, in the order of its key, and nothing may be left in anybody's hands.
func TestSoak(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed=%#x", seed), func(t *testing.T) { soak(t, seed) })
	}
}

// A soaker is one round.
type soaker struct {
	*testing.T
	rand    *rand.Rand
	db      *memory.Database
	brokers [2]*memory.Transport
	outage  bool // faults are only such as may charge nobody

	mu     sync.Mutex
	calm   bool
	ids    []engine.ID
	stored []engine.Outgoing // what the brokers took, in order
}

func soak(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		s := &soaker{T: t, rand: rand.New(rand.NewPCG(seed, 0))}
		s.outage = s.chance(30)
		s.db = memory.NewDatabase(&memory.Options{Lanes: 1 + s.rand.IntN(16), LanesPerClaim: 1 + s.rand.IntN(8)})
		for i, name := range []string{"one", "two"} {
			s.brokers[i] = memory.NewTransport(&memory.TransportOptions{Name: name, KeepsKeyOrder: s.chance(50)})
			s.brokers[i].Script(s.outcome)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { s.lives(ctx) })
		}
		operator := s.db.NewStore()
		for range 150 {
			s.enqueue(1 + s.draw(8))
			s.operate(operator)
			time.Sleep(time.Duration(s.draw(400)) * time.Millisecond)
		}

		s.mu.Lock()
		s.calm = true
		s.mu.Unlock()
		for _, b := range s.brokers {
			for _, d := range soakDestinations {
				b.Fail(d, nil)
			}
		}
		anna := engine.Actor{Name: "anna", Reason: "the end"}
		for end := time.Now().Add(30 * time.Minute); ; time.Sleep(10 * time.Second) {
			pauses, err := operator.Pauses(ctx)
			s.well(err)
			for _, p := range pauses {
				if !p.By.Relay {
					_, err := operator.Resume(ctx, p.Destination, anna)
					s.well(err)
				}
			}
			_, err = operator.Requeue(ctx, engine.Filter{}, anna)
			s.well(err)
			b, err := operator.Backlog(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if b.Ready.N+b.Waiting.N+b.Held.N+b.Dead.N == 0 {
				break
			}
			if time.Now().After(end) {
				t.Errorf("left: %+v; pauses: %+v", b, pauses)
				break
			}
		}
		cancel()
		all.Wait()
		s.verify(operator)
	})
}

var soakDestinations = []string{"", "a", "b.1", "b.2", "http://host:1/x"}

func (s *soaker) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

func (s *soaker) chance(percent int) bool { return s.draw(100) < percent }

func (s *soaker) enqueue(n int) {
	msgs := make([]engine.Message, n)
	for i := range msgs {
		msgs[i] = engine.Message{Topic: []string{"a", "b.1", "b.2", "c"}[s.draw(4)], Type: "t"}
		if s.chance(70) {
			msgs[i].Key = fmt.Sprint("k", s.draw(6))
		}
		if msgs[i].Key == "" && s.chance(10) {
			msgs[i].Delay = time.Duration(s.draw(5000)) * time.Millisecond
		}
	}
	ids, err := s.db.Enqueue(s.Context(), msgs...)
	if err != nil {
		s.Fatal(err)
	}
	s.ids = append(s.ids, ids...)
}

// well wants no error of an operator's action: the table itself never fails here.
func (s *soaker) well(err error) {
	s.Helper()
	if err != nil {
		s.Error(err)
	}
}

// operate does what operators and brokers' keepers do.
func (s *soaker) operate(store *memory.Store) {
	ctx, by := s.Context(), engine.Actor{Name: "anna", Reason: "why not"}
	names := []string{"one:a", "a", "two:http://host:1/x", engine.TopicPause("b.1"), engine.TransportPause("one")}
	switch name := names[s.draw(len(names))]; s.draw(10) {
	case 0:
		s.well(store.Pause(ctx, engine.Pause{Destination: name, By: by}))
	case 1, 2:
		_, err := store.Resume(ctx, name, by)
		s.well(err)
	case 3:
		_, err := store.Requeue(ctx, engine.Filter{}, by)
		s.well(err)
	case 4, 5:
		f := &engine.Fault{Class: engine.DestinationFailed + engine.Class(s.draw(2)), Code: "down"}
		s.brokers[s.draw(2)].Fail(soakDestinations[s.draw(len(soakDestinations))], f)
	case 6:
		s.db.Shift(3 * time.Second) // as if every relay had been stopped for longer than its lease
	case 7, 8, 9:
		s.brokers[s.draw(2)].Fail(soakDestinations[s.draw(len(soakDestinations))], nil)
	}
}

// outcome is what a broker makes of a message.
func (s *soaker) outcome(_ string, m engine.Outgoing) (o memory.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.calm {
		switch n := s.rand.IntN(100); {
		case n < 10:
			slow := 3000 // longer than some wait
			if s.outage {
				slow = 300
			}
			o.Wait = after(time.Duration(s.rand.IntN(slow)) * time.Millisecond)
		case s.outage && n < 14:
			o.Fault = &engine.Fault{Class: engine.DestinationFailed + engine.Class(s.rand.IntN(2)), Code: "down"}
		case s.outage:
		case n < 20:
			o.Fault = &engine.Fault{Class: engine.Class(s.rand.IntN(5)), Code: "random"}
		case n < 25:
			o.Fault, o.Stored = &engine.Fault{Class: engine.Unknown, Code: "lost"}, true
		case n < 26:
			o.Fault = &engine.Fault{Class: engine.DestinationFailed, Code: engine.CodeNoRoute}
		case n < 27:
			panic("random")
		}
	}
	if o.Fault == nil || o.Stored {
		s.stored = append(s.stored, m)
	}
	return o
}

// lives runs one relay after another until ctx ends; while there are faults each
// dies some time.
func (s *soaker) lives(ctx context.Context) {
	for ctx.Err() == nil {
		life := &mortal{Store: s.db.NewStore(), soaker: s}
		opts := engine.Options{
			Batch: 1 + s.draw(40), InFlight: 1 + s.draw(4), Lease: 2 * time.Second, SettleTimeout: 500 * time.Millisecond,
			Drain: time.Duration(s.draw(2000)) * time.Millisecond,
			Delivery: engine.Delivery{Window: 1 + s.draw(20), MaxAttempts: 1000, MaxCrashes: 1000, DetachAfter: 200 * time.Millisecond,
				ConfirmTimeout: 2 * time.Second, Backoff: engine.Backoff{Min: 10 * time.Millisecond, Max: 10 * time.Second}},
		}
		one, two := &mortalTransport{s.brokers[0], life}, &mortalTransport{s.brokers[1], life}
		relay, err := engine.New(life, []engine.Route{
			{Topics: "a", Transport: one},
			{Topics: "b.*", Transport: two, Delivery: engine.Delivery{Window: 3, ConfirmTimeout: 500 * time.Millisecond}},
			{Topics: ">", Transport: two, Destination: "http://host:1/x"},
		}, &opts)
		if err != nil {
			s.Error(err)
			return
		}
		lifeCtx, cancel := context.WithCancel(ctx)
		kill := time.AfterFunc(time.Duration(1+s.draw(20_000))*time.Millisecond, func() {
			s.mu.Lock()
			calm := s.calm
			s.mu.Unlock()
			if calm {
				return
			}
			if s.chance(60) { // else it is only stopped
				life.dead.Store(true)
			}
			cancel()
		})
		if err := relay.Run(lifeCtx); err != nil {
			s.Error(err)
		}
		kill.Stop()
		cancel()
		if leaks := relay.Leaks(); leaks != "" {
			s.Errorf("a relay that has ended holds %s", leaks)
		}
	}
}

// A mortal is a process's connection to the database: it loses answers, and ends
// with the process.
type mortal struct {
	*memory.Store
	*soaker
	dead atomic.Bool
}

func (m *mortal) call(do func()) error {
	if m.dead.Load() {
		return errFlaky
	}
	m.mu.Lock()
	before, after := m.rand.IntN(100) < 4 && !m.calm, m.rand.IntN(100) < 4 && !m.calm
	m.mu.Unlock()
	if before {
		return errFlaky
	}
	do()
	if after {
		return errFlaky
	}
	return nil
}

func (m *mortal) Claim(ctx context.Context, req engine.ClaimRequest) (rows []engine.Claimed, err error) {
	if m.dead.Load() || m.chance(2) {
		return nil, errFlaky
	}
	return m.Store.Claim(ctx, req)
}

func (m *mortal) Settle(ctx context.Context, ss ...engine.Settlement) (lost []engine.Receipt, err error) {
	if flaky := m.call(func() { lost, err = m.Store.Settle(ctx, ss...) }); flaky != nil {
		return nil, flaky
	}
	return lost, err
}

func (m *mortal) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) (lost []engine.Receipt, err error) {
	if flaky := m.call(func() { lost, err = m.Store.Extend(ctx, rs, lease) }); flaky != nil {
		return nil, flaky
	}
	return lost, err
}

func (m *mortal) Pause(ctx context.Context, p engine.Pause) (err error) {
	if flaky := m.call(func() { err = m.Store.Pause(ctx, p) }); flaky != nil {
		return flaky
	}
	return err
}

func (m *mortal) Pauses(ctx context.Context) (ps []engine.Pause, err error) {
	if flaky := m.call(func() { ps, err = m.Store.Pauses(ctx) }); flaky != nil {
		return nil, flaky
	}
	return ps, err
}

func (m *mortal) Resume(ctx context.Context, d string, by engine.Actor) (ended bool, err error) {
	if flaky := m.call(func() { ended, err = m.Store.Resume(ctx, d, by) }); flaky != nil {
		return false, flaky
	}
	return ended, err
}

// A mortalTransport sends nothing after its process has died.
type mortalTransport struct {
	*memory.Transport
	life *mortal
}

func (t *mortalTransport) Publish(ctx context.Context, d string, msgs []engine.Outgoing, report func(int, engine.Result)) {
	if t.life.dead.Load() {
		return
	}
	t.Transport.Publish(ctx, d, msgs, report)
}

// verify checks what must hold in the end.
func (s *soaker) verify(store *memory.Store) {
	numbers := make(map[engine.ID]int, len(s.ids))
	for n, id := range s.ids {
		numbers[id] = n
	}
	seen := map[engine.ID]bool{}
	last := map[string]int{}
	for _, m := range s.stored {
		if seen[m.ID] {
			continue
		}
		seen[m.ID] = true
		n := numbers[m.ID]
		if m.Key != "" && n < last[m.Key] {
			s.Errorf("key %s: number %d was first delivered after %d", m.Key, n, last[m.Key])
		}
		last[m.Key] = n
	}
	for n, id := range s.ids {
		row := s.db.Look(id)
		if row.State != "published" || !seen[id] {
			s.Errorf("number %d is %s; delivered: %v", n, row.State, seen[id])
		}
		if s.outage && row.Attempts > 0 {
			s.Errorf("number %d was charged %d attempts by outages", n, row.Attempts)
		}
	}
	if b, err := store.Backlog(context.Background()); err != nil || b.Leased > 0 || b.HeldKeys.N > 0 {
		s.Errorf("left in the table: %+v, %v", b, err)
	}
	if leaks := engine.GateLeaks(); leaks != "" {
		s.Errorf("left in the gate: %s", leaks)
	}
	s.Logf("%d messages, %d deliveries", len(s.ids), len(s.stored))
}
