// Package uuid7 is the one place that knows where version 7 UUIDs come from.
package uuid7

import "github.com/google/uuid"

// New returns a fresh version 7 UUID. Values made by one process sort in the
// order in which they were made (RFC 9562, section 6.2, method 3).
//
// It panics if the system's random source fails, which since Go 1.24 ends the
// program by itself.
func New() [16]byte { return uuid.Must(uuid.NewV7()) }
