package envelope

import (
	"fmt"
	"time"

	"github.com/outward-dev/outward/engine"
)

// AMQPPrefix stands before CloudEvents attributes in AMQP headers. CloudEvents
// has a binding for AMQP 1.0 and none for 0-9-1; this is the prefix of the 1.0
// one, which 0-9-1 readers meet as well when the broker translates.
const AMQPPrefix = "cloudEvents:"

var amqpBinding = newBinding(AMQPPrefix)

// AMQP is a message's metadata in AMQP 0-9-1: basic properties and the headers
// table, whose values are all strings. It is free of any client's types.
type AMQP struct {
	MessageID     string
	Type          string
	CorrelationID string
	ContentType   string
	AppID         string
	Timestamp     time.Time // zero: the property is left out
	Headers       map[string]any
}

// ForAMQP writes m's metadata for AMQP 0-9-1.
func ForAMQP(m *engine.Outgoing, source string) AMQP {
	a := AMQP{
		MessageID:     m.ID.String(),
		Type:          m.Type,
		CorrelationID: m.CorrelationID,
		ContentType:   contentType(m),
		AppID:         source,
		Headers:       make(map[string]any, len(m.Headers)+12),
	}
	// The property is an unsigned number of seconds since 1970: an instant before
	// that would come out as one in the far future. The header has it in any case.
	if m.OccurredAt.Unix() >= 0 {
		a.Timestamp = m.OccurredAt.UTC()
	}
	for name, value := range m.Headers {
		if !Reserved(name) {
			a.Headers[name] = value
		}
	}
	own(m, a.MessageID, source, amqpBinding, func(name, value string) { a.Headers[name] = value })
	return a
}

// maxShortString is the most that a length of one byte can say.
const maxShortString = 255

// CheckShort reports that s does not fit in an AMQP short string. The table
// counts characters and AMQP counts bytes, so a name that fits the one may not
// fit the other. The error has no more of s than its length.
func CheckShort(field, s string) error {
	if len(s) > maxShortString {
		return fmt.Errorf("%s is %d bytes long; an AMQP short string holds %d", field, len(s), maxShortString)
	}
	return nil
}

// Check reports what no broker could take: a short string that is too long. A
// client that meets one of these while it writes has to give up the connection
// and with it everybody else's messages.
func (a *AMQP) Check() error {
	for _, p := range [...]struct{ field, value string }{
		{"message id", a.MessageID}, {"type", a.Type}, {"correlation id", a.CorrelationID},
		{"content type", a.ContentType}, {"source", a.AppID},
	} {
		if err := CheckShort(p.field, p.value); err != nil {
			return err
		}
	}
	for name := range a.Headers {
		if len(name) > maxShortString {
			return CheckShort(fmt.Sprintf("the name of header %.40q…", name), name)
		}
		if name == "" {
			return fmt.Errorf("a header has an empty name")
		}
		// RabbitMQ takes these two for lists of further routing keys and closes the
		// channel when they are anything else, which a string always is.
		if name == "CC" || name == "BCC" {
			return fmt.Errorf("header %s is an instruction to RabbitMQ, which takes no text there", name)
		}
	}
	return nil
}

// FrameSize is the size of the content header frame that carries a, with the
// frame's own 8 bytes. It must not be more than the connection's frame_max: a
// content header, unlike a body, can't be cut in pieces.
func (a *AMQP) FrameSize() int {
	const frame, classWeightSizeFlags, deliveryMode = 8, 2 + 2 + 8 + 2, 1
	n := frame + classWeightSizeFlags + deliveryMode
	for _, s := range [...]string{a.MessageID, a.Type, a.CorrelationID, a.ContentType, a.AppID} {
		if s != "" {
			n += 1 + len(s)
		}
	}
	if !a.Timestamp.IsZero() {
		n += 8
	}
	n += 4
	for name, value := range a.Headers {
		text, _ := value.(string) // headers puts nothing else there
		n += 1 + len(name) + 1 + 4 + len(text)
	}
	return n
}
