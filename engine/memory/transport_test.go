package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/outward-dev/outward/engine"
)

// outgoing makes messages of the keys "a", "b", … named in keys.
func outgoing(keys string) []engine.Outgoing {
	var msgs []engine.Outgoing
	for i, key := range strings.Fields(keys) {
		msgs = append(msgs, engine.Outgoing{Message: engine.Message{Key: strings.Trim(key, "-"), Type: fmt.Sprint(i)}})
	}
	return msgs
}

// reports collects what Publish says, by index.
type reports struct {
	mu  sync.Mutex
	got map[int]string
}

func (r *reports) report(i int, res engine.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got == nil {
		r.got = map[int]string{}
	}
	said := "confirmed"
	if res.Fault != nil {
		said = res.Fault.Class.String()
	}
	r.got[i] += said
}

func (r *reports) list() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range len(r.got) {
		out = append(out, r.got[i])
	}
	return out
}

func delivered(t *Transport) (out []string) {
	for _, d := range t.Delivered() {
		out = append(out, d.Type)
	}
	return out
}

func failing(types ...string) func(string, engine.Outgoing) Outcome {
	return func(_ string, m engine.Outgoing) Outcome {
		if slices.Contains(types, m.Type) {
			return Outcome{Result: engine.Result{Fault: &engine.Fault{Class: engine.Transient}}}
		}
		return Outcome{}
	}
}

func equal(t *testing.T, what string, got []string, want string) {
	t.Helper()
	if w := strings.Fields(want); !slices.Equal(got, w) {
		t.Errorf("%s: %q, want %q", what, got, w)
	}
}

func TestPublish(t *testing.T) {
	for _, c := range []struct {
		name      string
		keepsKey  bool
		keys      string
		script    func(string, engine.Outgoing) Outcome
		reports   string
		delivered string
	}{
		{"all are confirmed", false, "a a b", nil, "confirmed confirmed confirmed", "0 1 2"},
		{"one failure is its own", false, "a a b", failing("0"), "transient confirmed confirmed", "1 2"},
		{"a key stops at its first failure", true, "a a b a", failing("0"), "transient transient confirmed transient", "2"},
		{"messages without a key do not", true, "- - a", failing("0"), "transient confirmed confirmed", "1 2"},
		{"a message may be stored although it failed", false, "a", func(string, engine.Outgoing) Outcome {
			return Outcome{Result: engine.Result{Fault: &engine.Fault{Class: engine.Unknown}}, Stored: true}
		}, "unknown", "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			broker := NewTransport(&TransportOptions{KeepsKeyOrder: c.keepsKey})
			broker.Script(c.script)
			var r reports
			broker.Publish(t.Context(), "d", outgoing(c.keys), r.report)
			equal(t, "reports", r.list(), c.reports)
			equal(t, "delivered", delivered(broker), c.delivered)
		})
	}
}

func TestFailingDestination(t *testing.T) {
	broker := NewTransport(nil)
	broker.Fail("ill", &engine.Fault{Class: engine.DestinationFailed, Code: "404"})
	var r reports
	broker.Publish(t.Context(), "ill", outgoing("a"), r.report)
	equal(t, "reports", r.list(), "destination_failed")
	if f := broker.Probe(t.Context(), "ill"); f == nil || f.Code != "404" {
		t.Errorf("the probe finds %v", f)
	}
	if f := broker.Probe(t.Context(), "well"); f != nil {
		t.Errorf("the probe of another destination finds %v", f)
	}
	broker.Fail("ill", nil)
	if f := broker.Probe(t.Context(), "ill"); f != nil {
		t.Errorf("the probe finds %v after the end of the fault", f)
	}
	broker.Publish(t.Context(), "ill", outgoing("a"), r.report)
	if got := broker.DeliveredTo("ill"); len(got) != 1 {
		t.Errorf("%d messages were delivered, want 1", len(got))
	}
}

// A slow confirmation keeps back its own report and nothing else.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker, confirmed := NewTransport(nil), make(chan struct{})
		broker.Script(func(_ string, m engine.Outgoing) Outcome {
			if m.Type == "0" {
				return Outcome{Wait: confirmed}
			}
			return Outcome{}
		})
		var r reports
		done := make(chan struct{})
		go func() {
			defer close(done)
			broker.Publish(t.Context(), "d", outgoing("a b"), r.report)
		}()
		synctest.Wait()
		r.mu.Lock()
		if r.got[1] != "confirmed" || r.got[0] != "" {
			t.Errorf("while the first waits the reports are %v", r.got)
		}
		r.mu.Unlock()
		equal(t, "delivered", delivered(broker), "0 1")
		close(confirmed)
		<-done
		equal(t, "reports", r.list(), "confirmed confirmed")
	})
}

func TestPublishIsCutOff(t *testing.T) {
	broker := NewTransport(nil)
	ctx, cancel := context.WithCancel(t.Context())
	broker.Script(func(_ string, m engine.Outgoing) Outcome {
		if m.Type == "1" {
			cancel()
			return Outcome{Wait: make(chan struct{})}
		}
		return Outcome{}
	})
	var r reports
	broker.Publish(ctx, "d", outgoing("a b c"), r.report)
	equal(t, "reports", r.list(), "confirmed unknown unknown")
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := NewTransport(nil)
		broker.Script(func(string, engine.Outgoing) Outcome { return Outcome{Wait: make(chan struct{})} })
		var running, after reports
		go broker.Publish(t.Context(), "d", outgoing("a"), running.report)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan error)
		go func() { closed <- broker.Close(ctx) }()
		synctest.Wait()
		broker.Publish(t.Context(), "d", outgoing("a"), after.report)
		equal(t, "reports after Close", after.list(), "unavailable")
		cancel() // what waits is cut off
		if err := <-closed; !errors.Is(err, context.Canceled) {
			t.Errorf("Close: %v, want the context's error", err)
		}
		equal(t, "reports of the call that was cut off", running.list(), "unknown")
		if err := broker.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}
