// Package records is what dialects share of showing messages to an operator, and of
// commands to many of them.
package records

import (
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Chunk is how many messages an operator's command changes in one transaction, and
// how many a page has. Each chunk of a command is one row of the audit.
const Chunk = 500

// ErrNoContent is the error of a replay that met messages of which the archive kept
// only the metadata.
var ErrNoContent = errors.New("the archive has no payload of some of these messages")

// atMost is how many a chunk may have where left are still wanted; 0: all.
func atMost(left int) int {
	if left <= 0 || left > Chunk {
		return Chunk
	}
	return left
}

// Pages yields what a reader returns, page after page, until one is not full or limit
// is reached; 0: no limit. A reader is made by begin for each time that somebody
// ranges over the result; it reads at most left, goes on behind what it returned
// before, and its error is yielded as the last.
func Pages(limit int, begin func() (reader func(left int) ([]engine.Record, error))) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		page := begin()
		for left := limit; ; {
			records, err := page(atMost(left))
			if err != nil {
				yield(engine.Record{}, err)
				return
			}
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
			if limit > 0 {
				if left -= len(records); left <= 0 {
					return
				}
			}
			if len(records) < Chunk {
				return
			}
		}
	}
}

// Chunks calls do until it finds nothing more or limit is reached; 0: no limit. do
// changes at most left, and says how many it met and changed. After an error n says
// what was done.
func Chunks(limit int, do func(left int) (met, done int, err error)) (n int, err error) {
	for left := limit; ; {
		met, done, err := do(atMost(left))
		n += done
		if err != nil || met == 0 {
			return n, err
		}
		if limit > 0 {
			if left -= done; left <= 0 {
				return n, nil
			}
		}
	}
}

// Conditions is a filter as SQL, on the table m. What differs from database to
// database stands in its functions.
type Conditions struct {
	Placeholder           func(n int) string                            // of the n-th argument
	TextCast, InstantCast string                                        // put behind a placeholder
	Instant               func(t time.Time) any                         // the argument that stands for t, rounded up
	IDs                   func(ids []engine.ID) (in string, args []any) // "IN …", with ? for the arguments

	Parts []string
	Args  []any
}

// Add adds a condition in which each ? stands for the next of args.
func (c *Conditions) Add(condition string, args ...any) {
	var b strings.Builder
	for _, arg := range args {
		before, after, _ := strings.Cut(condition, "?")
		c.Args = append(c.Args, arg)
		b.WriteString(before + c.Placeholder(len(c.Args)))
		condition = after
	}
	b.WriteString(condition)
	c.Parts = append(c.Parts, b.String())
}

// String is all conditions; at least one was added.
func (c *Conditions) String() string { return strings.Join(c.Parts, " AND ") }

// Filter adds what f asks for. at is the column of From and To.
func (c *Conditions) Filter(f engine.Filter, at string) {
	if len(f.IDs) > 0 {
		in, args := c.IDs(f.IDs)
		c.Add("m.message_id "+in, args...)
	}
	for _, t := range []struct{ column, value string }{
		{"topic", f.Topic}, {"ordering_key", f.Key}, {"type", f.Type}, {"last_error_class", f.ErrorClass},
	} {
		if t.value != "" {
			c.Add("m."+t.column+" = ?"+c.TextCast, t.value)
		}
	}
	if !f.From.IsZero() {
		c.Add("m."+at+" >= ?"+c.InstantCast, c.Instant(f.From))
	}
	if !f.To.IsZero() {
		c.Add("m."+at+" < ?"+c.InstantCast, c.Instant(f.To))
	}
}
