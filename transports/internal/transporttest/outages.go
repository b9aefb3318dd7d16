package transporttest

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
)

// A Harness is how the tests here reach one kind of transport.
type Harness struct {
	// New makes a fresh subject, which ends with the test.
	New func(t *testing.T, c Conditions) *Subject
	// At returns a transport to whatever listens at address, closed at the end. It
	// dials no sooner than redial after it has failed.
	At func(t *testing.T, address string, redial time.Duration) engine.Transport

	// Recognises: the destination knows a repeat by its id and stores it once.
	Recognises bool
	// PartIsSent: a message of which a part was written counts as sent.
	PartIsSent bool
	// Large is a payload of which a few fill every buffer on the way.
	Large int
}

// Conditions are what a test asks of its subject.
type Conditions struct {
	Direct bool          // without a proxy
	Redial time.Duration // no dial sooner than this after one that failed; 0: as it comes
}

// A Subject is a transport with a destination of its own on a real server.
type Subject struct {
	Transport   engine.Transport
	Destination string
	// Proxy stands between the two, unless asked for otherwise.
	Proxy *faultproxy.Proxy
	// OnPublish has f called with each message that comes by the proxy, before it is
	// passed on.
	OnPublish func(f func(c *faultproxy.Conn))
	// Depth counts what the destination holds now.
	Depth func() int
	// Stored counts what the destination has ever stored, by message id. It may empty
	// the destination.
	Stored func() map[string]int
}

func (s *Subject) publish(t testing.TB, d time.Duration, msgs []engine.Outgoing) []engine.Result {
	t.Helper()
	return Publish(t, Within(t, d), s.Transport, s.Destination, msgs)
}

// well publishes one message, which is confirmed.
func (s *Subject) well(t testing.TB) {
	t.Helper()
	WantConfirmed(t, s.publish(t, 20*time.Second, Messages(1))...)
}

func (s *Subject) probe(t testing.TB, d time.Duration) *engine.Fault {
	return s.Transport.(engine.Prober).Probe(Within(t, d), s.Destination)
}

// codes that mean the same in every transport.
const (
	codeLost   = "connection_lost"
	codeClosed = "closed"
	codeWrite  = "write"
)

// Outages runs the outages that are the same for every transport, each as a
// subtest.
func Outages(t *testing.T, h *Harness) {
	for _, c := range []struct {
		name string
		f    func(*Harness, *testing.T)
	}{
		{"CutWithAnswersLost", (*Harness).cutWithAnswersLost},
		{"Stalled", (*Harness).stalled},
		{"CutsUnderLoad", (*Harness).cutsUnderLoad},
		{"NothingIsStoredThatIsNotUnknown", (*Harness).nothingIsStoredThatIsNotUnknown},
		{"ReconnectsLeakNothing", (*Harness).reconnectsLeakNothing},
		{"CloseDuringPublish", (*Harness).closeDuringPublish},
		{"CloseWhileStalled", (*Harness).closeWhileStalled},
		{"EndedContext", (*Harness).endedContext},
		{"FailedDialsAreShared", (*Harness).failedDialsAreShared},
		{"ShortLivedConnectionsAreNotHammered", (*Harness).shortLivedConnectionsAreNotHammered},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(h, t) })
	}
}

// The answers are lost, the messages are not: Unknown, and stored
// (rabbitmq/amqp091-go#46, #92, #182 waited for ever).
func (h *Harness) cutWithAnswersLost(t *testing.T) {
	s := h.New(t, Conditions{})
	s.well(t)
	before := s.Depth()
	s.Proxy.Mute(true)
	msgs := Messages(100)
	var results []engine.Result
	var publishing sync.WaitGroup
	publishing.Go(func() { results = s.publish(t, 20*time.Second, msgs) })
	defer publishing.Wait()
	Eventually(t, "100 messages are stored", func() bool { return s.Depth() == before+100 })
	start := time.Now()
	s.Proxy.Cut()
	publishing.Wait()
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v to see a connection that was reset", d)
	}
	for _, r := range results {
		WantFault(t, r, engine.Unknown, codeLost)
	}
	s.Proxy.Mute(false)
	// With the same ids, as the relay would.
	want := 2
	if h.Recognises {
		want = 1
	}
	for _, r := range s.publish(t, 20*time.Second, msgs) {
		WantConfirmed(t, r)
		if r.Duplicate != h.Recognises {
			t.Errorf("Duplicate is %v for a message that is stored already", r.Duplicate)
		}
	}
	got := s.Stored()
	for i := range msgs {
		if n := got[msgs[i].ID.String()]; n != want {
			t.Errorf("message %d was stored %d times, want %d: Unknown and stored, then sent again", i, n, want)
		}
	}
}

// A server that answers nothing: everything is Unknown when ctx ends, and after
// Publish has returned nothing of it arrives any more.
func (h *Harness) stalled(t *testing.T) {
	for _, c := range []struct {
		name   string
		size   int
		cancel bool
	}{{"in the buffers", 10, false}, {"in a write", h.Large, false}, {"cancelled", 10, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := h.New(t, Conditions{})
			s.well(t)
			s.Proxy.Deaf(true)
			s.Proxy.Mute(true)
			msgs := Messages(40)
			for i := range msgs {
				msgs[i].Payload = make([]byte, c.size)
			}
			ctx := Within(t, 500*time.Millisecond)
			if c.cancel {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(500*time.Millisecond, cancel)
			}
			start := time.Now()
			unknown := 0
			for _, r := range Publish(t, ctx, s.Transport, s.Destination, msgs) {
				switch {
				case r.Fault != nil && r.Fault.Class == engine.Transient:
					if r.Fault.Code != engine.CodeNotSent && r.Fault.Code != codeWrite {
						t.Errorf("%v, want a word that it was not sent", r.Fault)
					}
				default:
					WantFault(t, r, engine.Unknown, engine.CodeTimeout)
					unknown++
				}
			}
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("took %v, with 500 ms to go", took)
			}
			if unknown == 0 && (h.PartIsSent || c.size < h.Large) {
				t.Error("nothing was sent")
			}
			// What the proxy had read by then may arrive; what Publish still had may not.
			before := s.Depth()
			s.Proxy.Deaf(false)
			s.Proxy.Mute(false)
			s.well(t)
			Eventually(t, "the old connection's end", func() bool { return s.Proxy.Open() == 1 })
			if n := s.Depth(); n > before+1+1+(1<<17)/(c.size+300) {
				t.Errorf("%d messages are stored, %d before: they went out after Publish had returned", n, before)
			}
		})
	}
}

// cutEvery cuts a connection at every nth message.
func (s *Subject) cutEvery(nth int32) {
	var n atomic.Int32
	s.OnPublish(func(c *faultproxy.Conn) {
		if n.Add(1)%nth == 0 {
			c.Cut()
		}
	})
}

// What is published while connections are cut under it arrives, and whatever was
// confirmed is there.
func (h *Harness) cutsUnderLoad(t *testing.T) {
	s := h.New(t, Conditions{Redial: time.Millisecond})
	s.cutEvery(700)
	all := Messages(4000)
	left := all
	for round := 0; len(left) > 0; round++ {
		if round == 50 {
			t.Fatalf("%d messages left after %d rounds", len(left), round)
		}
		var next []engine.Outgoing
		for i, r := range s.publish(t, 20*time.Second, left) {
			if r.Fault == nil {
				continue
			}
			if verdict(r.Fault) {
				t.Fatal(r.Fault)
			}
			next = append(next, left[i])
		}
		left = next
	}
	got := s.Stored()
	for i := range all {
		if n := got[all[i].ID.String()]; n == 0 || n > 1 && h.Recognises {
			t.Fatalf("message %d was confirmed and is stored %d times", i, n)
		}
	}
}

// verdict reports whether a fault says more than that a connection was lost.
func verdict(f *engine.Fault) bool {
	return f.Class == engine.Rejected || f.Class == engine.DestinationFailed
}

// Unavailable means that it is nowhere, and every other word but Unknown too.
func (h *Harness) nothingIsStoredThatIsNotUnknown(t *testing.T) {
	s := h.New(t, Conditions{})
	s.cutEvery(50)
	msgs := Messages(1000)
	results := s.publish(t, 20*time.Second, msgs)
	s.Proxy.Close()
	s.wantStored(t, msgs, results)
}

// wantStored holds what was reported against what is there.
func (s *Subject) wantStored(t *testing.T, msgs []engine.Outgoing, results []engine.Result) {
	t.Helper()
	got := s.Stored()
	for i, r := range results {
		if in := got[msgs[i].ID.String()] > 0; r.Fault == nil && !in {
			t.Fatalf("message %d was confirmed and is not stored", i)
		} else if in && r.Fault != nil && r.Fault.Class != engine.Unknown {
			t.Fatalf("message %d: %v, and it is stored", i, r.Fault)
		}
	}
}

// A thousand lost connections leave nothing behind.
func (h *Harness) reconnectsLeakNothing(t *testing.T) {
	s := h.New(t, Conditions{Redial: time.Nanosecond})
	publishOne := func() {
		for {
			r := s.publish(t, 20*time.Second, Messages(1))[0]
			if r.Fault == nil {
				return
			}
			if verdict(r.Fault) {
				t.Fatal(r.Fault)
			}
		}
	}
	publishOne()
	before := runtime.NumGoroutine()
	const rounds = 1000
	for range rounds {
		s.Proxy.Cut()
		publishOne()
	}
	Goroutines(t, before)
	Eventually(t, "one connection", func() bool { return s.Proxy.Open() == 1 })
	if n := s.Proxy.Dials(); n < rounds {
		t.Errorf("%d connections were made, want at least %d", n, rounds)
	}
}

// Close lets a running call finish.
func (h *Harness) closeDuringPublish(t *testing.T) {
	s := h.New(t, Conditions{})
	first := make(chan struct{})
	var once sync.Once
	msgs := Messages(5000)
	results := make([]engine.Result, len(msgs))
	var publishing sync.WaitGroup
	publishing.Go(func() {
		s.Transport.Publish(Within(t, time.Minute), s.Destination, msgs, func(i int, r engine.Result) {
			results[i] = r
			once.Do(func() { close(first) })
		})
	})
	<-first
	if err := s.Transport.Close(Within(t, 30*time.Second)); err != nil {
		t.Errorf("Close: %v", err)
	}
	publishing.Wait()
	WantConfirmed(t, results...)
	if n := s.Depth(); n != len(msgs) {
		t.Errorf("%d messages are stored, want %d", n, len(msgs))
	}
}

func (h *Harness) closeWhileStalled(t *testing.T) {
	s := h.New(t, Conditions{})
	CloseWhileStalled(t, s, func() { s.Proxy.Deaf(true) })
}

// CloseWhileStalled tests that Close does not wait for a server that reads nothing
// any more, and leaves nothing behind. stall makes the server so; it is called from
// the proxy when the first message comes by.
func CloseWhileStalled(t *testing.T, s *Subject, stall func()) {
	before := runtime.NumGoroutine() - 1 // the proxy's own, which will be gone
	sent := make(chan struct{})
	var once sync.Once
	s.OnPublish(func(*faultproxy.Conn) { once.Do(func() { stall(); close(sent) }) })
	msgs := Messages(50)
	for i := range msgs {
		msgs[i].Payload = make([]byte, 1<<19)
	}
	var publishing sync.WaitGroup
	publishing.Go(func() {
		// The first may have been answered by a server that was just passed its bytes.
		for i, r := range s.publish(t, time.Minute, msgs) {
			if r.Fault == nil && i > 0 {
				t.Error("confirmed by a server that reads nothing")
			}
		}
	})
	<-sent
	start := time.Now()
	if err := s.Transport.Close(Within(t, 300*time.Millisecond)); err == nil {
		t.Error("Close cut off a call and said nothing")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v", d)
	}
	publishing.Wait()
	if err := s.Transport.Close(t.Context()); err != nil {
		t.Errorf("second Close: %v", err)
	}
	WantFault(t, s.publish(t, time.Second, Messages(1))[0], engine.Unavailable, codeClosed)
	WantFault(t, engine.Result{Fault: s.probe(t, time.Second)}, engine.Unavailable, codeClosed)
	if fs := s.Transport.(engine.Checker).Check(t.Context()); len(fs) != 1 || fs[0].Level != engine.Fatal || fs[0].Code != codeClosed {
		t.Errorf("Check after Close: %+v", fs)
	}
	s.Proxy.Close()
	Goroutines(t, before)
}

func (h *Harness) endedContext(t *testing.T) {
	s := h.New(t, Conditions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range Publish(t, ctx, s.Transport, s.Destination, Messages(3)) {
		WantFault(t, r, engine.Transient, engine.CodeNotSent)
	}
}

// A server that is down is not hammered, however many ask.
func (h *Harness) failedDialsAreShared(t *testing.T) {
	var dials atomic.Int32
	tr := h.At(t, Listen(t, func(net.Conn) { dials.Add(1) }), time.Hour)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 50 {
				for _, r := range Publish(t, Within(t, 10*time.Second), tr, "outward-test-nowhere", Messages(10)) {
					if r.Fault == nil || r.Fault.Class != engine.Unavailable {
						t.Errorf("%v, want unavailable", r.Fault)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := dials.Load(); n != 1 {
		t.Errorf("%d dials within the pause between two, want 1", n)
	}
}

// A connection that dies as soon as it is there counts as one that was not made.
func (h *Harness) shortLivedConnectionsAreNotHammered(t *testing.T) {
	s := h.New(t, Conditions{Redial: time.Hour})
	s.OnPublish(func(c *faultproxy.Conn) { c.Cut() })
	for range 20 {
		for _, r := range s.publish(t, 10*time.Second, Messages(10)) {
			if r.Fault == nil {
				t.Error("confirmed")
			}
		}
	}
	if n := s.Proxy.Dials(); n != 1 {
		t.Errorf("%d dials, want 1", n)
	}
}

// ServerHarmed kills and freezes the server of that name in the middle of
// publishing, and tests what is said and what is there afterwards.
func ServerHarmed(t *testing.T, h *Harness, server string) {
	control := testservers.Control(t, server)
	s := h.New(t, Conditions{Direct: true})
	msgs := Messages(20_000)
	results := make([]engine.Result, len(msgs))
	var confirmed atomic.Int32
	enough := make(chan struct{})
	var once sync.Once
	var publishing sync.WaitGroup
	publishing.Go(func() {
		s.Transport.Publish(Within(t, time.Minute), s.Destination, msgs, func(i int, r engine.Result) {
			results[i] = r
			if r.Fault == nil && confirmed.Add(1) == 2000 {
				once.Do(func() { close(enough) })
			}
		})
		once.Do(func() { close(enough) })
	})
	<-enough
	control.Kill()
	publishing.Wait()
	count := map[engine.Class]int{}
	for _, r := range results {
		if r.Fault == nil {
			continue
		}
		count[r.Fault.Class]++
		if r.Fault.Class != engine.Unknown && r.Fault.Class != engine.Unavailable && r.Fault.Code != codeWrite {
			t.Errorf("%v from a server that was killed", r.Fault)
		}
	}
	t.Log(confirmed.Load(), count)
	// Refused, or reset while the port is still being taken down.
	if f := s.probe(t, 10*time.Second); f == nil || f.Class != engine.Unavailable {
		t.Errorf("Probe of a killed server: %v", f)
	}
	control.Up()
	Eventually(t, "the server answers", func() bool { return s.probe(t, 10*time.Second) == nil })
	s.wantStored(t, msgs, results)
	// Everything again with the same ids: what knows them has survived too.
	WantConfirmed(t, s.publish(t, 30*time.Second, msgs)...)
	got := s.Stored()
	for i := range msgs {
		if n := got[msgs[i].ID.String()]; n == 0 || n > 1 && h.Recognises {
			t.Fatalf("message %d is stored %d times", i, n)
		}
	}

	other := h.New(t, Conditions{Direct: true})
	other.well(t)
	control.Pause()
	Eventually(t, "the server is frozen", func() bool { return other.publish(t, 100*time.Millisecond, Messages(1))[0].Fault != nil })
	start := time.Now()
	for _, r := range s.publish(t, 500*time.Millisecond, Messages(10)) {
		WantFault(t, r, engine.Unknown, engine.CodeTimeout)
	}
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("took %v with a frozen server and a deadline of 500 ms", d)
	}
	if f := s.probe(t, time.Second); f == nil || f.Class != engine.Unavailable {
		t.Errorf("Probe of a frozen server: %v", f)
	}
	control.Resume()
	Eventually(t, "the server answers again", func() bool { return s.probe(t, 10*time.Second) == nil })
	WantConfirmed(t, s.publish(t, 20*time.Second, Messages(10))...)
}

// A NoWay is a way not to get in.
type NoWay struct {
	Name, Code string
	// New makes a transport that logs to log and dials once, and tells what a fault
	// must name.
	New func(log *slog.Logger) (tr engine.Transport, where string, err error)
}

// CannotConnect tests that each way not to get in has a code of its own, is
// Unavailable, says where, tells no secret, in the log neither, and leaves nothing
// behind.
func CannotConnect(t *testing.T, secret string, ways ...NoWay) {
	for _, way := range ways {
		t.Run(way.Name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			var log bytes.Buffer
			tr, where, err := way.New(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			if err != nil {
				t.Fatal(err)
			}
			const destination = "outward-test-nowhere"
			faults := []*engine.Fault{tr.(engine.Prober).Probe(Within(t, 10*time.Second), destination)}
			for _, r := range Publish(t, Within(t, 10*time.Second), tr, destination, Messages(3)) {
				faults = append(faults, r.Fault)
			}
			for _, f := range faults {
				if f == nil || f.Class != engine.Unavailable || f.Code != way.Code {
					t.Errorf("%v, want unavailable (%s)", f, way.Code)
				} else if strings.Contains(f.Error(), secret) || !strings.Contains(f.Error(), where) {
					t.Errorf("%v: tells a secret, or not where", f)
				}
			}
			findings := tr.(engine.Checker).Check(Within(t, 10*time.Second))
			if !slices.ContainsFunc(findings, func(f engine.Finding) bool { return f.Code == way.Code }) {
				t.Errorf("Check does not say %s: %+v", way.Code, findings)
			}
			for _, f := range findings {
				if f.Level != engine.Retry || strings.Contains(f.Text+f.Fix, secret) {
					t.Errorf("Check: %+v", f)
				}
			}
			if err := tr.Close(Within(t, 5*time.Second)); err != nil {
				t.Error(err)
			}
			Goroutines(t, before)
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log tells a secret: %s", log.String())
			}
		})
	}
}
