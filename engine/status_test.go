package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

func TestADrainIsNotStuckNorIsALaterStep(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opts.Drain = 10 * time.Minute
		r.opts.Delivery.ConfirmTimeout = 5 * time.Minute
		r.enqueue(messages(1, "a", "")...)
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome { return memory.Outcome{Wait: make(chan struct{})} })
		relay := r.relay(nil)
		r.run(relay)
		synctest.Wait()
		r.cancel()
		time.Sleep(3 * time.Minute)
		if s := relay.Status(); len(s.Stuck) > 0 {
			t.Errorf("while it drains, %v counts as stuck", s.Stuck)
		}
		r.stop()
		time.Sleep(time.Hour)
		stepped := make(chan struct{})
		go func() {
			defer close(stepped)
			if _, err := relay.Step(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Second)
		if s := relay.Status(); len(s.Stuck) > 0 {
			t.Errorf("in a step long after the run, %v counts as stuck", s.Stuck)
		}
		r.broker.Script(nil)
		<-stepped
	})
}

func TestACallThatDoesNotReturnIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		hold := make(chan struct{})
		r.broker.Script(func(string, engine.Outgoing) memory.Outcome { <-hold; return memory.Outcome{} }) // heeds no context
		ids := r.enqueue(messages(1, "a", "")...)
		relay := r.relay(nil)
		r.run(relay)
		time.Sleep(time.Minute)
		if s := relay.Status(); len(s.Stuck) > 0 {
			t.Errorf("after a minute %v counts as stuck", s.Stuck)
		}
		time.Sleep(10 * time.Second)
		if s := relay.Status(); len(s.Stuck) != 1 || s.Stuck[0] != "publish" {
			t.Errorf("stuck: %v", s.Stuck)
		}
		close(hold)
		r.until("published", time.Second, r.all(ids, "published"))
		if s := relay.Status(); len(s.Stuck) > 0 {
			t.Errorf("after its return %v counts as stuck", s.Stuck)
		}
	})
}
