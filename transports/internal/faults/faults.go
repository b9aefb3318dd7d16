// Package faults has what transports say of failures in the same words.
package faults

import (
	"context"
	"fmt"

	"github.com/outward-dev/outward/engine"
)

// Codes that mean the same in every transport. What else one has is its own, and
// so are the broker's numbers.
const (
	NotSent   = engine.CodeNotSent // Transient: the time was over before it was its turn
	Timeout   = engine.CodeTimeout // Unknown, or Unavailable while connecting
	Lost      = engine.CodeLost    // Unknown for what was sent, Unavailable otherwise
	Malformed = "malformed"        // Rejected: the protocol has no way to write it
	TooLarge  = "too_large"        // Rejected: more than the broker takes
	Closed    = "closed"           // Unavailable: Close was called
	Refused   = "refused"          // Unavailable: nobody listens
	DNS       = "dns"              // Unavailable: the host name is not known
	TLS       = "tls"              // Unavailable: no TLS, or a certificate that is not trusted
	Auth      = "auth"             // Unavailable: the broker does not know us
	Handshake = "handshake"        // Unavailable: whoever listens there does not speak the protocol
)

// New is a fault.
func New(class engine.Class, code string, err error) *engine.Fault {
	return &engine.Fault{Class: class, Code: code, Err: err}
}

// Newf is [New] with [fmt.Errorf].
func Newf(class engine.Class, code, format string, args ...any) *engine.Fault {
	return New(class, code, fmt.Errorf(format, args...))
}

// Again copies a fault that is told of several messages: each may be changed by
// whoever gets it.
func Again(f *engine.Fault) *engine.Fault {
	copied := *f
	return &copied
}

// NewNotSent says that ctx ended before it was a message's turn. kind begins the
// text, as the name of the transport's package does everywhere.
func NewNotSent(kind string, ctx context.Context) *engine.Fault {
	return Newf(engine.Transient, NotSent, "%s: not sent: %w", kind, context.Cause(ctx))
}

// NewClosed says that the transport is closed.
func NewClosed(kind string) *engine.Fault {
	return Newf(engine.Unavailable, Closed, "%s: the transport is closed", kind)
}
