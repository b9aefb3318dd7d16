package config

import (
	"slices"
	"time"
)

// retention is what every dialect's Retention is, field by field, so that one can be
// converted into the other.
type retention struct {
	Published time.Duration
	Metadata  bool
	Discarded time.Duration
}

// readRetention reads what is kept in the database as one value per table. Where the
// file says nothing of it, whatever stands there is right.
func readRetention(m *mapping, def retention) *retention {
	keys := []string{"retention", "archive", "discard_retention"}
	if !slices.ContainsFunc(keys, m.has) {
		m.known = append(m.known, keys...)
		return nil
	}
	return &retention{
		Published: m.duration("retention", def.Published, time.Second, longest, true),
		Metadata:  m.one("archive", "full", "full", "metadata") == "metadata",
		Discarded: m.duration("discard_retention", def.Discarded, time.Minute, longest, false),
	}
}
