package matrix

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outward-dev/outward/engine"
)

// faultSpec is what a relay process is told that faults befall. Its attempts are few
// and its backoffs short, so that what is charged without cause dies of it.
type faultSpec struct {
	Journal    string        // the file in which it writes down what it does
	StopIn     phase         // where it stops itself (SIGSTOP), once
	Killer     string        // the type of a message on which it kills itself
	MaxCrashes int           // 0: 5
	Drain      time.Duration // 0: the engine's default
	Alone      bool          // it stops itself only while it asks the store for nothing
}

// A phase is a place in the life of a batch.
type phase string

const (
	phaseClaimed   phase = "claimed"   // the claim is answered
	phaseHanded    phase = "handed"    // Publish was called, nothing is sent
	phaseSent      phase = "sent"      // the first of the batch is confirmed, the others are under way
	phaseConfirmed phase = "confirmed" // and not settled
	phaseSettled   phase = "settled"   // and the relay does not know it yet
	phaseExtending phase = "extending" // about to renew its lease
)

// options are those of a relay that faults befall.
func (f *faultSpec) options(spec relaySpec, j *journal) *engine.Options {
	crashes := f.MaxCrashes
	if crashes == 0 {
		crashes = 5
	}
	confirm := time.Second
	if f.StopIn == phaseExtending {
		confirm = 2 * spec.Lease
	}
	return &engine.Options{
		Batch: spec.Batch, Lease: spec.Lease, SettleTimeout: spec.Lease / 3, Drain: f.Drain,
		Poll: engine.Poll{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond},
		Delivery: engine.Delivery{
			ConfirmTimeout: confirm, DetachAfter: 300 * time.Millisecond, MaxAttempts: 3, MaxCrashes: crashes,
			MinAge: time.Nanosecond, Backoff: engine.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond},
		},
		Hooks: engine.Hooks{Retried: func(c engine.Claimed, f engine.Fault, charged bool) {
			if charged {
				j.write("charged "+f.Class.String()+" "+strings.ReplaceAll(f.Code, " ", "_"), c.ID)
			}
		}},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

// A journal is what a relay process leaves behind whatever becomes of it: lines of
// a time, a verb and the ids of messages, each written at once.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return &journal{file: file}, err
}

func (j *journal) write(verb string, ids ...engine.ID) {
	var b strings.Builder
	b.WriteString(time.Now().Format("15:04:05.000000 "))
	b.WriteString(verb)
	for _, id := range ids {
		b.WriteByte(' ')
		b.WriteString(id.String())
	}
	b.WriteByte('\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.WriteString(b.String()); err != nil {
		panic(err) // without it nothing can be judged
	}
}

// A stopper stops the process in one phase, once.
type stopper struct {
	in   phase
	once sync.Once
	over atomic.Bool
	j    *journal
	// With SQLite who is stopped in a transaction stops everybody: there it waits until
	// the store is left alone.
	alone bool
	quiet sync.RWMutex
}

// asks is held while the store is asked.
func (s *stopper) asks() (done func()) {
	s.quiet.RLock()
	return s.quiet.RUnlock
}

func (s *stopper) at(p phase) {
	if s.in != p {
		return
	}
	s.once.Do(func() {
		defer s.over.Store(true)
		if s.alone {
			s.quiet.Lock()
			defer s.quiet.Unlock()
		}
		s.j.write("stopping")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // the test sees whether it works
		time.Sleep(200 * time.Millisecond)             // it takes a moment until all threads have stopped
		s.j.write("woken")
	})
}

// fullStore is everything that a dialect's store does.
type fullStore interface {
	engine.Store
	engine.Suspicious
	engine.Notifier
	engine.Purger
	engine.Monitor
	engine.Operator
	engine.Checker
}

// A journaledStore writes down what is settled.
type journaledStore struct {
	fullStore
	j    *journal
	stop *stopper

	mu  sync.Mutex
	ids map[engine.Receipt]engine.ID
}

func (s *journaledStore) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	done := s.stop.asks()
	rows, err := s.fullStore.Claim(ctx, req)
	done()
	s.mu.Lock()
	ids := make([]engine.ID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
		s.ids[rows[i].Receipt] = rows[i].ID
	}
	s.mu.Unlock()
	if len(rows) > 0 {
		s.j.write("claimed", ids...)
		s.stop.at(phaseClaimed)
	}
	return rows, err
}

func (s *journaledStore) Settle(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
	if published(ss) {
		s.stop.at(phaseConfirmed)
	}
	done := s.stop.asks()
	lost, err := s.fullStore.Settle(ctx, ss...)
	done()
	if err == nil {
		if published(ss) {
			s.stop.at(phaseSettled)
		}
		s.settled(ss, lost)
	}
	return lost, err
}

func (s *journaledStore) settled(ss []engine.Settlement, lost []engine.Receipt) {
	gone := map[engine.Receipt]bool{}
	for _, r := range lost {
		gone[r] = true
	}
	var well, vain []engine.ID
	s.mu.Lock()
	for i := range ss {
		id := s.ids[ss[i].Receipt]
		if ss[i].Kind != engine.Detached {
			delete(s.ids, ss[i].Receipt)
		}
		switch {
		case gone[ss[i].Receipt]:
			vain = append(vain, id)
		case ss[i].Kind == engine.Published:
			well = append(well, id)
		}
	}
	s.mu.Unlock()
	for verb, ids := range map[string][]engine.ID{"settled": well, "vain": vain} {
		if len(ids) > 0 {
			s.j.write(verb, ids...)
		}
	}
}

func published(ss []engine.Settlement) bool {
	for i := range ss {
		if ss[i].Kind == engine.Published {
			return true
		}
	}
	return false
}

func (s *journaledStore) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) ([]engine.Receipt, error) {
	s.stop.at(phaseExtending)
	defer s.stop.asks()()
	return s.fullStore.Extend(ctx, rs, lease)
}

func (s *journaledStore) Pause(ctx context.Context, p engine.Pause) error {
	defer s.stop.asks()()
	return s.fullStore.Pause(ctx, p)
}

func (s *journaledStore) Resume(ctx context.Context, destination string, by engine.Actor) (bool, error) {
	defer s.stop.asks()()
	return s.fullStore.Resume(ctx, destination, by)
}

func (s *journaledStore) TakeProbe(ctx context.Context, destination string, next time.Duration) (bool, error) {
	defer s.stop.asks()()
	return s.fullStore.TakeProbe(ctx, destination, next)
}

func (s *journaledStore) Purge(ctx context.Context, limit int) (int, error) {
	defer s.stop.asks()()
	return s.fullStore.Purge(ctx, limit)
}

// fullTransport is everything that a transport does.
type fullTransport interface {
	engine.Transport
	engine.Prober
	engine.Checker
}

// A journaledTransport writes down what is handed over and what becomes of it.
type journaledTransport struct {
	fullTransport
	j      *journal
	stop   *stopper
	killer string
	linger time.Duration // before it sends
}

func (t *journaledTransport) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(int, engine.Result)) {
	ids := make([]engine.ID, len(msgs))
	for i := range msgs {
		ids[i] = msgs[i].ID
	}
	for i := range msgs {
		if t.killer != "" && msgs[i].Type == t.killer {
			t.j.write("killed by", msgs[i].ID)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // there is no way back
		}
	}
	t.stop.at(phaseHanded)
	if t.linger > 0 && !t.stop.over.Load() {
		select {
		case <-time.After(t.linger):
		case <-ctx.Done():
		}
	}
	t.j.write("handed", ids...)
	t.fullTransport.Publish(ctx, destination, msgs, func(i int, res engine.Result) {
		switch f := res.Fault; {
		case f == nil:
			t.j.write("confirmed", msgs[i].ID)
			t.stop.at(phaseSent)
		case f.Class == engine.Unknown:
			t.j.write("unknown", msgs[i].ID)
		default:
			t.j.write("refused", msgs[i].ID)
		}
		report(i, res)
	})
}

// wrap puts the journal around a store and a transport.
func (f *faultSpec) wrap(store engine.Store, routes []engine.Route, lease time.Duration, j *journal) (engine.Store, []engine.Route, error) {
	stop := &stopper{in: f.StopIn, j: j, alone: f.Alone}
	full, ok := store.(fullStore)
	if !ok {
		return nil, nil, fmt.Errorf("%T lacks an ability that the wrapper would pretend", store)
	}
	for i := range routes {
		tr, ok := routes[i].Transport.(fullTransport)
		if !ok {
			return nil, nil, fmt.Errorf("%T lacks an ability that the wrapper would pretend", routes[i].Transport)
		}
		jt := &journaledTransport{fullTransport: tr, j: j, stop: stop, killer: f.Killer}
		if f.StopIn == phaseExtending {
			jt.linger = lease * 2 / 3 // else nothing is in hand for long enough
		}
		routes[i].Transport = jt
	}
	return &journaledStore{fullStore: full, j: j, stop: stop, ids: map[engine.Receipt]engine.ID{}}, routes, nil
}

// ended writes down how many goroutines are left of those that the relay began.
// They have a moment to end: closing a connection tells its readers, no more.
func (j *journal) ended(before int) {
	left := runtime.NumGoroutine() - before
	for end := time.Now().Add(3 * time.Second); left > 0 && time.Now().Before(end); left = runtime.NumGoroutine() - before {
		time.Sleep(10 * time.Millisecond)
	}
	j.write(fmt.Sprintf("left %d", max(left, 0)))
	if left > 0 {
		stacks := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%d goroutines are left:\n%s\n", left, stacks[:runtime.Stack(stacks, true)])
	}
}
