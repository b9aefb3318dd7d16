package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

func TestAPauseParksWhatIsQueuedBehindIt(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			r.broker = memory.NewTransport(&memory.TransportOptions{KeepsKeyOrder: keeps})
			r.opts.Delivery.Window = 2
			ids := append(r.enqueue(messages(20, "a", "")...), r.enqueue(messages(20, "a", "k")...)...)
			f := &engine.Fault{Class: engine.DestinationFailed, Code: "404"}
			r.broker.Fail("a", f)
			r.run(r.relay(nil))
			r.until("all aside", 10*time.Second, func() bool {
				for _, id := range ids {
					if s := r.state(id); s != "waiting" && s != "held" {
						return false
					}
				}
				return true
			})
			r.broker.Fail("a", nil)
			r.until("all published", time.Minute, r.all(ids, "published"))
			r.wantOrder("k", 20)
		})
	}
}

// A plainStore hides what a store can do beyond the contract.
type plainStore struct{ engine.Store }

func TestARelayWhoseStoreKeepsNoPauses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := append(r.enqueue(messages(50, "a", "")...), r.enqueue(messages(50, "a", "k")...)...)
		r.broker.Fail("a", &engine.Fault{Class: engine.DestinationFailed, Code: "404"})
		claims := 0
		r.opts.Hooks.Claimed = func(int, time.Duration) { r.locked(func() { claims++ }) }
		r.run(r.relay(plainStore{r.db.NewStore()}))
		time.Sleep(10 * time.Minute)
		r.locked(func() {
			if claims > 1500 {
				t.Errorf("%d claims in 600 seconds in which nothing could go", claims)
			}
			if r.charged > 0 {
				t.Errorf("%d charged", r.charged)
			}
		})
		r.broker.Fail("a", nil)
		r.until("all published", 2*time.Minute, r.all(ids, "published"))
		r.wantOrder("k", 50)
	})
}

func TestAPauseMadeWhileTheDatabaseIsDownIsWrittenLater(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store := &pauselessStore{Store: r.db.NewStore()}
		store.down.Store(true)
		ids := r.enqueue(messages(5, "a", "")...)
		r.broker.Fail("a", &engine.Fault{Class: engine.DestinationFailed, Code: "404"})
		claims := 0
		r.opts.Hooks.Claimed = func(int, time.Duration) { r.locked(func() { claims++ }) }
		r.run(r.relay(store))
		time.Sleep(time.Minute)
		r.locked(func() {
			if claims > 200 {
				t.Errorf("%d claims in a minute in which nothing could go", claims)
			}
		})
		store.down.Store(false)
		time.Sleep(2 * time.Second)
		if pauses, err := r.db.NewStore().Pauses(t.Context()); err != nil || len(pauses) != 1 {
			t.Errorf("pauses in the table: %v (%v)", pauses, err)
		}
		r.broker.Fail("a", nil)
		r.until("all published", time.Minute, r.all(ids, "published"))
	})
}

// pauselessStore can't write pauses while it is down.
type pauselessStore struct {
	*memory.Store
	down atomic.Bool
}

func (s *pauselessStore) Pause(ctx context.Context, p engine.Pause) error {
	if s.down.Load() {
		return errors.New("down")
	}
	return s.Store.Pause(ctx, p)
}

func TestTwoTransportsStopEachForItself(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		other := memory.NewTransport(&memory.TransportOptions{Name: "other"})
		other.Fail("", &engine.Fault{Class: engine.Unavailable, Code: "refused"})
		other.Fail("http://host:80/x", &engine.Fault{Class: engine.Unavailable, Code: "refused"})
		r.run(r.relay(nil, engine.Route{Topics: "o", Transport: other, Destination: "http://host:80/x"}, engine.Route{Topics: ">", Transport: r.broker}))
		var msgs []engine.Message
		for n, m := range messages(20, "a", "k") {
			if n == 10 {
				m.Topic = "o"
			}
			msgs = append(msgs, m)
		}
		ids := r.enqueue(msgs...)
		good := r.enqueue(messages(20, "a", "")...)
		r.until("what is before it and beside it", 5*time.Second, func() bool { return r.all(ids[:10], "published")() && r.all(good, "published")() })
		time.Sleep(10 * time.Minute)
		if n := len(r.broker.Delivered()); n != 30 {
			t.Errorf("%d delivered", n)
		}
		other.Fail("", nil)
		other.Fail("http://host:80/x", nil)
		r.until("all published", time.Minute, r.all(ids, "published"))
		synctest.Wait()
	})
}

// A plainTransport hides what a transport can do beyond the contract.
type plainTransport struct{ engine.Transport }

// An outage that probes do not see: the exchange is there, and its queue has lost
// its majority. And one of a transport that has no probes.
func TestAnOutageThatProbesDoNotSeeChargesNothing(t *testing.T) {
	for name, hide := range map[string]func(engine.Transport) engine.Transport{
		"blind":    func(t engine.Transport) engine.Transport { return t },
		"no probe": func(t engine.Transport) engine.Transport { return plainTransport{t} },
	} {
		for _, f := range []engine.Fault{
			{Class: engine.Unknown, Code: "cut"},
			{Class: engine.Transient, Code: "full"},
			{Class: engine.Unknown, Code: engine.CodeTimeout},
		} {
			t.Run(name+"/"+f.Class.String()+"_"+f.Code, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.opts.Delivery.MinAge = -1
					r.opts.Delivery.MaxAttempts = 3
					r.opts.Delivery.Window = 10
					ids := append(r.enqueue(messages(50, "a", "")...), r.enqueue(messages(50, "a", "k")...)...)
					r.broker.Script(func(string, engine.Outgoing) memory.Outcome {
						if f.Code == engine.CodeTimeout {
							return memory.Outcome{Wait: make(chan struct{})}
						}
						return memory.Outcome{Result: engine.Result{Fault: &f}}
					})
					r.run(r.relay(nil, engine.AllTo(hide(r.broker))...))
					time.Sleep(20 * time.Minute)
					r.locked(func() {
						if len(r.buried) > 0 || r.charged > 0 {
							t.Errorf("%d dead, %d charged by an outage", len(r.buried), r.charged)
						}
						if len(r.paused) == 0 {
							t.Error("nothing was paused, so nobody was alarmed")
						}
					})
					r.broker.Script(nil)
					r.until("all published", 2*time.Minute, r.all(ids, "published"))
					r.wantOrder("k", 50)
				})
			})
		}
	}
}

func TestARoutesWindowHoldsWhateverIsMetFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		err := r.db.NewStore().Pause(t.Context(), engine.Pause{Destination: "memory:a", Class: engine.DestinationFailed,
			By: engine.Actor{Name: "another", Relay: true}})
		if err != nil {
			t.Fatal(err)
		}
		r.run(r.relay(nil, engine.Route{Topics: ">", Transport: r.broker, Delivery: engine.Delivery{Window: 1}}))
		time.Sleep(5 * time.Second) // the pause is met, probed and ended before any message is
		hold := make(chan struct{})
		sent := 0
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome {
			r.locked(func() { sent++ })
			return memory.Outcome{Wait: hold}
		})
		ids := r.enqueue(messages(5, "a", "")...)
		time.Sleep(500 * time.Millisecond)
		r.locked(func() {
			if sent != 1 {
				t.Errorf("%d messages in flight; the route's window is 1", sent)
			}
		})
		close(hold)
		r.until("all published", 10*time.Second, r.all(ids, "published"))
	})
}

func TestNamesOfTransportsCannotBeTakenForOthers(t *testing.T) {
	for _, name := range []string{"topic", "transport", "given_up", "a:b"} {
		broker := memory.NewTransport(&memory.TransportOptions{Name: name})
		if _, err := engine.New(memory.NewDatabase(nil).NewStore(), engine.AllTo(broker), nil); err == nil {
			t.Errorf("a transport may be named %q, which makes its pauses ambiguous", name)
		}
	}
}

func TestAnAbortedDrainPausesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Drain = time.Second
		r.opts.Delivery.ConfirmTimeout = time.Minute
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome { return memory.Outcome{Wait: make(chan struct{})} })
		r.run(r.relay(nil))
		for range 6 { // each a call of its own
			r.enqueue(messages(1, "a", "")...)
			time.Sleep(100 * time.Millisecond)
		}
		r.stop()
		if pauses, err := r.db.NewStore().Pauses(t.Context()); err != nil || len(pauses) > 0 {
			t.Errorf("the relay that was stopped left %v (%v)", pauses, err)
		}
	})
}

func TestAProbeThatHangsDelaysNoOtherPause(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.ConfirmTimeout = 50 * time.Second
		hanging := &hangingProber{Transport: memory.NewTransport(&memory.TransportOptions{Name: "hanging"})}
		hanging.Fail("h", &engine.Fault{Class: engine.DestinationFailed})
		r.enqueue(messages(1, "h", "")...)
		r.run(r.relay(nil, engine.Route{Topics: "h", Transport: hanging}, engine.Route{Topics: ">", Transport: r.broker}))
		time.Sleep(10 * time.Second) // the probe hangs by now
		store := r.db.NewStore()
		by := engine.Actor{Name: "anna"}
		if err := store.Pause(t.Context(), engine.Pause{Destination: "memory:a", By: by}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		ids := r.enqueue(messages(1, "a", "")...)
		time.Sleep(time.Second)
		if r.state(ids[0]) == "published" {
			t.Error("an operator's pause was not heeded after two seconds")
		}
		if _, err := store.Resume(t.Context(), "memory:a", by); err != nil {
			t.Fatal(err)
		}
		r.until("published", 3*time.Second, r.all(ids, "published"))
	})
}

type hangingProber struct{ *memory.Transport }

func (h *hangingProber) Probe(ctx context.Context, _ string) *engine.Fault {
	<-ctx.Done()
	return &engine.Fault{Class: engine.Unavailable, Err: ctx.Err()}
}

type panickingProber struct{ *memory.Transport }

func (p *panickingProber) Probe(context.Context, string) *engine.Fault { panic("no probe today") }

func TestAProbeThatPanicsIsContained(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.broker.Fail("a", &engine.Fault{Class: engine.DestinationFailed})
		r.enqueue(messages(1, "a", "")...)
		r.run(r.relay(nil, engine.AllTo(&panickingProber{r.broker})...))
		time.Sleep(time.Minute)
	})
}
