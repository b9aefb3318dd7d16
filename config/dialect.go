package config

import (
	"context"
	"regexp"
	"strings"

	"github.com/outward-dev/outward/engine"
)

// A dialect reads the keys of a store.
type dialect struct {
	name string
	// read reads the keys beside dialect and returns nil after a fault.
	read func(m *mapping) table
}

// dialects are those that are built in.
var dialects = []dialect{postgresDialect, mysqlDialect, mariadbDialect, sqliteDialect}

// dialectsToCome are named by the documentation and not built in yet.
var dialectsToCome = []string{"sqlserver"}

// identifierPattern is what schemas and prefixes look like.
var identifierPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

const identifierWords = "a name of letters, digits and \"_\" that doesn't begin with a digit"

// blame is the first of some keys that the file has: where to report what is wrong
// with several.
func blame(m *mapping, keys ...string) string {
	for _, key := range keys {
		if m.has(key) {
			return key
		}
	}
	return keys[0]
}

// oneLine is an error of several lines as a fault has it.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

func dialectOf(name string) *dialect {
	for i := range dialects {
		if dialects[i].name == name {
			return &dialects[i]
		}
	}
	return nil
}

func dialectNames() []string {
	var names []string
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return names
}

// A Database is a relay's table, opened. It may be shared.
type Database interface {
	// Store returns the store, with the abilities that its dialect has.
	Store() engine.Store
	// Version returns the version of the schema that stands in the database, 0 for
	// none, and the one that Migrate would bring it to.
	Version(ctx context.Context) (have, newest int, err error)
	// Migrate brings the schema up to date, or says what it would do.
	Migrate(ctx context.Context, dryRun bool) (Migration, error)
	// Close closes the connections. It waits until none is in use.
	Close()
}

// A Migration says what was done to a schema.
type Migration struct {
	From, To  int
	Steps     []string // "1 outbox"
	Retention string   // not empty: the table's settings were changed, from what to what
}

// A File is a migration as another tool wants it.
type File struct{ Name, Content string }

// Open makes the way to the relay's table. It does no I/O: what is wrong with the
// database shows when it is used.
func (r *Relay) Open() (Database, error) { return r.table.open(r.Name, nil) }

// Render writes the relay's migrations for another tool.
func (r *Relay) Render(format string) ([]File, error) { return r.table.render(format) }

// Transports returns the names of the relay's transports, in the order of the file.
func (r *Relay) Transports() []string {
	names := make([]string, len(r.transports))
	for i, t := range r.transports {
		names[i] = t.name
	}
	return names
}
