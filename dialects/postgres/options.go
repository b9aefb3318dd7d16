package postgres

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
// the migrations of one table must agree on Schema and Prefix.
type Options struct {
	// Schema of the tables. Default "public".
	Schema string
	// Prefix of the tables' names. Default "outbox_".
	Prefix string
	// InboxPrefix is that of the inbox's table, which Migrate makes as well. Default
	// "inbox_". Several outboxes of one schema may share one.
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
	// SerializeKey locks a message's key until the caller's transaction ends, before
	// its row is numbered. Two transactions that write the same key without another
	// lock in common then get numbers in the order of their commits; without it
	// their messages may go out in either order. It costs one more round trip per
	// Enqueue, and all writers of a key wait for each other.
	SerializeKey bool
	// NotifyInTx sends the wake-up signal for listening relays within the caller's
	// transaction. It is the fastest signal and the dearest: PostgreSQL takes a lock
	// on the whole server's queue from then to the end of COMMIT, which cut the rate
	// of 16 concurrent writers to a fifth. See [Writer.Notify] for the cheap one.
	NotifyInTx bool
	// Wake is called by InTx after a commit that enqueued something: a relay's Wake,
	// say. It must not block.
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
	defaultSchema = "public"
	defaultPrefix = "outbox_"
	defaultInbox  = "inbox_"
	// PostgreSQL cuts longer identifiers silently. The longest name made of a prefix
	// is an index's; the longest of all is the channel's, schema and table.
	maxPrefix  = 32
	maxChannel = 63
)

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// names are the tables of one outbox, checked and quoted.
type names struct {
	schema, prefix string
	replace        *strings.Replacer
}

// names returns the names that o asks for.
func (o *Options) names() (names, error) {
	n := names{schema: defaultSchema, prefix: defaultPrefix}
	if o != nil && o.Schema != "" {
		n.schema = o.Schema
	}
	if o != nil && o.Prefix != "" {
		n.prefix = o.Prefix
	}
	inbox := defaultInbox
	if o != nil && o.InboxPrefix != "" {
		inbox = o.InboxPrefix
	}
	var faults []error
	if !namePattern.MatchString(n.schema) {
		faults = append(faults, fmt.Errorf("schema %q: letters, digits and underscores only, not beginning with a digit", n.schema))
	}
	if !namePattern.MatchString(n.prefix) {
		faults = append(faults, fmt.Errorf("prefix %q: letters, digits and underscores only, not beginning with a digit", n.prefix))
	}
	if len(n.prefix) > maxPrefix {
		faults = append(faults, fmt.Errorf("prefix %q is %d characters long; %d is the limit", n.prefix, len(n.prefix), maxPrefix))
	}
	if !namePattern.MatchString(inbox) || len(inbox) > maxPrefix {
		faults = append(faults, fmt.Errorf("inbox prefix %q: letters, digits and underscores only, not beginning with a digit, at most %d of them", inbox, maxPrefix))
	}
	if n.prefix == inbox {
		faults = append(faults, fmt.Errorf("prefix and inbox prefix are both %q: their tables would have the same names", inbox))
	}
	if len(n.channel()) > maxChannel {
		faults = append(faults, fmt.Errorf("schema and prefix together are too long: %q has more than %d characters", n.channel(), maxChannel))
	}
	if err := errors.Join(faults...); err != nil {
		return names{}, err
	}
	pairs := []string{"{schema}", quote(n.schema), "{p}", n.prefix, "{channel}", n.channel(),
		"{ip}", inbox, "{inbox}", quote(n.schema) + "." + quote(inbox+"messages")}
	for _, table := range []string{"messages", "archive", "lanes", "blocks", "pauses", "schema_", "audit", "all"} {
		real := strings.TrimSuffix(table, "_")
		pairs = append(pairs, "{"+table+"}", quote(n.schema)+"."+quote(n.prefix+real))
	}
	n.replace = strings.NewReplacer(pairs...)
	return n, nil
}

// sql fills in the names: {messages} stands for the quoted table, {p} for the
// bare prefix, and so on.
func (n names) sql(text string) string { return n.replace.Replace(text) }

// table is the table of messages as people write it.
func (n names) table() string { return n.schema + "." + n.prefix + "messages" }

// channel is what Notify and Listen meet on. Channels belong to the database, so
// the schema is part of the name.
func (n names) channel() string { return n.table() }

// quote quotes an identifier. Names come from configuration and are checked by a
// pattern before; quoting keeps upper case and reserved words what they are.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
