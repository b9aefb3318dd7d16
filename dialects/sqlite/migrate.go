package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"time"
)

// The versions of the schema that this package knows. A client runs on a schema
// if the schema's min_client is at most clientVersion, and its version at least
// oldestSchema.
const (
	clientVersion = 2
	oldestSchema  = 1
)

// A Migration is one numbered step of the schema. Steps of one major version of
// this module only add: writers and relays go on while a step runs.
type Migration struct {
	Version int    // the schema's version after the step
	Name    string // "outbox"
	SQL     string // statements, each ended by a semicolon at the end of a line
}

// A step is a migration before the names are filled in.
type step struct {
	name      string
	minClient int // the oldest client that runs on the schema after this step
	sql       string
}

//go:embed migrations/0001_outbox.sql
var outboxSQL string

//go:embed migrations/0002_inbox.sql
var inboxSQL string

// steps in their order; the first is version 1.
var steps = []step{
	{name: "outbox", minClient: 1, sql: outboxSQL},
	{name: "inbox", minClient: 1, sql: inboxSQL},
}

// Migrations returns every step, rendered with the names of opts. The first one
// writes opts.Retention, or [DefaultRetention] where that is nil.
func Migrations(opts *Options) ([]Migration, error) { return renderSteps(opts, steps) }

func renderSteps(opts *Options, steps []step) ([]Migration, error) {
	n, keep, err := checkMigration(opts)
	if err != nil {
		return nil, err
	}
	ms := make([]Migration, len(steps))
	for i, s := range steps {
		version := i + 1
		last := fmt.Sprintf("UPDATE {schema_} SET version = %d, min_client = %d;\n", version, s.minClient)
		if version == 1 {
			last = fmt.Sprintf("INSERT INTO {schema_} (version, min_client, retention, archive, discard_retention)\nVALUES (%d, %d, %d, '%s', %d);\n",
				version, s.minClient, keep.Published.Microseconds(), archiveWord(keep), keep.Discarded.Microseconds())
		}
		ms[i] = Migration{Version: version, Name: s.name, SQL: n.sql(s.sql + "\n" + last)}
	}
	return ms, nil
}

func checkMigration(opts *Options) (names, Retention, error) {
	n, err := opts.names()
	keep := DefaultRetention
	if opts != nil && opts.Retention != nil {
		keep = *opts.Retention
	}
	if err = errors.Join(err, keep.check()); err != nil {
		return names{}, Retention{}, fmt.Errorf("sqlite: migrate: %w", err)
	}
	return n, keep, nil
}

func archiveWord(r Retention) string {
	if r.Metadata {
		return "metadata"
	}
	return "full"
}

// MigrateOptions say how to migrate. A nil *MigrateOptions means all defaults.
type MigrateOptions struct {
	DryRun bool // change nothing; report what would be done
}

// A MigrateReport says what Migrate found and did, or with DryRun would have done.
type MigrateReport struct {
	From, To  int         // versions of the schema; 0: none
	Applied   []Migration // in their order
	Retention string      // not empty: the retention was changed, from what to what
}

// Migrate brings the schema up to date, each step in a transaction of its own,
// and writes opts.Retention if it is set and another one stands there. What was
// done stays done when it fails later; running it again goes on from there. Two
// at once are fine: the second waits and finds nothing left to do. Relays and
// writers may be running. The file's journal mode is left as it is; see [DSN].
func Migrate(ctx context.Context, db *sql.DB, opts *Options, mo *MigrateOptions) (MigrateReport, error) {
	return migrate(ctx, db, opts, mo, steps)
}

func migrate(ctx context.Context, db *sql.DB, opts *Options, mo *MigrateOptions, steps []step) (MigrateReport, error) {
	n, keep, err := checkMigration(opts)
	if err != nil {
		return MigrateReport{}, err
	}
	ms, err := renderSteps(opts, steps)
	if err != nil {
		return MigrateReport{}, err
	}
	dry := mo != nil && mo.DryRun
	report := MigrateReport{From: -1}
	fail := func(err error) (MigrateReport, error) {
		report.From = max(report.From, 0)
		return report, fmt.Errorf("sqlite: migrate %s: %w", n.table(), err)
	}
	for {
		done, err := migrateOne(ctx, db, n, ms, dry, &report)
		if err != nil {
			return fail(err)
		}
		if done {
			break
		}
	}
	if opts != nil && opts.Retention != nil && report.From > 0 {
		if err := migrateRetention(ctx, db, n, keep, dry, &report); err != nil {
			return fail(err)
		}
	}
	return report, nil
}

// errDry rolls back the transaction of a dry run.
var errDry = errors.New("dry run")

// migrateOne does the next step, if there is one. With dry it notes all of them.
func migrateOne(ctx context.Context, db *sql.DB, n names, ms []Migration, dry bool, report *MigrateReport) (done bool, err error) {
	var version int
	err = write(ctx, db, nil, func(t *tx) (err error) {
		if version, err = schemaVersion(t, n); err != nil {
			return err
		}
		if report.From < 0 {
			report.From, report.To = version, version
		}
		if version >= len(ms) {
			return nil
		}
		if dry {
			return errDry
		}
		m := ms[version]
		if _, err := t.exec(fmt.Sprintf("step %d (%s)", m.Version, m.Name), m.SQL); err != nil {
			return err
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDry) {
		return false, err
	}
	switch {
	case version >= len(ms):
		report.To = version
		return true, nil
	case dry:
		report.Applied, report.To = ms[version:], len(ms)
		return true, nil
	}
	report.Applied, report.To = append(report.Applied, ms[version]), ms[version].Version
	return false, nil
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
		if err != nil || have.retention == keep {
			return err
		}
		report.Retention = fmt.Sprintf("%v -> %v", have.retention, keep)
		if dry {
			return nil
		}
		_, err = t.exec("retention", n.sql(`UPDATE {schema_} SET retention = ?1, archive = ?2, discard_retention = ?3`),
			keep.Published.Microseconds(), archiveWord(keep), keep.Discarded.Microseconds())
		return err
	})
}

// settings are the one row of the schema table.
type settings struct {
	version, minClient int
	retention          Retention
	read               time.Time // when, by this process's clock
}

const settingsSQL = `SELECT version, min_client, retention, archive, discard_retention FROM {schema_}`

func readSettings(ctx context.Context, q queryer, n names) (s settings, err error) {
	var published, discarded int64
	var archive string
	found, tables := false, 0
	err = retried(ctx, func() error {
		err := queryRows(ctx, q, "tables", `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1`,
			func(rows *sql.Rows) error { return rows.Scan(&tables) }, n.prefix+"schema")
		if err != nil || tables == 0 {
			return err
		}
		return queryRows(ctx, q, "settings", n.sql(settingsSQL), func(rows *sql.Rows) error {
			found = true
			return rows.Scan(&s.version, &s.minClient, &published, &archive, &discarded)
		})
	})
	switch {
	case err != nil:
		return s, err
	case tables == 0:
		return s, fmt.Errorf("%w: %s does not exist", errNoSchema, n.sql(`{schema_}`))
	case !found:
		return s, fmt.Errorf("%w: %s is empty", errNoSchema, n.sql(`{schema_}`))
	}
	s.retention = Retention{Published: time.Duration(published) * time.Microsecond, Metadata: archive == "metadata",
		Discarded: time.Duration(discarded) * time.Microsecond}
	return s, nil
}

// usable reports whether this package may work on the schema.
func (s settings) usable(n names) error {
	switch {
	case s.minClient > clientVersion:
		return fmt.Errorf("%w: the schema of %s needs client version %d, this is %d; use a newer version of Outward",
			errSchemaVersion, n.table(), s.minClient, clientVersion)
	case s.version < oldestSchema:
		return fmt.Errorf("%w: the schema of %s has version %d, the oldest supported one is %d; run: outward migrate",
			errSchemaVersion, n.table(), s.version, oldestSchema)
	}
	return nil
}

var (
	errNoSchema      = errors.New("the outbox has no schema here; run: outward migrate")
	errSchemaVersion = errors.New("wrong schema version")
)
