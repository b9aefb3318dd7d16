package main

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/outward-dev/outward/internal/testservers"
)

// gates hold what a message costs in what can be counted, as it was measured. A
// change that makes one dearer by more than the margin has to say why, and write the
// new figure here. Times are no gate: they are the machine's.
//
// How many statements it takes to a broker depends on how fast that is, so there
// only what is allocated is held; 0 means not held.
var gates = []struct {
	name string
	o    outward
	cost cost
}{
	{"no keys", outward{to: toNull}, cost{statements: 24, trips: 4.2, wal: 104, allocs: 13.7, allocated: 4360}},
	{"10 000 keys", outward{to: toNull, keys: many}, cost{statements: 24, trips: 4.2, wal: 104, allocs: 16.7, allocated: 4580}},
	{"one key", outward{to: toNull, keys: 1}, cost{statements: 34, trips: 6, wal: 88, allocs: 15.2, allocated: 4410}},
	{"72 h", outward{to: toNull, retention: keep}, cost{statements: 23, trips: 4, wal: 1550, allocs: 13.7, allocated: 4360}},
	{"72 h, metadata", outward{to: toNull, retention: keep, metadata: true}, cost{statements: 23, trips: 4, wal: 506, allocs: 13.7, allocated: 4360}},
	{"no keys", outward{to: toRabbitMQ}, cost{allocs: 104}},
	{"no keys", outward{to: toJetStream}, cost{allocs: 40}},
}

const (
	gateMessages = 20_000
	gateMargin   = 1.3
	// What else goes on in the process and in the server only ever adds to a figure,
	// so the least of a few counts.
	gateTries = 3
)

// A cost is what the messages of a run took.
type cost struct {
	statements, trips float64 // per 1 000 messages
	wal               float64 // bytes per message
	allocs, allocated float64 // objects and bytes per message
}

func costOf(f figures) cost {
	return cost{1000 * f.per(f.statements), 1000 * f.per(f.trips), f.per(f.wal), f.per(f.allocs), f.per(f.allocated)}
}

func (c cost) String() string {
	return fmt.Sprintf("%.1f statements and %.1f round trips per 1000 messages; per message %.0f bytes of WAL, %.1f objects and %.0f bytes allocated",
		c.statements, c.trips, c.wal, c.allocs, c.allocated)
}

func (c cost) least(d cost) cost {
	return cost{min(c.statements, d.statements), min(c.trips, d.trips), min(c.wal, d.wal), min(c.allocs, d.allocs), min(c.allocated, d.allocated)}
}

// within reports whether no figure is above that of limit by more than the margin.
func (c cost) within(limit cost) bool {
	held := func(got, limit float64) bool { return limit == 0 || got <= limit*gateMargin }
	return held(c.statements, limit.statements) && held(c.trips, limit.trips) && held(c.wal, limit.wal) &&
		held(c.allocs, limit.allocs) && held(c.allocated, limit.allocated)
}

func TestCostOfAMessage(t *testing.T) {
	b, err := newBench(t.Context(), testservers.DSN(t, "pg17"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for _, g := range gates {
		t.Run(g.o.to.name+"/"+g.name, func(t *testing.T) {
			if g.o.to.name != toNull.name {
				testservers.URL(t, g.o.to.name)
			}
			best := cost{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)}
			for range gateTries {
				began := time.Now()
				f, err := g.o.run(t.Context(), b, gateMessages)
				if err != nil {
					t.Fatal(err)
				}
				best = best.least(costOf(f))
				t.Logf("%v, %v", costOf(f), time.Since(began))
				if best.within(g.cost) {
					return
				}
			}
			t.Errorf("a message costs more than it may\n got: %v\nwant: %v\nand at most %.0f %% more", best, g.cost, 100*(gateMargin-1))
		})
	}
}
