package inbox

import (
	"context"

	"github.com/outward-dev/outward/engine"
)

// A Delivery is a message as a consumer received it from a broker.
type Delivery struct {
	// Message is what was sent. Its ID is zero where the id on the wire is no UUID.
	engine.Message
	// MessageID is the text of the id on the wire.
	MessageID string
	// Redelivered says that the broker may have delivered it before; it is a hint, and
	// no reason to skip it.
	Redelivered bool
}

// InboxKey is the delivery's key for a consumer.
func (d Delivery) InboxKey(consumer string) Key {
	if d.MessageID == "" && !d.ID.IsZero() {
		return Key{Consumer: consumer, Message: d.ID.String()}
	}
	return Key{Consumer: consumer, Message: d.MessageID}
}

// A Handler has the effect of a message. nil means that it is committed, by this
// call or an earlier one: the message is to be acknowledged. After an error it is
// not; an error that wraps engine.ErrCommitUnknown may have committed, and the
// repeat will tell.
type Handler func(ctx context.Context, d Delivery) error

// Outcome says what a message was to the inbox. The zero value is no outcome: it
// comes with an error.
type Outcome uint8

// The outcomes of a message that was processed.
const (
	Fresh  Outcome = iota + 1 // it is recorded, and its effect committed, by this call
	Repeat                    // it was recorded before: nothing was done
)

var outcomeNames = [...]string{"none", "fresh", "repeat"}

// String returns the outcome in lower case.
func (o Outcome) String() string { return outcomeNames[o] }
