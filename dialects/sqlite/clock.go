package sqlite

import (
	"fmt"
	"strings"
	"time"
)

// nowSQL is the database's clock in microseconds; SQLite knows it to the
// millisecond. It is one instant throughout a statement. unixepoch('subsec') would
// be shorter, but the sqlite3 program of many systems does not know it, and the
// columns' defaults must work there.
const nowSQL = `(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`

// forever is when a row is due that waits for the end of a pause.
const forever = 1<<63 - 1

// The instants that time.Time can show in four digits of a year. A foreign writer
// may have stored others, which must not make a claim fail.
const (
	oldest = -62135596800000000
	newest = 253402300799999999
)

// instant is a column's microseconds as a time; nil where it can't be one.
func instant(us *int64) *time.Time {
	if us == nil || *us < oldest || *us > newest {
		return nil
	}
	t := time.UnixMicro(*us).UTC()
	return &t
}

// hashSQL spreads ordering keys over the lanes, with nothing but what SQLite has
// built in: it has no hash function that a generated column may use. Keys whose
// last eight characters and middle agree share a lane, which costs them nothing but
// the company.
func hashSQL() string {
	var parts []string
	for i, factor := range []int{1, 11, 29, 37, 5, 53, 19, 43} {
		parts = append(parts, fmt.Sprintf("%d * coalesce(unicode(substr(ordering_key, %d, 1)), 0)", factor, -i-1))
	}
	parts = append(parts, "23 * coalesce(unicode(substr(ordering_key, 1 + length(ordering_key) / 2, 1)), 0)", "length(ordering_key)")
	return "(" + strings.Join(parts, " + ") + ")"
}
