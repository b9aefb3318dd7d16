package engine

import "time"

// Hooks are told what a relay does, for metrics, traces and tests. Each is
// optional. They are called one after another by the goroutine in which it
// happened, possibly by several goroutines at once, and must not block: the relay
// waits for them. No lock is held, so a hook may call methods of the relay.
type Hooks struct {
	// Claimed: a claim returned so many messages after so long.
	Claimed func(n int, took time.Duration)
	// Published: the outcome of one publish; took counts from the hand-over to the
	// transport.
	Published func(m Outgoing, destination string, res Result, took time.Duration)
	// Settled: one Settle took effect.
	Settled func(n int, took time.Duration)
	// Retried: a message goes again later, with or without a charge.
	Retried func(c Claimed, f Fault, charged bool)
	// Buried: a message is dead.
	Buried func(c Claimed, f Fault)
	// Lost: leases that no longer held when they were used.
	Lost func(n int, operation string)
	// Paused and Resumed: this relay saw a destination stop and go on.
	Paused  func(p Pause)
	Resumed func(destination string)
	// StoreFailed: a call of the store failed and is repeated.
	StoreFailed func(operation string, err error)
	// Backlog: what waits in the table.
	Backlog func(b Backlog)
	// Purged: so many archived rows were deleted.
	Purged func(n int, took time.Duration)
}
