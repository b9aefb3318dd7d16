package mysql

import (
	"fmt"
	"time"
)

// nowSQL is the database's clock. It is one instant throughout a statement, that of
// its beginning, and UTC whatever the session's time zone.
const nowSQL = `UTC_TIMESTAMP(6)`

// forever is when a row is due that waits for the end of a pause.
const forever = `'9999-12-31 23:59:59.999999'`

// micros is a column as microseconds since 1970: a driver would show a DATETIME as
// text or as a time of its own zone, by how it was opened. NULL where it is no
// instant (the zero date of a session that allows it).
func micros(column string) string {
	return fmt.Sprintf("TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', %s)", column)
}

// since is the time from a to b in microseconds.
func since(a, b string) string { return fmt.Sprintf("TIMESTAMPDIFF(MICROSECOND, %s, %s)", a, b) }

// at is the instant of an argument in microseconds since 1970.
const at = `(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)`

// The instants that time.Time can show in four digits of a year.
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

// ceiling is the first whole microsecond that is not before t.
func ceiling(t time.Time) int64 {
	us := t.UnixMicro()
	if t.Nanosecond()%1000 != 0 {
		us++
	}
	return us
}
