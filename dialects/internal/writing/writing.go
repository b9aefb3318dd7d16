// Package writing prepares what goes into a table, whatever the database.
package writing

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Rules are what a writer adds to messages and asks of them.
type Rules struct {
	KeyPrefix  string
	MaxPayload int
	Check      func(engine.Message) error
}

// Prepare fills in what is missing, asks newID for ids, and checks the result, all
// faults joined with their index. It leaves the caller's messages alone.
func (r Rules) Prepare(newID func() engine.ID, msgs []engine.Message) ([]engine.Message, []engine.ID, error) {
	msgs = slices.Clone(msgs)
	ids := make([]engine.ID, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if m.Key != "" {
			m.Key = r.KeyPrefix + m.Key
		}
		if m.ContentType == "" {
			m.ContentType = engine.DefaultContentType
		}
	}
	if err := engine.CheckAll(msgs, r.MaxPayload, r.Check); err != nil {
		return nil, nil, err
	}
	for i := range msgs {
		if msgs[i].ID.IsZero() {
			msgs[i].ID = newID()
		}
		ids[i] = msgs[i].ID
	}
	return msgs, ids, nil
}

// Missing is the error of a call of which only some messages went in, since the ids
// of the others are waiting already; nil if all did.
func Missing(ids []engine.ID, inserted int) error {
	switch missing := len(ids) - inserted; {
	case missing <= 0:
		return nil
	case len(ids) == 1:
		return fmt.Errorf("message 0: id %v: %w", ids[0], engine.ErrDuplicateID)
	default:
		return fmt.Errorf("%d of %d messages: %w", missing, len(ids), engine.ErrDuplicateID)
	}
}

// Headers is the text of headers in JSON.
func Headers(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(headers)
	return string(text), err
}

// Microseconds rounds up, for a delay or a lease must not become shorter.
func Microseconds(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// Fits is how many of msgs, at least one, go into one statement: at most most, with
// payloads of at most bytes together.
func Fits(msgs []engine.Message, most, bytes int) int {
	n, size := 1, len(msgs[0].Payload)
	for n < min(len(msgs), most) && size+len(msgs[n].Payload) <= bytes {
		size += len(msgs[n].Payload)
		n++
	}
	return n
}
