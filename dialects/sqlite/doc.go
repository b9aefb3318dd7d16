// Package sqlite keeps an outbox in a SQLite file, over the caller's *sql.DB and
// the driver modernc.org/sqlite.
//
// A [Writer] puts messages into the caller's own transaction; a [Store] is what
// an engine.Relay takes them out with. The tables are made by [Migrate], or by
// any migration tool from what [Render] writes; nothing else creates anything.
// The table of messages is a public contract: any program enqueues with one
// INSERT of the columns it has, topic and type at the least, the sqlite3 program
// among them.
//
// # One writer
//
// SQLite has one write transaction at a time, over all processes. Everything that
// changes something here begins with BEGIN IMMEDIATE, so from its first statement
// to its COMMIT nobody else changes anything: no row is locked, none is skipped,
// and what was read in a transaction still holds when it writes. The protocol of
// docs/architecture.md is kept, its statements between which another could step in
// are one here. Work is cut into transactions of at most 10 000 rows, so that no
// writer waits for long.
//
// # How to open the file
//
// Use [DSN], or what it says: WAL, so that readers and the writer do not stop each
// other, and a busy_timeout. A transaction of the caller's must take the write lock
// when it begins (_txlock=immediate, or [Writer.InTx]): one that reads first and
// then writes fails with SQLITE_BUSY_SNAPSHOT whenever another has written in
// between, and no timeout helps. Any number of relay processes may share a file on
// a local disk; a network file system is no place for SQLite.
//
// A relay in the writer's process is woken by it (Options.Wake); one in another
// process finds new messages by polling.
package sqlite
