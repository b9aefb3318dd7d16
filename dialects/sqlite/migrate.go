package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

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

// steps in their order; the first is version 1.
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
		return names{}, Retention{}, fmt.Errorf("sqlite: migrate: %w", err)
	}
	return n, keep, nil
}

// Migrate brings the schema up to date, each step in a transaction of its own,
// and writes opts.Retention if it is set and another one stands there. What was
// done stays done when it fails later; running it again goes on from there. Two
// at once are fine: the second waits and finds nothing left to do. Relays and
// writers may be running. The file's journal mode is left as it is; see [DSN].
func Migrate(ctx context.Context, db *sql.DB, opts *Options, mo *MigrateOptions) (MigrateReport, error) {
	return migrate(ctx, db, opts, mo, steps)
}

func migrate(ctx context.Context, db *sql.DB, opts *Options, mo *MigrateOptions, steps []schema.Step) (MigrateReport, error) {
	n, keep, err := checkMigration(opts)
	if err != nil {
		return MigrateReport{}, err
	}
	ms, err := renderSteps(opts, steps)
	if err != nil {
		return MigrateReport{}, err
	}
	dry := mo != nil && mo.DryRun
	report, err := schema.Run(ms, dry, func(ms []Migration, dry bool) (int, error) { return migrateOne(ctx, db, n, ms, dry) })
	if err == nil && opts != nil && opts.Retention != nil && report.From > 0 {
		err = migrateRetention(ctx, db, n, keep, dry, &report)
	}
	if err != nil {
		return report, fmt.Errorf("sqlite: migrate %s: %w", n.table(), err)
	}
	return report, nil
}

// errDry rolls back the transaction of a dry run.
var errDry = errors.New("dry run")

// migrateOne does the next step, if there is one, and returns the version that it
// found.
func migrateOne(ctx context.Context, db *sql.DB, n names, ms []Migration, dry bool) (version int, err error) {
	err = write(ctx, db, nil, func(t *tx) (err error) {
		if version, err = schemaVersion(t, n); err != nil || version >= len(ms) {
			return err
		}
		if dry {
			return errDry
		}
		m := ms[version]
		_, err = t.exec(fmt.Sprintf("step %d (%s)", m.Version, m.Name), m.SQL)
		return err
	})
	if errors.Is(err, errDry) {
		err = nil
	}
	return version, err
}

// schemaVersion reads the version that stands in the database; 0: no schema.
func schemaVersion(t *tx, n names) (version int, err error) {
	var tables int
	if err := t.one("tables", `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1`, []any{n.prefix + "schema"}, &tables); err != nil || tables == 0 {
		return 0, err
	}
	version = -1
	if err = t.one("version", n.sql(`SELECT version FROM {schema_}`), nil, &version); err == nil && version < 0 {
		return 0, fmt.Errorf("table %s is empty; it must have one row, as the first migration wrote it", n.sql(`{schema_}`))
	}
	return version, err
}

func migrateRetention(ctx context.Context, db *sql.DB, n names, keep Retention, dry bool, report *MigrateReport) error {
	return write(ctx, db, nil, func(t *tx) error {
		have, err := readSettings(ctx, t.conn, n)
		if err != nil || have.Retention == keep {
			return err
		}
		report.Retention = fmt.Sprintf("%v -> %v", have.Retention, keep)
		if dry {
			return nil
		}
		_, err = t.exec("retention", n.sql(`UPDATE {schema_} SET retention = ?1, archive = ?2, discard_retention = ?3`),
			keep.Published.Microseconds(), keep.Archive(), keep.Discarded.Microseconds())
		return err
	})
}

const settingsSQL = `SELECT version, min_client, retention, archive, discard_retention FROM {schema_}`

func readSettings(ctx context.Context, q sqlrows.Queryer, n names) (s schema.Settings, err error) {
	var published, discarded int64
	var archive string
	found, tables := false, 0
	err = retried(ctx, func() error {
		err := sqlrows.Query(ctx, q, "tables", `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1`,
			func(rows *sql.Rows) error { return rows.Scan(&tables) }, n.prefix+"schema")
		if err != nil || tables == 0 {
			return err
		}
		return sqlrows.Query(ctx, q, "settings", n.sql(settingsSQL), func(rows *sql.Rows) error {
			found = true
			return rows.Scan(&s.Version, &s.MinClient, &published, &archive, &discarded)
		})
	})
	switch {
	case err != nil:
		return s, err
	case tables == 0:
		return s, fmt.Errorf("%w: %s does not exist", schema.ErrNone, n.sql(`{schema_}`))
	case !found:
		return s, fmt.Errorf("%w: %s is empty", schema.ErrNone, n.sql(`{schema_}`))
	}
	s.Retention = schema.FromRow(published, archive, discarded)
	return s, nil
}
