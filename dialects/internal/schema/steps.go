package schema

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/outward-dev/outward/dialects/internal/ddl"
)

// A Step is a migration before the names are filled in.
type Step struct {
	Name      string
	MinClient int // the oldest client that runs on the schema after this step
	SQL       string
}

// A Migration is one numbered step of the schema. Steps of one major version of
// this module only add: writers and relays go on while a step runs.
type Migration struct {
	Version int    // the schema's version after the step
	Name    string // "outbox"
	SQL     string // statements, each ended by a semicolon at the end of a line
}

// MigrateOptions say how to migrate. A nil *MigrateOptions means all defaults.
type MigrateOptions struct {
	DryRun bool // change nothing; report what would be done
}

// A MigrateReport says what Migrate found and did, or with DryRun would have done.
type MigrateReport struct {
	From, To  int         // versions of the schema; 0: none
	Applied   []Migration // in their order
	Retention string      // not empty: the retention was changed, from what to what
}

// A File is a migration as another tool wants it.
type File struct{ Name, Content string }

// Migrations fills in the names of steps. The first step also writes keep, with
// durations as the dialect's SQL has them.
func Migrations(steps []Step, fill func(text string) string, keep Retention, duration func(microseconds int64) string) []Migration {
	ms := make([]Migration, len(steps))
	for i, s := range steps {
		version := i + 1
		last := fmt.Sprintf("UPDATE {schema_} SET version = %d, min_client = %d;\n", version, s.MinClient)
		if version == 1 {
			last = fmt.Sprintf("INSERT INTO {schema_} (version, min_client, retention, archive, discard_retention)\nVALUES (%d, %d, %s, '%s', %s);\n",
				version, s.MinClient, duration(keep.Published.Microseconds()), keep.Archive(), duration(keep.Discarded.Microseconds()))
		}
		ms[i] = Migration{Version: version, Name: s.Name, SQL: fill(s.SQL + "\n" + last)}
	}
	return ms
}

// Run does the steps that are missing, each by one, which does ms[version] in a
// transaction (or nothing, if it is done or dry) and returns the version that it
// found, also with an error. What was done stays done after an error.
func Run(ms []Migration, dry bool, one func(ms []Migration, dry bool) (found int, err error)) (r MigrateReport, err error) {
	for first := true; ; first = false {
		found, err := one(ms, dry)
		if first {
			r.From, r.To = found, found
		}
		if err != nil {
			return r, err
		}
		switch {
		case found >= len(ms):
			r.To = found
			return r, nil
		case dry:
			r.Applied, r.To = ms[found:], len(ms)
			return r, nil
		}
		r.Applied, r.To = append(r.Applied, ms[found]), ms[found].Version
	}
}

// Render writes steps for a migration tool. prefix is the tables'; begin and commit
// are what a transaction is wrapped in where the tool does not do so itself.
func Render(format, prefix string, ms []Migration, begin, commit string) ([]File, error) {
	files := make([]File, len(ms))
	for i, m := range ms {
		name, content, err := ddl.Render(format, ddl.Step{Version: m.Version, Name: prefix + m.Name, SQL: m.SQL}, begin, commit)
		if err != nil {
			return nil, err
		}
		files[i] = File{name, content}
	}
	return files, nil
}

// The defaults of names.
const (
	DefaultPrefix = "outbox_"
	DefaultInbox  = "inbox_"
)

// maxPrefix leaves room for the longest name that is made of a prefix, an index's,
// in all databases.
const maxPrefix = 32

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckName reports a name that is no plain identifier.
func CheckName(what, name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%s %q: letters, digits and underscores only, not beginning with a digit", what, name)
	}
	return nil
}

// CheckPrefixes reports prefixes that can't be.
func CheckPrefixes(prefix, inbox string) error {
	var faults []error
	for _, p := range []struct{ what, prefix string }{{"prefix", prefix}, {"inbox prefix", inbox}} {
		faults = append(faults, CheckName(p.what, p.prefix))
		if len(p.prefix) > maxPrefix {
			faults = append(faults, fmt.Errorf("%s %q is %d characters long; %d is the limit", p.what, p.prefix, len(p.prefix), maxPrefix))
		}
	}
	if strings.EqualFold(prefix, inbox) {
		faults = append(faults, fmt.Errorf("prefix and inbox prefix are both %q: their tables would have the same names", inbox))
	}
	return errors.Join(faults...)
}

// Names fills in the names of tables: {messages} stands for the quoted table, {p} and
// {ip} for the bare prefixes, and so on. more are pairs of the dialect's own.
func Names(prefix, inbox string, table func(name string) string, more ...string) *strings.Replacer {
	pairs := append([]string{"{p}", prefix, "{ip}", inbox, "{inbox}", table(inbox + "messages")}, more...)
	for _, name := range []string{"messages", "archive", "lanes", "blocks", "pauses", "schema_", "audit", "all"} {
		pairs = append(pairs, "{"+name+"}", table(prefix+strings.TrimSuffix(name, "_")))
	}
	return strings.NewReplacer(pairs...)
}
