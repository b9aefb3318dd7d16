package sqlite

import "net/url"

// DSN is how modernc.org/sqlite should open the file at path: WAL, five seconds of
// patience with other writers, and transactions that take the write lock when they
// begin. Every commit is synced to the disk (synchronous is FULL, SQLite's
// default); with NORMAL a power cut may undo the last commits, of the business and
// the outbox alike.
//
//	db, err := sql.Open("sqlite", outwardsqlite.DSN("app.db"))
func DSN(path string) string {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(),
		RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"}
	return u.String()
}
