package mysql

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"

	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/engine"
)

// Options say where the tables are and how messages get in. A nil *Options and
// every zero field mean the default that stands beside it. A Writer, a Store and
// the migrations of one table must agree on Prefix.
type Options struct {
	// Prefix of the tables' names. Default "outbox_". The tables are in the database
	// that the connection is in.
	Prefix string
	// InboxPrefix is that of the inbox's table, which Migrate makes as well. Default
	// "inbox_". Several outboxes of one database may share one.
	InboxPrefix string

	// Retention is how long settled messages are kept. It is one value per table and
	// stands in the database: Migrate writes it, and a Store that was told another
	// one refuses to run (see [Store.Check]). nil: whatever stands in the database,
	// which is [DefaultRetention] unless Migrate was told otherwise.
	Retention *Retention

	// Logger is told what a Store had to put off or do again; nil: nobody.
	Logger *slog.Logger

	// MaxPayload is the largest payload that a Writer accepts, in bytes. Default
	// engine.DefaultMaxPayload. The server's max_allowed_packet is another limit.
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

// Retention is how long settled messages stay in the archive: published ones (0:
// nothing of them is kept), whole or only their metadata, and discarded ones.
type Retention = schema.Retention

// DefaultRetention is what Migrate writes into a new table.
var DefaultRetention = schema.Default

const lanes = schema.Lanes

// binary is the character set of names, keys and ids. The collations that go by the
// bytes alone take trailing blanks for nothing, but for these.
const binary = "CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M!100600 utf8mb4_nopad_bin */"

// names are the tables of one outbox, checked and quoted.
type names struct {
	prefix  string
	replace *strings.Replacer
}

// names returns the names that o asks for.
func (o *Options) names() (names, error) {
	if o == nil {
		o = &Options{}
	}
	prefix, inbox := cmp.Or(o.Prefix, schema.DefaultPrefix), cmp.Or(o.InboxPrefix, schema.DefaultInbox)
	if err := schema.CheckPrefixes(prefix, inbox); err != nil {
		return names{}, err
	}
	return names{prefix, schema.Names(prefix, inbox, quote, "{now}", nowSQL, "{bin}", binary,
		"{i_due}", quote(prefix+"messages_due"), "{i_parked}", quote(prefix+"messages_parked"),
		"{i_held}", quote(prefix+"messages_held"), "{i_entries}", quote(prefix+"blocks_seq"), "{i_recorded}", quote(inbox+"messages_recorded"))}, nil
}

// sql fills in the names: {messages} stands for the quoted table, {p} for the
// bare prefix, {now} for the database's clock, {i_due} for an index.
func (n names) sql(text string) string { return n.replace.Replace(text) }

// table is the table of messages as people write it.
func (n names) table() string { return n.prefix + "messages" }

// quote quotes an identifier, which is a plain name. Backquotes mean the same in every
// sql_mode.
func quote(name string) string { return fmt.Sprintf("`%s`", name) }
