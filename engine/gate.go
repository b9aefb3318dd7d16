package engine

import (
	"context"
	"sync"
	"time"
)

// A gate lets a suspect be alone in the process. A message that was in the hands
// of a relay that died may be the one that killed it; if it kills again, whatever
// else the process has in hand would be suspected with it. So a claim that may
// hand out suspects is made only while nothing else of the process is in flight,
// and nothing joins while a suspect is.
//
// Crashes end processes, so there is one gate for all relays of the process.
type gate struct {
	mu     sync.Mutex
	active int     // tickets out
	alone  *ticket // the ticket that nobody may join, if any
	wanted int     // claims that wait to be alone
}

var processGate gate

const (
	gatePoll    = 2 * time.Millisecond   // polled: a channel could not be shared by goroutines of different test bubbles
	gateBreakIn = 100 * time.Millisecond // how long another relay's idle claim may keep this one waiting
	gateGiveUp  = 10 * time.Second       // how long a relay waits to be alone, and others for it, before they go on with what is no suspect
	gateRest    = 30 * time.Second       // how long a relay that gave up leaves the others in peace
)

// A ticket stands for one claim and what it handed out, until the last message of
// it is settled.
type ticket struct {
	g       *gate
	alone   bool // made for a claim that may hand out suspects
	decided bool // the claim has been answered: nobody breaks in any more
	joined  bool // somebody broke in before that
	left    bool
}

// enter waits for a ticket. It is one to be alone with where that can be had at
// once, or where wantAlone says that it is needed.
func (g *gate) enter(ctx context.Context, wantAlone bool) (*ticket, error) {
	if wantAlone {
		g.want(+1)
		defer g.want(-1)
	}
	began := time.Now()
	for {
		if t := g.try(wantAlone, time.Since(began)); t != nil {
			return t, nil
		}
		sleep(ctx, gatePoll)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

func (g *gate) want(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted += n
}

// try returns a ticket if there is one to be had now, for a claim that has waited
// for so long.
//
// Who wants to be alone goes first, for as long as it is to wait at all: with
// others coming and going that would else never be. Something always hangs
// somewhere, though, and must not stop everybody.
//
// One that has waited long enough while another is alone in a claim that is not
// answered breaks in: the other's database may be stalled. The other is told, and
// gives its suspects back unsent.
func (g *gate) try(wantAlone bool, waited time.Duration) *ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &ticket{g: g}
	switch {
	case g.wanted > 0 && !wantAlone && waited < gateGiveUp:
		return nil
	case g.active == 0:
		t.alone = true
		g.alone = t
	case wantAlone && waited < gateGiveUp:
		return nil
	case g.alone != nil:
		if waited < gateBreakIn || g.alone.decided {
			return nil
		}
		g.alone.joined = true
	}
	g.active++
	return t
}

// decide says whether the claim brought suspects. With none, others may enter.
// With some, it reports whether they may be sent: not if somebody broke in.
func (t *ticket) decide(suspects bool) bool {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	t.decided = true
	if suspects && t.alone && !t.joined {
		return true
	}
	if t.g.alone == t {
		t.g.alone = nil
	}
	return !suspects
}

// leave gives the ticket back. A second call does nothing.
func (t *ticket) leave() {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	t.g.active--
	if t.g.alone == t {
		t.g.alone = nil
	}
}
