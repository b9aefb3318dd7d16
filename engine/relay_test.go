package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

func TestEveryMessageIsPublishedOnceAndInOrderPerKey(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		t.Run(fmt.Sprintf("keepsKeyOrder=%v", keeps), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.broker = memory.NewTransport(&memory.TransportOptions{KeepsKeyOrder: keeps})
				var ids []engine.ID
				ids = append(ids, r.enqueue(messages(200, "a", "")...)...)
				for k := range 10 {
					ids = append(ids, r.enqueue(messages(50, "a", fmt.Sprint("k", k))...)...)
				}
				ids = append(ids, r.enqueue(messages(700, "b", "hot")...)...)
				r.run(r.relay(nil))
				r.until("all published", time.Minute, r.all(ids, "published"))
				if n := len(r.broker.Delivered()); n != len(ids) {
					t.Errorf("%d deliveries of %d messages", n, len(ids))
				}
				for k := range 10 {
					r.wantOrder(fmt.Sprint("k", k), 50)
				}
				r.wantOrder("hot", 700)
			})
		})
	}
}

func TestAFailedMessageHoldsBackItsKeyAndNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first := r.enqueue(messages(5, "a", "k")...)
		others := r.enqueue(messages(20, "a", "other")...)
		refused := true
		r.broker.Script(func(_ string, m engine.Outgoing) memory.Outcome {
			if m.ID == first[1] && refused {
				return memory.Outcome{Result: engine.Result{Fault: &engine.Fault{Class: engine.Transient, Code: "no"}}}
			}
			return memory.Outcome{}
		})
		r.run(r.relay(nil))
		r.until("the others published", 10*time.Second, r.all(others, "published"))
		r.until("the one before published", time.Second, r.all(first[:1], "published"))
		if n := len(r.broker.Delivered()); n != 21 {
			t.Errorf("%d delivered; the failed message and the three behind it must not be", n)
		}
		refused = false
		r.until("all published", time.Minute, r.all(first, "published"))
		r.wantOrder("k", 5)
	})
}

func TestAnOutageChargesNothing(t *testing.T) {
	for _, f := range []engine.Fault{
		{Class: engine.Unavailable, Code: "refused"},
		{Class: engine.DestinationFailed, Code: "404"},
		{Class: engine.Unknown, Code: "cut"},
		{Class: engine.Transient, Code: "full"},
	} {
		t.Run(f.Class.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.opts.Delivery.MaxAttempts = 3
				r.opts.Delivery.MinAge = -1
				ids := append(r.enqueue(messages(50, "a", "")...), r.enqueue(messages(50, "a", "k")...)...)
				r.broker.Fail("a", &f)
				r.broker.Fail("", &f)
				r.run(r.relay(nil))
				time.Sleep(10 * time.Minute)
				r.locked(func() {
					if len(r.buried) > 0 || r.charged > 0 {
						t.Errorf("%d dead, %d charged by an outage", len(r.buried), r.charged)
					}
					if len(r.paused) == 0 {
						t.Error("nothing was paused, so nobody was alarmed")
					}
				})
				for _, id := range ids {
					if row := r.db.Look(id); row.Attempts != 0 {
						t.Fatalf("a message was charged %d attempts", row.Attempts)
					}
				}
				r.broker.Fail("a", nil)
				r.broker.Fail("", nil)
				r.until("all published", 2*time.Minute, r.all(ids, "published"))
				r.wantOrder("k", 50)
				r.locked(func() {
					if len(r.resumed) == 0 {
						t.Error("nothing was resumed")
					}
				})
			})
		})
	}
}

func TestOneDestinationsFailureLeavesTheOthersAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var bad, good []engine.ID
		for range 20 {
			bad = append(bad, r.enqueue(messages(100, "bad", "")...)...)
			good = append(good, r.enqueue(messages(100, "good", "")...)...)
		}
		r.broker.Fail("bad", &engine.Fault{Class: engine.DestinationFailed, Code: "404"})
		r.run(r.relay(nil))
		r.until("the good destination's messages published", 10*time.Second, r.all(good, "published"))
		r.broker.Fail("bad", nil)
		r.until("the others too", 2*time.Minute, r.all(bad, "published"))
	})
}

func TestPoisonAmongHealthyOnesIsChargedAndDies(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.MaxAttempts = 5
		r.opts.Delivery.MinAge = time.Minute
		poison := r.enqueue(messages(1, "a", "")...)[0]
		r.broker.Script(faultOn(poison, engine.Fault{Class: engine.Transient, Code: "500", Err: errors.New("always")}))
		r.run(r.relay(nil))
		began := time.Now()
		var healthy []engine.ID
		for r.state(poison) != "dead" {
			healthy = append(healthy, r.enqueue(messages(5, "a", "")...)...)
			time.Sleep(100 * time.Millisecond)
			if time.Since(began) > time.Hour {
				t.Fatal("the poison still lives after an hour")
			}
		}
		if age := time.Since(began); age < time.Minute {
			t.Errorf("dead after %v; MinAge is a minute", age)
		}
		row := r.db.Look(poison)
		if row.Attempts < 5 || row.LastClass != "transient" || !strings.Contains(row.LastError, "always") {
			t.Errorf("dead row: %+v", row)
		}
		r.until("the healthy ones published", time.Minute, func() bool { return len(r.broker.Delivered()) == len(healthy) })
		r.locked(func() {
			if len(r.paused) != 0 {
				t.Errorf("paused %v because of one message", r.paused)
			}
		})
	})
}

// A connection that ends takes with it whatever was under way, with whatever word
// there is for that. What was sent after that went over another one and is no
// evidence.
func TestALostConnectionChargesNobody(t *testing.T) {
	for _, f := range []engine.Fault{
		{Class: engine.Unknown, Code: engine.CodeLost},
		{Class: engine.Unknown, Code: engine.CodeTimeout}, // cut for the sake of another message
		{Class: engine.Unknown, Code: "320"},
		{Class: engine.Transient, Code: engine.CodeWrite},
		{Class: engine.Transient, Code: engine.CodeLost},
		{Class: engine.Transient, Code: engine.CodeNack},
	} {
		t.Run(f.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				ids := r.enqueue(messages(50, "a", "")...)
				under := map[engine.ID]bool{}
				for _, id := range ids[:20] {
					under[id] = true
				}
				var mu sync.Mutex
				r.broker.Script(func(_ string, m engine.Outgoing) memory.Outcome {
					mu.Lock()
					defer mu.Unlock()
					if under[m.ID] {
						delete(under, m.ID)
						return memory.Outcome{Result: engine.Result{Fault: &f}}
					}
					return memory.Outcome{}
				})
				r.run(r.relay(nil))
				r.until("all published", time.Minute, r.all(ids, "published"))
				r.locked(func() {
					if r.charged > 0 {
						t.Errorf("%d charged by a lost connection", r.charged)
					}
				})
			})
		})
	}
}

// A broker that stalls for longer than the confirm timeout, and then confirms
// everything, has nothing against what was given up a moment before.
func TestALateConfirmationChargesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		stalled := make(chan struct{})
		var mu sync.Mutex
		first := map[engine.ID]bool{}
		r.broker.Script(func(_ string, m engine.Outgoing) memory.Outcome {
			mu.Lock()
			defer mu.Unlock()
			select {
			case <-stalled:
				return memory.Outcome{}
			default:
			}
			if !first[m.ID] {
				first[m.ID] = true
				return memory.Outcome{Wait: stalled}
			}
			return memory.Outcome{}
		})
		r.opts.Delivery.ConfirmTimeout = time.Second
		slow := &slowAbort{Transport: r.broker, by: 300 * time.Millisecond}
		r.run(r.relay(nil, engine.AllTo(slow)...))
		ids := r.enqueue(messages(10, "a", "")...)
		time.Sleep(900 * time.Millisecond)
		ids = append(ids, r.enqueue(messages(10, "a", "")...)...)
		time.Sleep(200 * time.Millisecond)
		close(stalled)
		r.until("all published", time.Minute, r.all(ids, "published"))
		r.locked(func() {
			if r.charged > 0 {
				t.Errorf("%d charged by a stall", r.charged)
			}
		})
	})
}

// slowAbort takes its time to make sure that nothing is under way any more.
type slowAbort struct {
	*memory.Transport
	by time.Duration
}

func (s *slowAbort) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(int, engine.Result)) {
	s.Transport.Publish(ctx, destination, msgs, func(i int, res engine.Result) {
		if res.Fault != nil {
			time.Sleep(s.by)
		}
		report(i, res)
	})
}

// Where connections are cut again and again the same message can be the one under way
// several times, while others are confirmed in between.
func TestAMessageThatIsCutAgainAndAgainIsNotCharged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.Backoff = engine.Backoff{Min: time.Second, Max: 2 * time.Second}
		unlucky := r.enqueue(messages(1, "a", "")...)
		var times atomic.Int64
		r.broker.Script(func(_ string, m engine.Outgoing) memory.Outcome {
			if m.ID == unlucky[0] && times.Add(1) <= 5 {
				return memory.Outcome{Result: engine.Result{Fault: &engine.Fault{Class: engine.Unknown, Code: engine.CodeLost}}}
			}
			return memory.Outcome{}
		})
		r.run(r.relay(nil))
		for r.state(unlucky[0]) != "published" {
			r.enqueue(messages(5, "a", "")...)
			time.Sleep(100 * time.Millisecond)
		}
		r.locked(func() {
			if r.charged > 0 {
				t.Errorf("%d charged by cut connections", r.charged)
			}
		})
	})
}

// One that loses its connection each time is found out all the same.
func TestAMessageThatLosesItsConnectionDiesInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.MaxAttempts, r.opts.Delivery.MinAge = 3, -1
		r.opts.Delivery.Backoff = engine.Backoff{Min: time.Millisecond, Max: time.Second}
		poison := r.enqueue(messages(1, "a", "")...)
		r.broker.Script(faultOn(poison[0], engine.Fault{Class: engine.Unknown, Code: engine.CodeLost}))
		r.run(r.relay(nil))
		for r.state(poison[0]) != "dead" {
			r.enqueue(messages(5, "a", "")...)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func TestPoisonWithoutNeighboursDiesInTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.MaxAttempts = 3
		r.opts.Delivery.MinAge = -1
		r.opts.Delivery.Backoff = engine.Backoff{Min: time.Millisecond, Max: time.Second}
		poison := r.enqueue(messages(1, "a", "")...)
		r.broker.Script(faultOn(poison[0], engine.Fault{Class: engine.Transient, Code: "500"}))
		r.run(r.relay(nil))
		r.until("the poison is dead", time.Hour, r.all(poison, "dead"))
	})
}

func TestARejectedMessageIsDeadAtOnce(t *testing.T) {
	for policy, after := range map[engine.DeadPolicy]string{engine.Hold: "held", engine.Pass: "published"} {
		t.Run(after, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.opts.Delivery.OnDead = policy
				ids := r.enqueue(messages(4, "a", "k")...)
				r.broker.Script(faultOn(ids[1], engine.Fault{Class: engine.Rejected, Code: "406"}))
				r.run(r.relay(nil))
				r.until("the first published", 5*time.Second, r.all(ids[:1], "published"))
				r.until("the second dead", 5*time.Second, r.all(ids[1:2], "dead"))
				r.until("the rest "+after, 5*time.Second, r.all(ids[2:], after))
			})
		})
	}
}

func TestABadRowIsBuriedAndHarmsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bad := r.db.Plant(engine.Message{Topic: "a", Type: "t"}, errors.New("headers are an array"))
		ids := r.enqueue(messages(10, "a", "")...)
		r.run(r.relay(nil))
		r.until("the good ones published", 5*time.Second, r.all(ids, "published"))
		r.until("the bad one dead", 5*time.Second, r.all([]engine.ID{bad}, "dead"))
		if row := r.db.Look(bad); row.LastClass != "rejected" || !strings.Contains(row.LastError, engine.CodeBadRow) {
			t.Errorf("dead row: %+v", row)
		}
	})
}

func TestASlowMessageLeavesItsLane(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.db = memory.NewDatabase(&memory.Options{Lanes: 1})
		r.opts.Delivery.ConfirmTimeout = 20 * time.Second
		r.opts.Batch = 10
		slow := r.enqueue(messages(3, "a", "slow")...)
		others := r.enqueue(messages(500, "a", "")...)
		hold := make(chan struct{})
		r.broker.Script(func(_ string, m engine.Outgoing) memory.Outcome {
			if m.ID == slow[0] {
				return memory.Outcome{Wait: hold}
			}
			return memory.Outcome{}
		})
		r.run(r.relay(nil))
		r.until("the others published in spite of it", 5*time.Second, r.all(others, "published"))
		if r.state(slow[1]) == "published" {
			t.Error("a later message of the slow one's key overtook it")
		}
		time.Sleep(12 * time.Second) // longer than the lease: it is renewed
		close(hold)
		r.until("the slow key published", 5*time.Second, r.all(slow, "published"))
		r.wantOrder("slow", 3)
		r.locked(func() {
			if r.lost > 0 || r.retried > 0 {
				t.Errorf("%d leases lost, %d retries", r.lost, r.retried)
			}
		})
	})
}

func TestASlowDestinationDoesNotStopAnother(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.ConfirmTimeout = time.Minute
		r.opts.Delivery.Window = 10
		r.opts.Batch = 50
		r.broker.Script(func(d string, _ engine.Outgoing) memory.Outcome {
			if d != "slow" {
				return memory.Outcome{}
			}
			wait := make(chan struct{})
			time.AfterFunc(10*time.Second, func() { close(wait) })
			return memory.Outcome{Wait: wait}
		})
		slow := r.enqueue(messages(500, "slow", "")...)
		quick := r.enqueue(messages(500, "quick", "")...)
		r.run(r.relay(nil))
		r.until("the quick destination's messages published", 30*time.Second, r.all(quick, "published"))
		r.until("the slow one's too", time.Hour, r.all(slow, "published"))
		r.locked(func() {
			if r.charged > 0 {
				t.Errorf("%d charged for a full window", r.charged)
			}
		})
	})
}

func TestATransportThatMisbehavesIsContained(t *testing.T) {
	for name, publish := range map[string]func(n int, report func(int, engine.Result)){
		"says nothing": func(int, func(int, engine.Result)) {},
		"panics":       func(int, func(int, engine.Result)) { panic("broken") },
		"out of range": func(n int, report func(int, engine.Result)) { report(-1, engine.Result{}); report(n, engine.Result{}) },
		"reports twice": func(n int, report func(int, engine.Result)) {
			for i := range n {
				report(i, engine.Result{Fault: &engine.Fault{Class: engine.Unknown}})
				report(i, engine.Result{})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				ids := r.enqueue(messages(5, "a", "k")...)
				broken := &brokenTransport{Transport: r.broker, publish: publish}
				broken.broken.Store(true)
				r.run(r.relay(nil, engine.Route{Topics: ">", Transport: broken}))
				time.Sleep(time.Second)
				for _, id := range ids {
					if s := r.state(id); s == "published" || s == "dead" {
						t.Fatalf("a message is %s by a transport that %s", s, name)
					}
				}
				broken.broken.Store(false)
				r.until("all published", time.Minute, r.all(ids, "published"))
				r.wantOrder("k", 5)
			})
		})
	}
}

type brokenTransport struct {
	engine.Transport
	broken  atomic.Bool
	publish func(n int, report func(int, engine.Result))
}

func (b *brokenTransport) Publish(ctx context.Context, d string, msgs []engine.Outgoing, report func(int, engine.Result)) {
	if b.broken.Load() {
		b.publish(len(msgs), report)
		return
	}
	b.Transport.Publish(ctx, d, msgs, report)
}

func TestATopicWithoutARouteWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		lost := r.enqueue(messages(3, "nowhere", "")...)
		known := r.enqueue(messages(3, "a.b", "")...)
		r.run(r.relay(nil, engine.Route{Topics: "a.*", Transport: r.broker}))
		r.until("the others published", 5*time.Second, r.all(known, "published"))
		time.Sleep(10 * time.Minute)
		for _, id := range lost {
			if row := r.db.Look(id); row.State != "waiting" || row.Attempts != 0 || row.PausedFor != engine.TopicPause("nowhere") {
				t.Fatalf("without a route: %+v", row)
			}
		}
		r.stop()
		r.run(r.relay(nil, engine.Route{Topics: ">", Transport: r.broker}))
		r.until("with a route, published", time.Minute, r.all(lost, "published"))
	})
}

func TestAKeyOverTwoTopicsOfWhichOneIsPaused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var msgs []engine.Message
		for n, m := range messages(10, "a", "k") {
			if n%3 == 1 {
				m.Topic = "b"
			}
			msgs = append(msgs, m)
		}
		store := r.db.NewStore()
		by := engine.Actor{Name: "anna", Reason: "maintenance"}
		if err := store.Pause(t.Context(), engine.Pause{Destination: "b", By: by}); err != nil {
			t.Fatal(err)
		}
		ids := r.enqueue(msgs...)
		other := r.enqueue(messages(20, "a", "other")...)
		r.run(r.relay(nil))
		r.until("the other key published", 5*time.Second, r.all(other, "published"))
		time.Sleep(10 * time.Minute) // no probe lifts an operator's pause
		if n := len(r.broker.Delivered()); n != 21 {
			t.Errorf("%d delivered; of the paused key only the first may be", n)
		}
		if _, err := store.Resume(t.Context(), "b", by); err != nil {
			t.Fatal(err)
		}
		r.until("all published", time.Minute, r.all(ids, "published"))
		r.wantOrder("k", 10)
	})
}

func TestGiveUpAfterBuriesWhatAPausedDestinationKeepsWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.GiveUpAfter = 10 * time.Minute
		ids := r.enqueue(messages(3, "a", "")...)
		r.broker.Fail("a", &engine.Fault{Class: engine.DestinationFailed, Code: "404"})
		r.run(r.relay(nil))
		time.Sleep(9 * time.Minute)
		if !r.all(ids, "waiting")() {
			t.Fatal("not waiting while the pause is young")
		}
		r.until("dead", 5*time.Minute, r.all(ids, "dead"))
		r.broker.Fail("a", nil)
		time.Sleep(2 * time.Minute)
		later := r.enqueue(messages(3, "a", "")...)
		r.until("later ones published", time.Minute, r.all(later, "published"))
	})
}

func TestWhatIsSentFinishesWhenTheContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.Window = 3
		r.opts.Delivery.ConfirmTimeout = time.Minute
		ids := r.enqueue(messages(10, "a", "")...)
		hold := make(chan struct{})
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome { return memory.Outcome{Wait: hold} })
		r.run(r.relay(nil))
		synctest.Wait()
		r.cancel()
		time.Sleep(10 * time.Second)
		close(hold)
		r.stop()
		published := 0
		for _, id := range ids {
			switch row := r.db.Look(id); {
			case row.State == "published":
				published++
			case row.State != "ready" || row.Attempts != 0:
				t.Errorf("after the drain: %+v", row)
			}
		}
		if published != 3 || len(r.broker.Delivered()) != 3 {
			t.Errorf("%d settled, %d delivered; the window was 3", published, len(r.broker.Delivered()))
		}
		rows, err := r.db.NewStore().Claim(t.Context(), engine.ClaimRequest{Limit: 100, Lease: time.Second})
		if err != nil || len(rows) != 7 {
			t.Errorf("%d rows can be claimed at once (%v); 7 were given back", len(rows), err)
		}
	})
}

func TestWhatIsUnresolvedAtTheDrainLimitKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Drain = time.Second
		r.opts.Delivery.ConfirmTimeout = time.Minute
		r.opts.Delivery.DetachAfter = time.Minute
		ids := r.enqueue(messages(1, "a", "")...)
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome {
			return memory.Outcome{Wait: make(chan struct{}), Stored: true}
		})
		r.run(r.relay(nil))
		synctest.Wait()
		began := time.Now()
		r.stop()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Run took %v to end with a drain limit of a second", took)
		}
		rows, err := r.db.NewStore().Claim(t.Context(), engine.ClaimRequest{Limit: 100, Lease: time.Second, Idle: true})
		if err != nil || len(rows) != 0 {
			t.Errorf("%d rows can be claimed (%v); the lease must stay", len(rows), err)
		}
		r.db.Shift(time.Minute)
		r.broker.Script(nil)
		r.run(r.relay(nil))
		r.until("published after the lease", time.Minute, r.all(ids, "published"))
	})
}

// A store that fails when the relay is stopped is tried again to the drain limit,
// and no longer.
func TestWhatIsConfirmedIsSettledWithinTheDrainLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails time.Duration
		state string
	}{
		{"fails for half of it", 10 * time.Second, "published"},
		{"fails for longer", time.Minute, "ready"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				store := &unsettledStore{Store: r.db.NewStore()}
				store.until.Store(math.MaxInt64)
				ids := r.enqueue(messages(3, "a", "")...)
				r.run(r.relay(store))
				r.until("all sent", time.Minute, func() bool { return len(r.broker.Delivered()) == len(ids) })
				began := time.Now()
				store.until.Store(began.Add(c.fails).UnixNano())
				r.stop()
				if took, most := time.Since(began), 27*time.Second; took > most {
					t.Errorf("Run took %v to end, with a drain limit of 20 s; %v at the most", took, most)
				}
				for _, id := range ids {
					if got := r.state(id); got != c.state {
						t.Errorf("%v is %s; want %s", id, got, c.state)
					}
				}
			})
		})
	}
}

// unsettledStore settles nothing until a point of time.
type unsettledStore struct {
	engine.Store
	until atomic.Int64
}

func (s *unsettledStore) Settle(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
	if time.Now().UnixNano() < s.until.Load() {
		return nil, errors.New("planted: the database is away")
	}
	return s.Store.Settle(ctx, ss...)
}

func TestAStoreThatFailsIsSurvived(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store := &flakyStore{Store: r.db.NewStore()}
		ids := append(r.enqueue(messages(100, "a", "")...), r.enqueue(messages(100, "a", "k")...)...)
		r.run(r.relay(store))
		r.until("all published", 10*time.Minute, r.all(ids, "published"))
		r.wantOrder("k", 100)
		r.locked(func() {
			if r.failed == 0 {
				t.Error("no failure was told")
			}
		})
	})
}

// flakyStore fails two calls of three, half of them after they took effect.
type flakyStore struct {
	engine.Store
	calls atomic.Int64
}

func (s *flakyStore) fail(do func()) bool {
	switch s.calls.Add(1) % 6 {
	case 0, 3:
		do()
		return false
	case 1, 4:
		do()
	}
	return true
}

var errFlaky = errors.New("the connection was lost")

func (s *flakyStore) Settle(ctx context.Context, ss ...engine.Settlement) (lost []engine.Receipt, err error) {
	if s.fail(func() { lost, err = s.Store.Settle(ctx, ss...) }) {
		return nil, errFlaky
	}
	return lost, err
}

func (s *flakyStore) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) (lost []engine.Receipt, err error) {
	if s.fail(func() { lost, err = s.Store.Extend(ctx, rs, lease) }) {
		return nil, errFlaky
	}
	return lost, err
}

func TestSeveralRelaysShareOneTable(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var ids []engine.ID
		for k := range 20 {
			ids = append(ids, r.enqueue(messages(50, "a", fmt.Sprint("k", k))...)...)
		}
		ids = append(ids, r.enqueue(messages(1000, "a", "")...)...)
		ctx, cancel := context.WithCancel(t.Context())
		var relays sync.WaitGroup
		r.opts.Batch = 40
		for range 4 {
			relay := r.relay(nil)
			relays.Go(func() {
				if err := relay.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		r.until("all published", time.Minute, r.all(ids, "published"))
		cancel()
		relays.Wait()
		if n := len(r.broker.Delivered()); n != len(ids) {
			t.Errorf("%d deliveries of %d messages", n, len(ids))
		}
		for k := range 20 {
			r.wantOrder(fmt.Sprint("k", k), 50)
		}
	})
}

func TestStepDoesOneBatch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Batch = 30
		ids := r.enqueue(messages(40, "a", "")...)
		relay := r.relay(nil)
		total := 0
		for total < 40 {
			n, err := relay.Step(t.Context())
			if err != nil || n == 0 {
				t.Fatalf("Step: %d, %v", n, err)
			}
			total += n
			if got := len(r.broker.Delivered()); got != total {
				t.Fatalf("Step took %d in hand so far and %d were delivered when it returned", total, got)
			}
		}
		if !r.all(ids, "published")() {
			t.Error("not all are settled when Step returned")
		}
		if n, err := relay.Step(t.Context()); n != 0 || err != nil {
			t.Errorf("Step on an empty table: %d, %v", n, err)
		}
	})
}

func TestNewReportsAllFaultsAtOnce(t *testing.T) {
	db, broker := memory.NewDatabase(nil), memory.NewTransport(nil)
	_, err := engine.New(db.NewStore(), []engine.Route{
		{Topics: "a.>.b", Transport: broker},
		{Topics: "a.b*"},
		{Topics: ">", Transport: memory.NewTransport(nil)},
	}, &engine.Options{Lease: time.Second, SettleTimeout: time.Second, Batch: -1, Delivery: engine.Delivery{MaxAttempts: 2}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"batch is -1", "settle timeout", "fewer than 3", "can only be the last part", "whole parts", "no transport", "two transports are named"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if _, err := engine.New(db.NewStore(), nil, nil); err == nil || !strings.Contains(err.Error(), "no routes") {
		t.Errorf("without routes: %v", err)
	}
}

func TestRunEndsWithAnErrorWhereNoRelayMayWork(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		relay := r.relay(checkedStore{r.db.NewStore(), []engine.Finding{{Level: engine.Fatal, Code: "schema_missing", Text: "no table", Fix: "run migrate"}}})
		err := relay.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "schema_missing: no table; run migrate") {
			t.Errorf("Run: %v", err)
		}
	})
}

type checkedStore struct {
	engine.Store
	findings []engine.Finding
}

func (s checkedStore) Check(context.Context) []engine.Finding { return s.findings }

func TestWhatADeadRelayHadInHandIsSentAloneAndChargedToNobody(t *testing.T) {
	// What is confirmed and not settled yet is still in hand.
	for _, settling := range []time.Duration{0, time.Second} {
		t.Run(fmt.Sprint("settling takes ", settling), func(t *testing.T) { deadRelays(t, settling) })
	}
}

func deadRelays(t *testing.T, settling time.Duration) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.MaxCrashes = 2
		ids := r.enqueue(messages(64, "a", "")...)
		killer := ids[40]
		crashes := 0
		// Relays that die when they get to send the killer; the row must be found out
		// without a neighbour being charged.
		for r.state(killer) != "dead" {
			if crashes++; crashes > 40 {
				t.Fatal("the killer is not found out after 40 crashes")
			}
			r.crash(killer, settling)
			r.db.Shift(time.Minute)
		}
		r.run(r.relay(nil))
		r.until("all others published", time.Minute, func() bool {
			for _, id := range ids {
				if row := r.db.Look(id); id != killer && (row.State != "published" || row.Crashes != 0 || row.Attempts != 0) {
					return false
				}
			}
			return true
		})
		if row := r.db.Look(killer); !strings.Contains(row.LastError, engine.CodeKillsRelay) {
			t.Errorf("the killer: %+v", row)
		}
		t.Logf("%d crashes", crashes)
	})
}

// crash runs a relay until it is to send the killer, or for a while; then nothing
// that it does reaches the table any more.
func (r *rig) crash(killer engine.ID, settling time.Duration) {
	store := &mortalStore{Store: r.db.NewStore(), settling: settling}
	ctx, cancel := context.WithCancel(r.t.Context())
	r.broker.Script(func(_ string, m engine.Outgoing) memory.Outcome {
		if m.ID == killer {
			store.dead.Store(true)
			cancel()
			return memory.Outcome{Result: engine.Result{Fault: &engine.Fault{Class: engine.Unknown}}}
		}
		return memory.Outcome{}
	})
	defer r.broker.Script(nil)
	opts := r.opts
	r.opts.Drain = 10 * time.Millisecond
	relay := r.relay(store)
	r.opts = opts
	time.AfterFunc(30*time.Second, cancel)
	if err := relay.Run(ctx); err != nil {
		r.t.Fatal(err)
	}
}

// mortalStore stops answering when its process is dead.
type mortalStore struct {
	engine.Store
	dead     atomic.Bool
	settling time.Duration
}

func (s *mortalStore) Settle(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
	time.Sleep(s.settling)
	if s.dead.Load() {
		return nil, errFlaky
	}
	return s.Store.Settle(ctx, ss...)
}

func (s *mortalStore) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) ([]engine.Receipt, error) {
	if s.dead.Load() {
		return nil, errFlaky
	}
	return s.Store.Extend(ctx, rs, lease)
}

func TestAWorkerThatLostItsLeaseChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Delivery.ConfirmTimeout = time.Hour
		r.opts.Delivery.DetachAfter = time.Hour
		ids := r.enqueue(messages(1, "a", "")...)
		hold := make(chan struct{})
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome { return memory.Outcome{Wait: hold} })
		r.run(r.relay(nil))
		synctest.Wait()
		r.db.Shift(time.Minute) // the process was stopped for a minute, say
		other := r.db.NewStore()
		rows, err := other.Claim(t.Context(), engine.ClaimRequest{Limit: 1, Lease: time.Hour, Idle: true})
		if err != nil || len(rows) != 1 {
			t.Fatalf("takeover: %d rows, %v", len(rows), err)
		}
		close(hold)
		r.until("the late worker noticed", time.Minute, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.lost > 0 })
		if s := r.state(ids[0]); s != "ready" {
			t.Errorf("the row is %s by a worker that had lost it", s)
		}
	})
}

func TestUnorderedSendsAKeySideBySide(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Unordered = true
		ids := r.enqueue(messages(5, "a", "k")...)
		r.broker.Script(faultOn(ids[0], engine.Fault{Class: engine.Transient}))
		r.run(r.relay(nil))
		r.until("the later ones published", 5*time.Second, r.all(ids[1:], "published"))
	})
}

func TestATopicThatTheBrokerDoesNotRouteStopsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		routed := false
		tries := 0
		r.broker.Script(func(_ string, m engine.Outgoing) memory.Outcome {
			if m.Topic == "order.lost" && !routed {
				tries++
				return memory.Outcome{Result: engine.Result{Fault: &engine.Fault{Class: engine.DestinationFailed, Code: engine.CodeNoRoute}}}
			}
			return memory.Outcome{}
		})
		lost := r.enqueue(messages(1, "order.lost", "")...)
		r.run(r.relay(nil, engine.Route{Topics: ">", Transport: r.broker, Destination: "orders"}))
		for range 100 {
			good := r.enqueue(messages(5, "order.good", "")...)
			r.until("the others published", 3*time.Second, r.all(good, "published"))
			time.Sleep(5 * time.Second)
		}
		if tries < 5 || tries > 40 {
			t.Errorf("%d tries in 500 seconds; they should become rarer and not stop", tries)
		}
		if row := r.db.Look(lost[0]); row.Attempts != 0 || row.State == "dead" {
			t.Errorf("the unroutable message: %+v", row)
		}
		routed = true
		r.until("published once there is a route", time.Minute, r.all(lost, "published"))
	})
}
