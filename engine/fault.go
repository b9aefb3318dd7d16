package engine

import (
	"fmt"
	"time"
)

// Class says what a failed publish means, and so what the relay does about it.
// The transport decides it from the broker's codes, never from text alone.
type Class uint8

const (
	// Transient: refused for now. Retried after a backoff; charged only by contrast.
	// The unclassified is Transient, so it is the zero value.
	Transient Class = iota
	// Unknown: sent, and the outcome is not known. Retried with the same id;
	// charged only by contrast; counted as a possible duplicate.
	Unknown
	// Rejected: the broker, or the transport before the wire, refused this very
	// message and always will: too large, malformed. Dead at once.
	Rejected
	// DestinationFailed: this destination is missing, unroutable, forbidden or out
	// of reach by itself. It is paused and probed; nothing is charged.
	DestinationFailed
	// Unavailable: every destination of the transport is out of reach, or it
	// refuses our credentials, or it blocks. The transport is paused and probed;
	// nothing is charged. It needs proof that the broker never took the message.
	Unavailable
)

var classNames = [...]string{"transient", "unknown", "rejected", "destination_failed", "unavailable"}

// String returns the class in lower case, as it is stored and shown.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// ParseClass reads what [Class.String] wrote.
func ParseClass(s string) (Class, error) {
	for i, name := range classNames {
		if s == name {
			return Class(i), nil
		}
	}
	return 0, fmt.Errorf("engine: unknown fault class %q", s)
}

// A Fault is one message's failure. It is an error; the caller acts on Class.
type Fault struct {
	Class Class
	// Code is the broker's own code or a short fixed word: "404", "no_route".
	Code string
	// RetryAfter is the broker's wish; the relay waits at least so long. Zero: none.
	RetryAfter time.Duration
	// Err has the detail. It must never contain a secret or a payload.
	Err error
}

// Codes that the engine itself gives.
const (
	CodeBadRow     = "bad_row"         // Rejected: the row can't be decoded
	CodeKillsRelay = "kills_relay"     // Rejected: its relay died max_crashes times with it alone in hand
	CodeNoRoute    = "no_route"        // DestinationFailed: nothing takes this topic, in the relay's routes or in the broker; only the topic is paused
	CodeTimeout    = "timeout"         // Unknown: no confirmation within the confirm timeout
	CodeLost       = "connection_lost" // Unknown, from a transport: the connection was lost before the answer came; Transient: before it was sent
	CodeNack       = "nack"            // Transient, from a transport: refused without a word about the message, a queue may be full; never charged
	CodeWrite      = "write"           // Transient, from a transport: the connection was lost while it was written
	CodeNoReport   = "no_report"       // Unknown: the transport returned without a word about the message
	CodePanic      = "panic"           // Unknown: the transport panicked
	CodeNotSent    = "not_sent"        // Transient, from a transport: its turn did not come before the context ended; nothing of it went out
	CodeStopped    = "key_stopped"     // Transient, from a transport that keeps key order: not sent, since an earlier one of its key failed
)

// Error returns class, code and detail on one line.
func (f *Fault) Error() string {
	s := f.Class.String()
	if f.Code != "" {
		s += " (" + f.Code + ")"
	}
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

// Unwrap returns the detail.
func (f *Fault) Unwrap() error { return f.Err }

// unsent reports whether the message never left, through no fault of anybody's.
func (f *Fault) unsent() bool {
	return f.Class == Transient && (f.Code == CodeStopped || f.Code == CodeNotSent)
}

// maxErrorText bounds what is stored of an error: an operator's hint, not a log.
const maxErrorText = 500

// Text returns the fault as it is stored in last_error: one line, at most 500
// bytes, valid UTF-8 without NUL.
func (f *Fault) Text() string { return storable(f.Error()) }
