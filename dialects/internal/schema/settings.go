package schema

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outward-dev/outward/engine"
)

// The newest version of the schema that this module knows, and the oldest, the same in
// every dialect. It runs on a schema whose min_client is at most Version, and whose
// version is at least oldest.
const (
	Version = 2
	oldest  = 1
)

// Errors of a database that no relay may work on.
var (
	ErrNone    = errors.New("the outbox has no schema here; run: outward migrate")
	ErrVersion = errors.New("wrong schema version")
)

// Settings are the one row of the schema table.
type Settings struct {
	Version, MinClient int
	Retention          Retention

	read time.Time // by this process's clock
}

// Usable reports whether this module may work on the schema of a table.
func (s Settings) Usable(table string) error {
	switch {
	case s.MinClient > Version:
		return fmt.Errorf("%w: the schema of %s needs client version %d, this is %d; use a newer version of Outward",
			ErrVersion, table, s.MinClient, Version)
	case s.Version < oldest:
		return fmt.Errorf("%w: the schema of %s has version %d, the oldest supported one is %d; run: outward migrate",
			ErrVersion, table, s.Version, oldest)
	}
	return nil
}

// maxAge is how old known settings may be. They change only when somebody migrates.
const maxAge = 30 * time.Second

// Known keeps the settings of a table for those who need them in every call. The
// zero value knows nothing. It may be used concurrently.
type Known struct {
	last   atomic.Pointer[Settings]
	asking sync.Mutex
}

// Current returns the settings, and asks by read when they are old. One caller asks;
// the others go on with what is known.
func (k *Known) Current(ctx context.Context, table string, read func(ctx context.Context) (Settings, error)) (Settings, error) {
	known := k.last.Load()
	if known != nil {
		if time.Since(known.read) < maxAge || !k.asking.TryLock() {
			return *known, nil
		}
		defer k.asking.Unlock()
	}
	have, err := read(ctx)
	if err == nil {
		err = have.Usable(table)
	}
	if err != nil {
		return Settings{}, err
	}
	have.read = time.Now()
	k.last.Store(&have)
	return have, nil
}

// An Adder takes a finding.
type Adder = func(level engine.Level, code, fix, format string, args ...any)

// Findings asks parts for what they find, until one says to stop.
func Findings(parts ...func(add Adder) (stop bool)) []engine.Finding {
	var found []engine.Finding
	add := func(level engine.Level, code, fix, format string, args ...any) {
		found = append(found, engine.Finding{Level: level, Code: code, Fix: fix, Text: fmt.Sprintf(format, args...)})
	}
	for _, part := range parts {
		if part(add) {
			break
		}
	}
	return found
}

// Check reports what the settings of a table, or the error of reading them, mean to a
// relay that was configured with want (nil: with nothing). failed files errors that
// are not about the schema.
func Check(add Adder, have Settings, err error, want *Retention, table string, failed func(err error)) (stop bool) {
	switch {
	case errors.Is(err, ErrNone):
		add(engine.Fatal, "schema_missing", "run: outward migrate", "%v", err)
		return true
	case err != nil:
		failed(err)
		return true
	}
	if err := have.Usable(table); err != nil {
		fix := "run: outward migrate"
		if have.MinClient > Version {
			fix = "use a newer version of Outward"
		}
		add(engine.Fatal, "schema_version", fix, "%v", err)
		return true
	}
	if have.Version < Version {
		add(engine.Note, "schema_older", "run: outward migrate", "the schema has version %d, this client knows version %d", have.Version, Version)
	}
	if want != nil && *want != have.Retention {
		add(engine.Fatal, "retention", "run: outward migrate (it writes the configured values), or change the configuration",
			"%s is set up with %v, this relay is configured with %v", table, have.Retention, *want)
	}
	return false
}
