package telemetry

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/outward-dev/outward/engine"
)

func TestLabelsAreBounded(t *testing.T) {
	l := newLabels(200)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				l.topic(fmt.Sprint(g*1000 + i))
			}
		})
	}
	all.Wait()
	if len(l.topics) != 200 {
		t.Errorf("%d topics are told apart", len(l.topics))
	}
	for name := range l.topics {
		if l.topic(name) != name {
			t.Errorf("%s was known and is not", name)
		}
	}
	if got := l.topic("new"); got != other {
		t.Errorf("one more is %q", got)
	}
	if got := l.destination("new"); got != "new" {
		t.Errorf("destinations are counted with topics: %q", got)
	}
}

// Every hook can be called, and the monitor's figures are forgotten with the relay.
func TestHooks(t *testing.T) {
	m, err := New(noop.NewMeterProvider(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := m.Hooks("orders")
	f := engine.Fault{Class: engine.Unknown}
	h.Claimed(1, time.Second)
	h.Published(engine.Outgoing{}, "main:x", engine.Result{Fault: &f}, time.Second)
	h.Published(engine.Outgoing{}, "main:x", engine.Result{}, time.Second)
	h.Settled(1, time.Second)
	h.Retried(engine.Claimed{}, f, true)
	h.Buried(engine.Claimed{}, f)
	h.Lost(1, "settle")
	h.StoreFailed("claim", nil)
	h.Backlog(engine.Backlog{Ready: engine.Count{N: 3}})
	h.Purged(1, time.Second)
	m.Reloaded(nil)
	if m.backlogs["orders"].Ready.N != 3 {
		t.Errorf("backlogs %v", m.backlogs)
	}
	m.Forget("orders")
	if len(m.backlogs) != 0 {
		t.Errorf("backlogs %v", m.backlogs)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
