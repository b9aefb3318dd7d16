package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/engine"
)

const (
	// patience bounds how long a transaction is tried again that others were in the way
	// of; ctx may end it before.
	patience = 10 * time.Second
	// The least and the most that it pauses in between, so that those who collided do
	// not come back in step.
	minPause = time.Millisecond
	maxPause = 50 * time.Millisecond
	// endTimeout bounds what is done after the caller's ctx may have ended.
	endTimeout = 2 * time.Second
)

// Numbers of errors.
const (
	errDuplicate   = 1062 // ER_DUP_ENTRY
	errLockWait    = 1205 // ER_LOCK_WAIT_TIMEOUT: only the statement was rolled back
	errDeadlock    = 1213 // ER_LOCK_DEADLOCK: all was
	errChanged     = 1020 // ER_CHECKREAD: MariaDB's snapshot isolation
	errNoTable     = 1146 // ER_NO_SUCH_TABLE
	errGroupCommit = 3101 // ER_TRANSACTION_ROLLBACK_DURING_COMMIT
	errReadOnly    = 1290 // ER_OPTION_PREVENTS_STATEMENT: --read-only
	errReadOnlyTx  = 1792 // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	errInnoRO      = 1874 // ER_INNODB_READ_ONLY
	errReadOnlyMDB = 1836 // ER_READ_ONLY_MODE
)

// number is that of a server's error; 0 if err is none.
func number(err error) uint16 {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return 0
	}
	return e.Number
}

// again reports whether the database asks for a transaction to be run again. A lock
// wait that timed out has rolled back its statement only: whoever calls rolls back
// the rest.
func again(err error) bool {
	switch number(err) {
	case errLockWait, errDeadlock, errChanged, errGroupCommit:
		return true
	}
	return false
}

// tx is a READ COMMITTED transaction of the Store's own. With a stricter isolation
// the reads of a claim would see the table as it was before the lanes were locked,
// and gap locks would stop producers.
type tx struct {
	ctx  context.Context
	tx   *sql.Tx
	hook func(name string) error // of tests; may be nil
}

// write runs f in a transaction and commits it; again, from nothing, while the
// database asks for that.
func (s *Store) write(ctx context.Context, f func(t *tx) error) error {
	return write(ctx, s.db, s.hook, f)
}

func write(ctx context.Context, db *sql.DB, hook func(string) error, f func(t *tx) error) error {
	return retried(ctx, func() error { return writeOnce(ctx, db, hook, f) })
}

func writeOnce(ctx context.Context, db *sql.DB, hook func(string) error, f func(t *tx) error) error {
	t := &tx{ctx: ctx, hook: hook}
	if err := t.called("begin"); err != nil {
		return err
	}
	var err error
	if t.tx, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}); err != nil {
		return err
	}
	defer t.tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back, and a dead connection has
	if err := f(t); err != nil {
		return err
	}
	return t.commit()
}

// commit commits. An error that does not say that nothing was committed leaves the
// outcome unknown.
func (t *tx) commit() error {
	if err := t.called("commit"); err != nil {
		return err
	}
	err := t.tx.Commit()
	if err == nil && t.hook != nil {
		err = t.hook("committed") // a test that loses the answer
	}
	if err != nil && !again(err) {
		return fmt.Errorf("%w: %w", engine.ErrCommitUnknown, err)
	}
	return err
}

// called tells the hook of a test that a statement comes.
func (t *tx) called(name string) error {
	if t.hook != nil {
		if err := t.hook(name); err != nil {
			return err
		}
	}
	return t.ctx.Err()
}

// exec runs a statement and says how many rows it matched or changed, by how the
// connection was opened: use it for nothing but zero and more.
func (t *tx) exec(name, query string, args ...any) (int, error) {
	if err := t.called(name); err != nil {
		return 0, err
	}
	res, err := t.tx.ExecContext(t.ctx, text(query, args...))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// query runs a statement and calls scan for each row of its result.
func (t *tx) query(name, query string, scan func(rows *sql.Rows) error, args ...any) error {
	if err := t.called(name); err != nil {
		return err
	}
	return queryRows(t.ctx, t.tx, name, query, scan, args...)
}

func queryRows(ctx context.Context, q sqlrows.Queryer, name, query string, scan func(rows *sql.Rows) error, args ...any) error {
	return sqlrows.Query(ctx, q, name, text(query, args...), scan)
}

// raw is SQL that stands for itself among the arguments of text.
type raw string

// text writes the arguments into a statement, each for a question mark. Sent so, a
// statement is one round trip and leaves nothing prepared behind; the driver's own way
// (interpolateParams) is the caller's to choose. Numbers and hexadecimal digits are all
// that is written, so nothing depends on the session's sql_mode or character set, and
// no text can end a literal.
func text(query string, args ...any) string {
	if len(args) == 0 {
		return query
	}
	var b strings.Builder
	for _, arg := range args {
		before, after, _ := strings.Cut(query, "?")
		query = after
		if _, is := arg.([]int64); !is {
			b.WriteString(before)
		}
		switch v := arg.(type) {
		case raw:
			b.WriteString(string(v))
		case int:
			b.WriteString(strconv.Itoa(v))
		case int16:
			b.WriteString(strconv.Itoa(int(v)))
		case int32:
			b.WriteString(strconv.Itoa(int(v)))
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		case bool:
			if v {
				b.WriteByte('1')
			} else {
				b.WriteByte('0')
			}
		case string:
			fmt.Fprintf(&b, "_utf8mb4 x'%x'", v)
		case engine.ID:
			fmt.Fprintf(&b, "x'%x'", v[:])
		case []int16:
			join(&b, v, func(n int16) string { return strconv.Itoa(int(n)) })
		case []int64:
			query = longIn(&b, before, query, v)
		case []engine.ID:
			join(&b, v, func(id engine.ID) string { return fmt.Sprintf("x'%x'", id[:]) })
		default:
			panic(fmt.Sprintf("mysql: no literal for %T", arg)) // a mistake of this package
		}
	}
	b.WriteString(query)
	return b.String()
}

// maxIn is how many numbers one IN may have. From a thousand on MariaDB makes a derived
// table of them (in_predicate_conversion_threshold), joins it to all rows of the other,
// and locks these.
const maxIn = 900

// longIn writes a list of numbers for the IN at the end of before, and more than maxIn as
// several: a IN (…) OR a IN (…), which is a range of the index like one of them. It
// returns what is left of after.
func longIn(b *strings.Builder, before, after string, list []int64) (rest string) {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	if len(list) <= maxIn {
		b.WriteString(before)
		join(b, list, number)
		return after
	}
	head := strings.TrimSuffix(before, " IN (")
	at := strings.LastIndexAny(head, " (") + 1
	column := head[at:]
	b.WriteString(head[:at] + "(")
	for i := 0; i < len(list); i += maxIn {
		if i > 0 {
			b.WriteString(" OR ")
		}
		b.WriteString(column + " IN (")
		join(b, list[i:min(i+maxIn, len(list))], number)
		b.WriteString(")")
	}
	return after // its parenthesis closes ours
}

// join writes a list for IN; an empty one matches nothing.
func join[T any](b *strings.Builder, values []T, literal func(T) string) {
	if len(values) == 0 {
		b.WriteString("NULL")
	}
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(literal(v))
	}
}

// retried calls f again, with pauses, while others are in the way. An operation on a
// connection that was dead before is repeated by database/sql itself.
func retried(ctx context.Context, f func() error) error {
	start := time.Now()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := f()
		if err == nil || !again(err) || errors.Is(err, engine.ErrCommitUnknown) || ctx.Err() != nil || time.Since(start) > patience {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
