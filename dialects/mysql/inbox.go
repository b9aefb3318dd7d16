package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/inbox"
)

// DefaultInboxRetention is how long an Inbox knows a message unless its options say
// otherwise.
const DefaultInboxRetention = 30 * 24 * time.Hour

// An Inbox recognises messages that a consumer has had the effect of. It holds no
// connection and may be shared. Its table is made by [Migrate], with the outbox's.
type Inbox struct {
	retention            time.Duration
	record, purged, wipe string
}

// InboxOptions say where the table is. A nil *InboxOptions and every zero field mean
// the default that stands beside it.
type InboxOptions struct {
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
	n, err := (&Options{InboxPrefix: opts.Prefix}).names()
	if opts.Retention < 0 {
		err = errors.Join(err, fmt.Errorf("retention is negative (%v)", opts.Retention))
	}
	if err != nil {
		return nil, fmt.Errorf("mysql: new inbox: %w", err)
	}
	in := &Inbox{retention: opts.Retention, record: n.sql(recordSQL), purged: n.sql(purgedInboxSQL), wipe: n.sql(purgeInboxSQL)}
	if in.retention == 0 {
		in.retention = DefaultInboxRetention
	}
	return in, nil
}

const (
	// inboxChunk is how many records one transaction purges at most.
	inboxChunk = 1000

	// A repeat is told by the error of the primary key, which leaves the transaction
	// usable. INSERT IGNORE would cut keys that are too long, and the count of ON DUPLICATE
	// KEY UPDATE depends on how the connection was opened.
	recordSQL = `INSERT INTO {inbox} (consumer, message) VALUES (?, ?)`

	// What is purged is found and locked by the index of times, and deleted by its key: in
	// a small table a plain DELETE looks at all records, and waits for the consumer that
	// has just made one.
	purgedInboxSQL = `
SELECT i.consumer, i.message FROM {inbox} i FORCE INDEX ({i_recorded}) WHERE i.recorded_at < {now} - INTERVAL ? MICROSECOND
 ORDER BY i.recorded_at LIMIT ? FOR UPDATE SKIP LOCKED`
	purgeInboxSQL = `DELETE FROM {inbox} WHERE consumer = ? AND message = ?`
)

// Record records a message in the caller's transaction, before anything else is
// done for it, and reports whether it is fresh. If it is not, its effect was
// committed before: do nothing, and acknowledge. If tx is rolled back the message is
// fresh again.
//
// A second consumer of the same message waits until the first one's transaction ends.
// If that is rolled back while two wait, the server ends one of them as a deadlock
// (1213): roll back and let the broker deliver again, as [Inbox.Process] does.
func (in *Inbox) Record(ctx context.Context, tx SQLTx, key inbox.Key) (fresh bool, err error) {
	if tx == nil {
		return false, errors.New("mysql: record: the transaction is nil")
	}
	k, err := key.Normal()
	if err != nil {
		return false, fmt.Errorf("mysql: record: %w", err)
	}
	_, err = tx.ExecContext(ctx, in.record, k.Consumer, k.Message)
	switch {
	case err == nil:
		return true, nil
	case number(err) == errDuplicate:
		return false, nil
	default:
		return false, fmt.Errorf("mysql: record: %w", err)
	}
}

// Process opens a READ COMMITTED transaction, records the message, runs fn if it is
// fresh, and commits; after a deadlock again. Acknowledge the message if and only if
// the error is nil. After an error or a panic of fn everything is rolled back, and the
// message is fresh again. fn must do what it does in tx; it may enqueue there. Of two
// that process a message at once the second waits, and finds a repeat if the first
// commits.
//
// An unknown outcome of COMMIT wraps engine.ErrCommitUnknown: the message comes
// again, and is then fresh or a repeat.
func (in *Inbox) Process(ctx context.Context, db *sql.DB, key inbox.Key, fn func(ctx context.Context, tx *Tx) error) (inbox.Outcome, error) {
	if _, err := key.Normal(); err != nil {
		return 0, fmt.Errorf("mysql: process: %w", err)
	}
	outcome := inbox.Outcome(0)
	_, err := inTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(tx *Tx) error {
		fresh, err := in.Record(ctx, tx, key)
		switch {
		case err != nil:
			return err
		case !fresh:
			outcome = inbox.Repeat
			return nil
		}
		outcome = inbox.Fresh
		return fn(ctx, tx)
	})
	if err != nil {
		return 0, err
	}
	return outcome, nil
}

// Purge deletes records that are older than the retention, at most limit of them,
// and returns how many went.
func (in *Inbox) Purge(ctx context.Context, db *sql.DB, limit int) (n int, err error) {
	if limit < 1 {
		return 0, fmt.Errorf("mysql: purge inbox: limit %d must be positive", limit)
	}
	err = write(ctx, db, nil, func(t *tx) error {
		var old []inbox.Key
		err := t.query("purged", in.purged, func(rows *sql.Rows) error {
			var k inbox.Key
			err := rows.Scan(&k.Consumer, &k.Message)
			old = append(old, k)
			return err
		}, writing.Microseconds(in.retention), min(limit, inboxChunk))
		if err != nil {
			return err
		}
		for _, k := range old {
			if _, err := t.exec("purge inbox", in.wipe, k.Consumer, k.Message); err != nil {
				return err
			}
		}
		n = len(old)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("mysql: %w", err)
	}
	return n, nil
}
