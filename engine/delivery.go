package engine

import "time"

// Delivery is how messages are delivered. A zero field takes the value of the
// relay's options, and there the default that stands beside it.
type Delivery struct {
	// ConfirmTimeout bounds one publish; then its outcome is Unknown. Default 5 s.
	ConfirmTimeout time.Duration
	// DetachAfter is when a message without a confirmation leaves its lane, so that
	// others behind it go on. Default 1 s.
	DetachAfter time.Duration
	// Window is how many messages may be in flight to one destination. Default 1000.
	Window int
	// MaxAttempts is how many charged attempts make a message dead, at least 3.
	// Default 25.
	MaxAttempts int
	// MaxCrashes is how many relays may die with a message alone in hand before it
	// is dead. Default 5.
	MaxCrashes int
	// MinAge is how long a message must have failed before it can be dead, unless it
	// was rejected. Default 15 min; negative: none.
	MinAge time.Duration
	// GiveUpAfter is how long a destination may be paused by the relay before its
	// messages are buried. Default 0: never.
	GiveUpAfter time.Duration
	// Backoff is the wait before a retry: exponential with full jitter. Default
	// 200 ms to 5 min.
	Backoff Backoff
	// OnDead says what a dead message does to the later ones of its key. Default
	// Hold.
	OnDead DeadPolicy
}

// Backoff is the range of a retry's wait.
type Backoff struct{ Min, Max time.Duration }

// DeadPolicy says what a dead message does to the later messages of its key.
type DeadPolicy uint8

const (
	// Inherit takes the relay's policy, which is Hold unless it says otherwise.
	Inherit DeadPolicy = iota
	// Hold keeps them back until an operator requeues or discards the dead one.
	Hold
	// Pass lets them go on.
	Pass
)
