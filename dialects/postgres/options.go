package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/outward-dev/outward/dialects/internal/schema"
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

// Retention is how long settled messages stay in the archive: published ones (0:
// nothing of them is kept), whole or only their metadata, and discarded ones.
type Retention = schema.Retention

// DefaultRetention is what Migrate writes into a new table.
var DefaultRetention = schema.Default

const lanes = schema.Lanes

const (
	defaultSchema = "public"
	// PostgreSQL cuts longer identifiers silently. The longest name is the channel's,
	// schema and table.
	maxChannel = 63
)

// names are the tables of one outbox, checked and quoted.
type names struct {
	schema, prefix string
	replace        *strings.Replacer
}

// names returns the names that o asks for.
func (o *Options) names() (names, error) {
	if o == nil {
		o = &Options{}
	}
	n := names{schema: cmp.Or(o.Schema, defaultSchema), prefix: cmp.Or(o.Prefix, schema.DefaultPrefix)}
	inbox := cmp.Or(o.InboxPrefix, schema.DefaultInbox)
	err := errors.Join(schema.CheckName("schema", n.schema), schema.CheckPrefixes(n.prefix, inbox))
	if len(n.channel()) > maxChannel {
		err = errors.Join(err, fmt.Errorf("schema and prefix together are too long: %q has more than %d characters", n.channel(), maxChannel))
	}
	if err != nil {
		return names{}, err
	}
	table := func(name string) string { return quote(n.schema) + "." + quote(name) }
	n.replace = schema.Names(n.prefix, inbox, table, "{schema}", quote(n.schema), "{channel}", n.channel())
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
