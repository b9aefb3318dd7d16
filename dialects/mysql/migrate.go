package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/outward-dev/outward/dialects/internal/schema"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
)

// A Migration is one numbered step of the schema: its version, its name and its
// statements, each ended by a semicolon at the end of a line. Steps of one major
// version of this module only add: writers and relays go on while a step runs.
type Migration = schema.Migration

// MigrateOptions say how to migrate: with DryRun nothing is changed. A nil
// *MigrateOptions means all defaults.
type MigrateOptions = schema.MigrateOptions

// A MigrateReport says what Migrate found and did, or with DryRun would have done:
// from and to which version, by which steps, and whether the retention changed.
type MigrateReport = schema.MigrateReport

//go:embed migrations/0001_outbox.sql
var outboxSQL string

//go:embed migrations/0002_inbox.sql
var inboxSQL string

// steps in their order; the first is version 1. Each can be done again from any of its
// statements on: the database commits every one of them by itself.
var steps = []schema.Step{
	{Name: "outbox", MinClient: 1, SQL: outboxSQL},
	{Name: "inbox", MinClient: 1, SQL: inboxSQL},
}

// Migrations returns every step, rendered with the names of opts. The first one
// writes opts.Retention, or [DefaultRetention] where that is nil.
func Migrations(opts *Options) ([]Migration, error) { return renderSteps(opts, steps) }

func renderSteps(opts *Options, steps []schema.Step) ([]Migration, error) {
	n, keep, err := checkMigration(opts)
	if err != nil {
		return nil, err
	}
	return schema.Migrations(steps, n.sql, keep, func(us int64) string { return strconv.FormatInt(us, 10) }), nil
}

func checkMigration(opts *Options) (names, Retention, error) {
	n, err := opts.names()
	keep := DefaultRetention
	if opts != nil && opts.Retention != nil {
		keep = *opts.Retention
	}
	if err = errors.Join(err, keep.Check()); err != nil {
		return names{}, Retention{}, fmt.Errorf("mysql: migrate: %w", err)
	}
	return n, keep, nil
}

// Migrate brings the schema up to date and writes opts.Retention if it is set and
// another one stands there. MySQL and MariaDB commit every statement of a step by
// itself; a step that was cut short is done again, and running Migrate again goes on
// from there. Two at once are fine: the second waits and finds nothing left to do.
// Relays and writers may be running.
func Migrate(ctx context.Context, db *sql.DB, opts *Options, mo *MigrateOptions) (MigrateReport, error) {
	return migrate(ctx, db, opts, mo, steps)
}

func migrate(ctx context.Context, db *sql.DB, opts *Options, mo *MigrateOptions, steps []schema.Step) (report MigrateReport, err error) {
	n, keep, err := checkMigration(opts)
	if err != nil {
		return MigrateReport{}, err
	}
	ms, err := renderSteps(opts, steps)
	if err != nil {
		return MigrateReport{}, err
	}
	dry := mo != nil && mo.DryRun
	err = locked(ctx, db, n, func(conn *sql.Conn) error {
		report, err = schema.Run(ms, dry, func(ms []Migration, dry bool) (int, error) { return migrateOne(ctx, conn, n, ms, dry) })
		if err == nil && opts != nil && opts.Retention != nil && report.From > 0 {
			err = migrateRetention(ctx, conn, n, keep, dry, &report)
		}
		return err
	})
	if err != nil {
		return report, fmt.Errorf("mysql: migrate %s: %w", n.table(), err)
	}
	return report, nil
}

// locked runs f on a connection while no other migration of the same tables runs. The
// lock belongs to the connection, so a killed migration leaves none.
func locked(ctx context.Context, db *sql.DB, n names, f func(conn *sql.Conn) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it only goes back to the pool
	var database string
	if err := conn.QueryRowContext(ctx, `SELECT COALESCE(DATABASE(), '')`).Scan(&database); err != nil {
		return err
	}
	if database == "" {
		return errors.New("the connection is in no database; name one in the address")
	}
	// A lock's name has 64 characters at most and belongs to the whole server.
	name := fmt.Sprintf("outward migrate %.20x", sha256.Sum256([]byte(database+"\x00"+n.table())))
	for got := false; !got; {
		var answer sql.NullInt64 // a second at a time, for a driver that is told to stop cuts the connection
		if err := conn.QueryRowContext(ctx, text(`SELECT GET_LOCK(?, 1)`, name)).Scan(&answer); err != nil {
			return err
		}
		if !answer.Valid {
			return errors.New("the server gives no lock to migrate under")
		}
		got = answer.Int64 == 1
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if _, rerr := conn.ExecContext(end, text(`DO RELEASE_LOCK(?)`, name)); rerr != nil && err == nil {
			err = fmt.Errorf("release the lock: %w", rerr)
		}
	}()
	return f(conn)
}

// migrateOne does the next step, if there is one, and returns the version that it
// found.
func migrateOne(ctx context.Context, conn *sql.Conn, n names, ms []Migration, dry bool) (version int, err error) {
	if version, err = schemaVersion(ctx, conn, n); err != nil || version >= len(ms) || dry {
		return version, err
	}
	m := ms[version]
	for _, statement := range split(m.SQL) {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return version, fmt.Errorf("step %d (%s): %.60q …: %w", m.Version, m.Name, statement, err)
		}
	}
	return version, nil
}

// split cuts a step into its statements, without comment lines.
func split(sql string) (statements []string) {
	var lines []string
	for line := range strings.Lines(sql) {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "--") || trimmed == "" && len(lines) == 0 {
			continue
		}
		lines = append(lines, line)
		if strings.HasSuffix(trimmed, ";") {
			statements = append(statements, strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "")), ";"))
			lines = nil
		}
	}
	return statements
}

// schemaVersion reads the version that stands in the database; 0: no schema, or one
// whose first step was cut short.
func schemaVersion(ctx context.Context, q sqlrows.Queryer, n names) (version int, err error) {
	err = queryRows(ctx, q, "version", n.sql(`SELECT version FROM {schema_}`), func(rows *sql.Rows) error { return rows.Scan(&version) })
	if number(err) == errNoTable {
		return 0, nil
	}
	return version, err
}

func migrateRetention(ctx context.Context, conn *sql.Conn, n names, keep Retention, dry bool, report *MigrateReport) error {
	have, err := readSettings(ctx, conn, n)
	if err != nil || have.Retention == keep {
		return err
	}
	report.Retention = fmt.Sprintf("%v -> %v", have.Retention, keep)
	if dry {
		return nil
	}
	_, err = conn.ExecContext(ctx, text(n.sql(`UPDATE {schema_} SET retention = ?, archive = ?, discard_retention = ?`),
		keep.Published.Microseconds(), keep.Archive(), keep.Discarded.Microseconds()))
	return err
}

const settingsSQL = `SELECT version, min_client, retention, archive, discard_retention FROM {schema_}`

func readSettings(ctx context.Context, q sqlrows.Queryer, n names) (s schema.Settings, err error) {
	var published, discarded int64
	var archive string
	found := false
	err = queryRows(ctx, q, "settings", n.sql(settingsSQL), func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&s.Version, &s.MinClient, &published, &archive, &discarded)
	})
	switch {
	case number(err) == errNoTable:
		return s, fmt.Errorf("%w: %s does not exist", schema.ErrNone, n.sql(`{schema_}`))
	case err != nil:
		return s, err
	case !found:
		return s, fmt.Errorf("%w: %s is empty", schema.ErrNone, n.sql(`{schema_}`))
	}
	s.Retention = schema.FromRow(published, archive, discarded)
	return s, nil
}
