package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Options say where the tables are and how messages get in. A nil *Options and
// every zero field mean the default that stands beside it. A Writer, a Store and
// the migrations of one table must agree on Prefix.
type Options struct {
	// Prefix of the tables' names. Default "outbox_".
	Prefix string
	// InboxPrefix is that of the inbox's table, which Migrate makes as well. Default
	// "inbox_". Several outboxes of one file may share one.
	InboxPrefix string

	// Retention is how long settled messages are kept. It is one value per table and
	// stands in the database: Migrate writes it, and a Store that was told another
	// one refuses to run (see [Store.Check]). nil: whatever stands in the database,
	// which is [DefaultRetention] unless Migrate was told otherwise.
	Retention *Retention

	// Logger is told what a Store had to put off or do again; nil: nobody.
	Logger *slog.Logger

	// MaxPayload is the largest payload that a Writer accepts, in bytes. Default
	// engine.DefaultMaxPayload.
	MaxPayload int
	// Check is asked about every message before the first statement, after the
	// built-in checks: a schema registry, say. It may be called concurrently.
	Check func(engine.Message) error
	// KeyPrefix is put before every ordering key that is not empty: a tenant's name,
	// say.
	KeyPrefix string
	// Wake is called by [Writer.InTx] after a commit that enqueued something, and by
	// [Writer.Wake]: a relay's Wake, say, or [Store.Wake]. It must not block.
	Wake func()
}

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

// DefaultRetention is what Migrate writes into a new table.
var DefaultRetention = Retention{Published: 72 * time.Hour, Discarded: 90 * 24 * time.Hour}

func (r Retention) check() error {
	switch {
	case r.Published < 0:
		return fmt.Errorf("retention of published messages is negative (%v)", r.Published)
	case r.Discarded <= 0:
		return fmt.Errorf("retention of discarded messages must be positive, not %v: a discard leaves a trace", r.Discarded)
	}
	return nil
}

func (r Retention) String() string {
	archive := "full"
	if r.Metadata {
		archive = "metadata"
	}
	return fmt.Sprintf("retention %v, archive %s, discard_retention %v", r.Published, archive, r.Discarded)
}

// lanes is how many lanes the table has. It is part of the lane column's
// expression, and so of the schema.
const lanes = 64

const (
	defaultPrefix      = "outbox_"
	defaultInboxPrefix = "inbox_"
	maxPrefix          = 32
)

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// names are the tables of one outbox, checked and quoted.
type names struct {
	prefix  string
	replace *strings.Replacer
}

// names returns the names that o asks for.
func (o *Options) names() (names, error) {
	n := names{prefix: defaultPrefix}
	if o != nil && o.Prefix != "" {
		n.prefix = o.Prefix
	}
	inbox := defaultInboxPrefix
	if o != nil && o.InboxPrefix != "" {
		inbox = o.InboxPrefix
	}
	err := errors.Join(checkPrefix("prefix", n.prefix), checkPrefix("inbox prefix", inbox))
	if strings.EqualFold(n.prefix, inbox) {
		err = errors.Join(err, fmt.Errorf("prefix and inbox prefix are both %q: their tables would have the same names", inbox))
	}
	if err != nil {
		return names{}, err
	}
	pairs := []string{"{p}", n.prefix, "{ip}", inbox, "{inbox}", quote(inbox + "messages"), "{now}", nowSQL, "{hash}", hashSQL()}
	for _, table := range []string{"messages", "archive", "lanes", "blocks", "pauses", "schema_", "audit", "all"} {
		real := strings.TrimSuffix(table, "_")
		pairs = append(pairs, "{"+table+"}", quote(n.prefix+real))
	}
	n.replace = strings.NewReplacer(pairs...)
	return n, nil
}

func checkPrefix(what, prefix string) error {
	var faults []error
	if !namePattern.MatchString(prefix) {
		faults = append(faults, fmt.Errorf("%s %q: letters, digits and underscores only, not beginning with a digit", what, prefix))
	}
	if strings.HasPrefix(strings.ToLower(prefix), "sqlite_") {
		faults = append(faults, fmt.Errorf("%s %q: SQLite keeps names that begin with sqlite_ to itself", what, prefix))
	}
	if len(prefix) > maxPrefix {
		faults = append(faults, fmt.Errorf("%s %q is %d characters long; %d is the limit", what, prefix, len(prefix), maxPrefix))
	}
	return errors.Join(faults...)
}

// sql fills in the names: {messages} stands for the quoted table, {p} for the
// bare prefix, {now} for the database's clock.
func (n names) sql(text string) string { return n.replace.Replace(text) }

// table is the table of messages as people write it.
func (n names) table() string { return n.prefix + "messages" }

// quote quotes an identifier. Names come from configuration and are checked by a
// pattern before; quoting keeps reserved words what they are.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
