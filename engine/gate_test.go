package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateLetsASuspectBeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		ctx := t.Context()
		first, _ := g.enter(ctx, false)
		if !first.alone {
			t.Fatal("nothing is in flight, and the claim may not hand out suspects")
		}
		if !first.decide(true) {
			t.Fatal("nobody broke in, and the suspects may not be sent")
		}
		entered := make(chan *ticket)
		go func() { second, _ := g.enter(ctx, false); entered <- second }()
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-entered:
			t.Fatal("somebody entered while a suspect was in flight")
		default:
		}
		first.leave()
		first.leave()
		(<-entered).leave()
		if g.active != 0 || g.alone != nil {
			t.Errorf("after all have left: %+v", &g)
		}
	})
}

func TestGateIsSharedByWhatIsNoSuspect(t *testing.T) {
	var g gate
	first := g.try(false, 0)
	if !first.decide(false) {
		t.Fatal("a batch without suspects may not be sent")
	}
	second := g.try(false, 0)
	if second == nil || second.alone {
		t.Fatalf("second: %+v", second)
	}
	if second.decide(true) {
		t.Error("suspects may be sent although something else is in flight")
	}
}

func TestGateWaitsForWhoeverWantsToBeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		busy := g.try(false, 0)
		busy.decide(false)
		alone := make(chan *ticket)
		go func() { t, _ := g.enter(context.Background(), true); alone <- t }()
		synctest.Wait()
		if g.try(false, 0) != nil {
			t.Error("somebody entered although another waits to be alone")
		}
		busy.leave()
		got := <-alone
		if !got.alone {
			t.Error("it isn't alone")
		}
		got.leave()
	})
}

func TestGateIsBrokenWhenAClaimStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		stalled := g.try(false, 0) // alone, and its database does not answer
		began := time.Now()
		other, err := g.enter(t.Context(), false)
		if err != nil || time.Since(began) > time.Second {
			t.Fatalf("another relay waited for %v (%v)", time.Since(began), err)
		}
		if stalled.decide(true) {
			t.Error("suspects may be sent although somebody broke in")
		}
		other.leave()
		stalled.leave()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		held := g.try(false, 0)
		held.decide(true)
		if _, err := g.enter(ctx, false); err == nil {
			t.Error("enter outlived its context")
		}
		held.leave()
	})
}
