package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a message that every dialect keeps. They are the table's: text that
// doesn't fit is an error before the first statement, never cut.
const (
	MaxNameLength      = 255      // characters of topic, key, type, ids and content type
	MaxHeaderKeyLength = 255      // bytes of a header's name: an AMQP short string
	DefaultMaxPayload  = 16 << 20 // bytes: RabbitMQ 4 accepts no more by default
	MaxDelay           = 100 * 365 * 24 * time.Hour
)

// Check reports everything that is wrong with m and can be known without a
// database, all faults joined. maxPayload is in bytes; 0 means
// [DefaultMaxPayload]. The errors name the field and never contain the payload.
func (m *Message) Check(maxPayload int) error {
	if maxPayload <= 0 {
		maxPayload = DefaultMaxPayload
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	name := func(field, value string) {
		switch {
		case !utf8.ValidString(value):
			fault("%s is not valid UTF-8", field)
		case strings.ContainsRune(value, 0):
			fault("%s contains a NUL character, which databases cannot store in text", field)
		case utf8.RuneCountInString(value) > MaxNameLength:
			fault("%s is %d characters long; the table holds %d", field, utf8.RuneCountInString(value), MaxNameLength)
		}
	}
	if m.Topic == "" {
		fault("topic is empty; routes need it to find a destination")
	}
	if m.Type == "" {
		fault("type is empty; name the message's contract and version, as in \"order.submitted.v1\"")
	}
	name("topic", m.Topic)
	name("key", m.Key)
	name("type", m.Type)
	name("aggregate type", m.AggregateType)
	name("aggregate id", m.AggregateID)
	name("correlation id", m.CorrelationID)
	name("content type", m.ContentType)
	if m.AggregateVersion < 0 {
		fault("aggregate version is negative (%d)", m.AggregateVersion)
	}
	for k, v := range m.Headers {
		switch {
		case k == "":
			fault("a header has an empty name")
		case len(k) > MaxHeaderKeyLength:
			fault("the name of header %.40q… is %d bytes long; %d is the limit", k, len(k), MaxHeaderKeyLength)
		case !utf8.ValidString(k) || strings.ContainsRune(k, 0):
			fault("the name of header %.40q is not UTF-8 text without NUL", k)
		case !utf8.ValidString(v) || strings.ContainsRune(v, 0):
			fault("the value of header %.40q is not UTF-8 text without NUL", k)
		}
	}
	if len(m.Payload) > maxPayload {
		fault("payload is %d bytes long; the limit is %d", len(m.Payload), maxPayload)
	}
	if !m.OccurredAt.IsZero() && (m.OccurredAt.Year() < 1 || m.OccurredAt.Year() > 9999) {
		fault("occurred at lies in the year %d; 1 to 9999 can be stored", m.OccurredAt.Year())
	}
	switch {
	case m.Delay < 0:
		fault("delay is negative (%v)", m.Delay)
	case m.Delay > MaxDelay:
		fault("delay is %v; the limit is 100 years", m.Delay)
	}
	return errors.Join(faults...)
}

// Enqueue's errors, the same for every dialect.
var (
	// ErrDuplicateID: a message with this ID is already waiting in the table. The
	// caller's transaction stays usable, and nothing was enqueued by this call.
	ErrDuplicateID = errors.New("a message with this id is already waiting")
	// ErrCommitUnknown: COMMIT was sent and its answer was lost. The transaction
	// may have taken effect or not; only looking can tell.
	ErrCommitUnknown = errors.New("the outcome of COMMIT is unknown")
)

// CheckAll checks a batch as Enqueue does: [Message.Check] for each, then extra
// where it is not nil, all faults joined, each with the index of its message.
// Two messages with the same non-zero ID are a fault of the second.
func CheckAll(msgs []Message, maxPayload int, extra func(Message) error) error {
	var faults []error
	seen := make(map[ID]int, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		err := m.Check(maxPayload)
		if err == nil && extra != nil {
			err = extra(*m)
		}
		if !m.ID.IsZero() {
			if first, dup := seen[m.ID]; dup {
				err = errors.Join(err, fmt.Errorf("id %v is also that of message %d: %w", m.ID, first, ErrDuplicateID))
			} else {
				seen[m.ID] = i
			}
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("message %d: %w", i, err))
		}
	}
	return errors.Join(faults...)
}
