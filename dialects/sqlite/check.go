package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/engine"
)

// oldestLibrary is the oldest SQLite that has what the statements use (RETURNING,
// UPDATE FROM, MATERIALIZED, JSON built in).
const oldestLibrary = "3.38.0"

// Check implements [engine.Checker]. It changes nothing, but takes the write lock
// for a moment, to see that it can be had.
func (s *Store) Check(ctx context.Context) []engine.Finding {
	return schema.Findings(
		func(add schema.Adder) bool { return s.checkFile(ctx, add) },
		func(add schema.Adder) bool { return s.checkSchema(ctx, add) },
		func(add schema.Adder) bool { return s.checkWrites(ctx, add) },
		func(add schema.Adder) bool { return s.checkTable(ctx, add) },
	)
}

// addError files an error of the database as what it means to a relay.
func addError(add schema.Adder, err error) {
	switch code(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		add(engine.Retry, "busy", "look for a transaction that was left open", "another connection keeps the database locked: %v", err)
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		add(engine.Retry, "unreachable", "check the path and the rights on the file and its directory; the relay goes on trying", "the database can't be opened: %v", err)
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		add(engine.Fatal, "corrupt", "restore the file from a backup", "the file is no intact SQLite database: %v", err)
	case sqlite3.SQLITE_READONLY:
		add(engine.Fatal, "read_only", "give the relay's user the right to write the file and its directory, and open it without mode=ro", "the database can't be written: %v", err)
	default:
		add(engine.Retry, "failed", "", "the check failed: %v", err)
	}
}

func (s *Store) ask(ctx context.Context, query string, dest ...any) error {
	return retried(ctx, func() error {
		return sqlrows.Query(ctx, s.db, "check", query, func(rows *sql.Rows) error { return rows.Scan(dest...) })
	})
}

func (s *Store) checkFile(ctx context.Context, add schema.Adder) (stop bool) {
	var version, file, mode, locking string
	var timeout, sync int
	for _, q := range []struct {
		query string
		dest  any
	}{
		{`SELECT sqlite_version()`, &version},
		{`SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'`, &file},
		{`PRAGMA main.journal_mode`, &mode},
		{`PRAGMA main.locking_mode`, &locking},
		{`PRAGMA busy_timeout`, &timeout},
		{`PRAGMA main.synchronous`, &sync},
	} {
		if err := s.ask(ctx, q.query, q.dest); err != nil {
			addError(add, err) // the others would say the same
			return true
		}
	}
	if older(version, oldestLibrary) {
		add(engine.Fatal, "library_version", "use a newer driver", "the SQLite library has version %s; the oldest supported one is %s", version, oldestLibrary)
		return true
	}
	if file == "" {
		if s.db.Stats().MaxOpenConnections != 1 {
			add(engine.Fatal, "memory", "use a file, or db.SetMaxOpenConns(1)", "the database is in memory and more than one connection may be opened: each has a database of its own")
			return true
		}
		add(engine.Warning, "memory", "use a file", "the database is in memory: messages and business data are lost together when the process ends")
		return false
	}
	if mode != "wal" {
		add(engine.Warning, "journal_mode", "PRAGMA journal_mode = WAL (see sqlite.DSN)", "the journal mode of %s is %s: every reader of the file stops the writers, and every commit the readers", file, mode)
	}
	if locking == "exclusive" {
		add(engine.Fatal, "locking_mode", "PRAGMA locking_mode = NORMAL", "the locking mode is exclusive: the first connection to write keeps all others out")
	}
	if timeout == 0 {
		add(engine.Warning, "busy_timeout", "open the file with _pragma=busy_timeout(5000) (see sqlite.DSN)", "busy_timeout is 0: the relay tries again by itself, but business transactions fail at once whenever another one is writing")
	}
	switch sync {
	case 0:
		add(engine.Warning, "synchronous", "PRAGMA synchronous = FULL", "synchronous is OFF: a power cut can destroy the file")
	case 1:
		add(engine.Note, "synchronous", "PRAGMA synchronous = FULL", "synchronous is NORMAL: a power cut can undo the last commits, of the business too, after their messages went out")
	}
	return false
}

// older compares versions of three numbers.
func older(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, errX := strconv.Atoi(as[i])
		y, errY := strconv.Atoi(bs[i])
		if errX != nil || errY != nil {
			return false
		}
		if x != y {
			return x < y
		}
	}
	return false
}

func (s *Store) checkSchema(ctx context.Context, add schema.Adder) (stop bool) {
	have, err := readSettings(ctx, s.db, s.names)
	return schema.Check(add, have, err, s.want, s.names.table(), func(err error) { addError(add, err) })
}

// checkWrites writes nothing and rolls it back: nothing else tells whether a file can
// be written.
func (s *Store) checkWrites(ctx context.Context, add schema.Adder) (stop bool) {
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.exec("check", s.names.sql(lockSQL)); err != nil {
			return err
		}
		return errDry
	})
	if errors.Is(err, errDry) {
		return false
	}
	addError(add, err)
	return true
}

const checkTableSQL = `
SELECT (SELECT count(*) FROM {lanes} WHERE lane BETWEEN 0 AND 63),
       (SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '{p}messages' AND sql LIKE '%AUTOINCREMENT%'),
       (SELECT coalesce(group_concat(i.value, ', '), '') FROM json_each('["ready", "due", "parked", "detached", "held", "aside", "dead"]') i
         WHERE NOT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = '{p}messages_' || i.value))`

func (s *Store) checkTable(ctx context.Context, add schema.Adder) (stop bool) {
	n := s.names
	var laneCount, autoincrement int
	var missing string
	if err := s.ask(ctx, n.sql(checkTableSQL), &laneCount, &autoincrement, &missing); err != nil {
		addError(add, err)
		return true
	}
	if laneCount != lanes {
		add(engine.Fatal, "lanes", "put back the missing rows of "+n.sql("{lanes}")+", as the first migration makes them",
			"%s has %d lanes of %d: messages of the missing ones would never go", n.sql("{lanes}"), laneCount, lanes)
	}
	if autoincrement == 0 {
		add(engine.Fatal, "autoincrement", "make the table again as the first migration has it", "the column seq of %s is not AUTOINCREMENT: the numbers of deleted messages are given again, and then no order per key can be kept", n.table())
	}
	if missing != "" {
		add(engine.Warning, "index", "create them as in: outward migrate print", "indexes of %s are missing: %s; claims will be slow", n.table(), missing)
	}
	return false
}
