package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/inbox"
)

// DefaultInboxRetention is how long an Inbox knows a message unless its options say
// otherwise.
const DefaultInboxRetention = 30 * 24 * time.Hour

// An Inbox recognises messages that a consumer has had the effect of. It holds no
// connection and may be shared. Its table is made by [Migrate], with the outbox's.
type Inbox struct {
	retention    time.Duration
	record, wipe string
}

// InboxOptions say where the table is. A nil *InboxOptions and every zero field mean
// the default that stands beside it.
type InboxOptions struct {
	// Schema of the table. Default "public".
	Schema string
	// Prefix of the table's name, as in Options.InboxPrefix. Default "inbox_".
	Prefix string
	// Retention is how long a message is recognised, at the least. It must be longer
	// than a broker, a dead letter queue or an operator may take to deliver a message
	// again. Default [DefaultInboxRetention].
	Retention time.Duration
}

// NewInbox returns an Inbox on the table that opts name. It does no I/O.
func NewInbox(opts *InboxOptions) (*Inbox, error) {
	if opts == nil {
		opts = &InboxOptions{}
	}
	n, err := (&Options{Schema: opts.Schema, InboxPrefix: opts.Prefix}).names()
	if opts.Retention < 0 {
		err = errors.Join(err, fmt.Errorf("retention is negative (%v)", opts.Retention))
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: new inbox: %w", err)
	}
	in := &Inbox{retention: opts.Retention, record: n.sql(recordSQL), wipe: n.sql(purgeInboxSQL)}
	if in.retention == 0 {
		in.retention = DefaultInboxRetention
	}
	return in, nil
}

const (
	// A second consumer of the same message waits here until the first one's transaction
	// ends. Without ON CONFLICT the repeat would be an error that aborts the caller's
	// transaction.
	recordSQL = `INSERT INTO {inbox} (consumer, message) VALUES ($1::text, $2::text) ON CONFLICT (consumer, message) DO NOTHING`

	purgeInboxSQL = `
DELETE FROM {inbox} WHERE ctid = ANY (ARRAY(
  SELECT i.ctid FROM {inbox} i WHERE i.recorded_at < now() - $1::bigint * interval '1 microsecond'
   ORDER BY i.recorded_at LIMIT $2::integer FOR UPDATE SKIP LOCKED))`

	// inboxChunk is how many records one transaction purges at most.
	inboxChunk = 10_000
)

// Record records a message in the caller's transaction, before anything else is
// done for it, and reports whether it is fresh. If it is not, its effect was
// committed before: do nothing, and acknowledge. If tx is rolled back the message is
// fresh again.
//
// Use READ COMMITTED: in a stricter isolation a repeat that was committed while this
// one waited is a serialization failure. A transaction that records several messages
// must take them in one order, or two of them may deadlock.
func (in *Inbox) Record(ctx context.Context, tx pgx.Tx, key inbox.Key) (fresh bool, err error) {
	if tx == nil {
		return false, errors.New("postgres: record: the transaction is nil")
	}
	return in.recordBy(key, func(query string, args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, query, args...)
		return tag.RowsAffected(), err
	})
}

// RecordSQL is [Inbox.Record] for a transaction of database/sql.
func (in *Inbox) RecordSQL(ctx context.Context, tx SQLTx, key inbox.Key) (fresh bool, err error) {
	if tx == nil {
		return false, errors.New("postgres: record: the transaction is nil")
	}
	return in.recordBy(key, func(query string, args ...any) (int64, error) {
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	})
}

func (in *Inbox) recordBy(key inbox.Key, exec exec) (fresh bool, err error) {
	k, err := key.Normal()
	if err != nil {
		return false, fmt.Errorf("postgres: record: %w", err)
	}
	n, err := exec(in.record, k.Consumer, k.Message)
	if err != nil {
		return false, fmt.Errorf("postgres: record: %w", err)
	}
	return n > 0, nil
}

// Process opens a READ COMMITTED transaction, records the message, runs fn if it is
// fresh, and commits. Acknowledge the message if and only if the error is nil. After
// an error or a panic of fn everything is rolled back, and the message is fresh
// again. fn must do what it does in tx; it may enqueue there. Of two that process a
// message at once the second waits, and finds a repeat if the first commits.
//
// An unknown outcome of COMMIT wraps engine.ErrCommitUnknown: the message comes
// again, and is then fresh or a repeat. Nothing is tried again here; the broker does
// that.
func (in *Inbox) Process(ctx context.Context, db TxBeginner, key inbox.Key, fn func(ctx context.Context, tx pgx.Tx) error) (inbox.Outcome, error) {
	if _, err := key.Normal(); err != nil {
		return 0, fmt.Errorf("postgres: process: %w", err)
	}
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, fmt.Errorf("postgres: process: begin: %w", err)
	}
	defer rollback(ctx, tx)
	fresh, err := in.Record(ctx, tx, key)
	if err != nil {
		return 0, err
	}
	if !fresh {
		return inbox.Repeat, nil // there is nothing to commit
	}
	if err := fn(ctx, tx); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("postgres: process: commit not sent: %w", err)
	}
	err = tx.Commit(ctx)
	switch {
	case err == nil:
		return inbox.Fresh, nil
	case rolledBack(err):
		return 0, fmt.Errorf("postgres: process: commit: %w", err)
	default:
		return 0, fmt.Errorf("postgres: process: %w: %w", engine.ErrCommitUnknown, err)
	}
}

// Purge deletes records that are older than the retention, at most limit of them,
// and returns how many went. Several may purge at once.
func (in *Inbox) Purge(ctx context.Context, db Execer, limit int) (int, error) {
	if limit < 1 {
		return 0, fmt.Errorf("postgres: purge inbox: limit %d must be positive", limit)
	}
	tag, err := db.Exec(ctx, in.wipe, writing.Microseconds(in.retention), min(limit, inboxChunk))
	if err != nil {
		return 0, fmt.Errorf("postgres: purge inbox: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
