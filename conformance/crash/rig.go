// Package crash lets a relay process be killed exactly where it hurts. The process
// puts a [Rig] around its store and its transport; at a chosen boundary the rig
// writes one byte, to a pipe of the parent, say, and then nothing moves any more,
// until the parent kills the process:
//
//	rig := &crash.Rig{At: crash.Confirmed, After: 11, Signal: os.NewFile(3, "parent")}
//	relay, err := engine.New(rig.Store(store), []engine.Route{{Topics: ">", Transport: rig.Transport(transport)}}, nil)
//
// What lies between a wrapper and the server can't be reached this way: a message
// that is sent and not confirmed, a statement that took effect and was not answered.
// There a proxy of the parent withholds what the server says.
//
// The package is free of package testing and imports nothing but the standard
// library and Outward's engine.
package crash

import (
	"io"
	"sync"
)

// A Boundary is a place in the life of claimed messages.
type Boundary string

// The boundaries, in the order in which a message comes to them.
const (
	Claimed   Boundary = "claimed"   // a claim returned messages; the relay does not know it yet
	Handed    Boundary = "handed"    // the relay called Publish; the transport does not know it yet
	Confirmed Boundary = "confirmed" // After messages were confirmed; nothing was settled
	Settled   Boundary = "settled"   // After messages were settled; the relay does not know it yet
)

// Boundaries lists all of them.
func Boundaries() []Boundary { return []Boundary{Claimed, Handed, Confirmed, Settled} }

// A Rig stops a process at a boundary. One rig goes around the store and the
// transports of one relay.
type Rig struct {
	// At is where it stops; empty: nowhere.
	At Boundary
	// After is how many messages the test is about. Nothing is settled before so many
	// were confirmed: so it is known what the broker has. 0: all goes on as it comes.
	After int
	// Signal gets one byte when the boundary was reached. It is written once.
	Signal io.Writer

	mu        sync.Mutex
	changed   *sync.Cond
	stopped   bool
	confirmed int
	settled   int
}

// lock takes the lock, and does not return once the boundary was reached.
func (r *Rig) lock() {
	r.mu.Lock()
	if r.changed == nil {
		r.changed = sync.NewCond(&r.mu)
	}
	r.hold(func() bool { return r.stopped })
}

// hold waits while cond holds; the lock is taken.
func (r *Rig) hold(cond func() bool) {
	for cond() {
		r.changed.Wait()
	}
}

// pass lets a call through, unless the boundary was reached.
func (r *Rig) pass() {
	r.lock()
	r.mu.Unlock()
}

// at stops the process if this is the boundary. The lock is taken, and given up only
// to go on.
func (r *Rig) at(b Boundary) {
	if r.At != b {
		return
	}
	r.stopped = true
	if _, err := r.Signal.Write([]byte{'.'}); err != nil {
		panic(err) // the parent has gone, and nobody would ever kill this process
	}
	r.hold(func() bool { return true })
}
