// Package schema is what dialects know of the schema of an outbox, whatever the
// database: its steps and versions, and the settings that stand in it.
package schema

import (
	"fmt"
	"time"
)

// Lanes is how many lanes a table has. It is part of the lane column's expression,
// and so of the schema.
const Lanes = 64

// Retention is how long settled messages stay in the archive.
type Retention struct {
	// Published messages; 0: nothing of them is kept.
	Published time.Duration
	// Metadata drops payload and headers of what goes to the archive. Such messages
	// can't be replayed.
	Metadata bool
	// Discarded messages, which are always kept for some time.
	Discarded time.Duration
}

// Default is the retention of a new table.
var Default = Retention{Published: 72 * time.Hour, Discarded: 90 * 24 * time.Hour}

// Check reports a retention that can't be.
func (r Retention) Check() error {
	switch {
	case r.Published < 0:
		return fmt.Errorf("retention of published messages is negative (%v)", r.Published)
	case r.Discarded <= 0:
		return fmt.Errorf("retention of discarded messages must be positive, not %v: a discard leaves a trace", r.Discarded)
	}
	return nil
}

func (r Retention) String() string {
	return fmt.Sprintf("retention %v, archive %s, discard_retention %v", r.Published, r.Archive(), r.Discarded)
}

// Archive is the word for what the archive keeps, as it stands in the schema table.
func (r Retention) Archive() string {
	if r.Metadata {
		return "metadata"
	}
	return "full"
}

// FromRow is the retention as it stands in the schema table, in microseconds.
func FromRow(published int64, archive string, discarded int64) Retention {
	return Retention{Published: time.Duration(published) * time.Microsecond, Metadata: archive == "metadata",
		Discarded: time.Duration(discarded) * time.Microsecond}
}
