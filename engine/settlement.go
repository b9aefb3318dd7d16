package engine

import "time"

// SettlementKind tells the five things that can become of a claimed message.
type SettlementKind uint8

const (
	Published SettlementKind = iota // the broker took responsibility
	Retried                         // goes again later
	Buried                          // dead, until an operator acts
	Released                        // never sent: ready at once, nothing charged
	Detached                        // slow: leaves its lane, same receipt
)

var settlementNames = [...]string{"published", "retried", "buried", "released", "detached"}

// String returns the kind in lower case.
func (k SettlementKind) String() string { return settlementNames[k] }

// A Settlement says what became of one claimed message. It is made by one of the
// functions below; its fields are for dialects to read.
type Settlement struct {
	Receipt   Receipt
	Kind      SettlementKind
	After     time.Duration // Retried: due after; Detached: the lease; counted by the database's clock
	Fault     Fault         // Retried, Buried
	Charge    bool          // Retried: spends an attempt
	HoldKey   bool          // Retried, Buried: later messages of the key wait for this one
	PausedFor string        // Retried: parked until this pause ends; After is unused
}

// MarkPublished settles a message that the broker confirmed.
func MarkPublished(r Receipt) Settlement { return Settlement{Receipt: r, Kind: Published} }

// RescheduleOptions says how a message goes again.
type RescheduleOptions struct {
	Charge    bool   // spends an attempt
	HoldKey   bool   // later messages of its key wait for it
	PausedFor string // not empty: parked until the pause of this name ends
}

// Reschedule puts a message off: it goes again when the database's clock is after
// later, or when the pause named in opts ends.
func Reschedule(r Receipt, after time.Duration, f Fault, opts RescheduleOptions) Settlement {
	return Settlement{Receipt: r, Kind: Retried, After: max(after, 0), Fault: f,
		Charge: opts.Charge, HoldKey: opts.HoldKey, PausedFor: opts.PausedFor}
}

// DeadLetter buries a message. With holdKey the later messages of its key wait
// until an operator has requeued or discarded it; without, they go on.
func DeadLetter(r Receipt, holdKey bool, f Fault) Settlement {
	return Settlement{Receipt: r, Kind: Buried, Fault: f, HoldKey: holdKey}
}

// Release gives back a message that was never sent: it is ready at once and
// nothing is charged.
func Release(r Receipt) Settlement { return Settlement{Receipt: r, Kind: Released} }

// Detach takes a message whose confirmation is slow out of its lane, so that the
// lane can go on. The message stays this claim's, under the same receipt, for
// lease from the database's now; later messages of its key wait.
func Detach(r Receipt, lease time.Duration) Settlement {
	return Settlement{Receipt: r, Kind: Detached, After: lease}
}
