package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outward-dev/outward/dialects/internal/schema"
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
	return schema.Migrations(steps, n.sql, keep, interval), nil
}

func checkMigration(opts *Options) (names, Retention, error) {
	n, err := opts.names()
	keep := DefaultRetention
	if opts != nil && opts.Retention != nil {
		keep = *opts.Retention
	}
	if err = errors.Join(err, keep.Check()); err != nil {
		return names{}, Retention{}, fmt.Errorf("postgres: migrate: %w", err)
	}
	return n, keep, nil
}

func interval(microseconds int64) string {
	return fmt.Sprintf("interval '%d microseconds'", microseconds)
}

// DB is what Migrate needs: a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Migrate brings the schema up to date, each step in a transaction of its own,
// and writes opts.Retention if it is set and another one stands there. What was
// done stays done when it fails later; running it again goes on from there. Two
// at once are fine: the second waits and finds nothing left to do. Relays and
// writers may be running.
func Migrate(ctx context.Context, db DB, opts *Options, mo *MigrateOptions) (MigrateReport, error) {
	return migrate(ctx, db, opts, mo, steps)
}

func migrate(ctx context.Context, db DB, opts *Options, mo *MigrateOptions, steps []schema.Step) (MigrateReport, error) {
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
		return report, fmt.Errorf("postgres: migrate %s: %w", n.table(), err)
	}
	return report, nil
}

// migrateOne does the next step, if there is one, and returns the version that it
// found.
func migrateOne(ctx context.Context, db DB, n names, ms []Migration, dry bool) (version int, err error) {
	tx, err := lockedTx(ctx, db, n)
	if err != nil {
		return 0, err
	}
	defer rollback(ctx, tx)
	if version, err = schemaVersion(ctx, tx, n); err != nil || version >= len(ms) || dry {
		return version, err
	}
	if version == 0 {
		if err := ensureSchema(ctx, tx, n); err != nil {
			return version, err
		}
	}
	m := ms[version]
	if _, err := tx.Conn().PgConn().Exec(ctx, m.SQL).ReadAll(); err != nil {
		return version, fmt.Errorf("step %d (%s): %w", m.Version, m.Name, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return version, fmt.Errorf("step %d (%s): commit: %w", m.Version, m.Name, err)
	}
	return version, nil
}

// lockedTx begins a transaction that no other migration of the same tables runs
// beside. The lock ends with the transaction, so a killed migration leaves none.
func lockedTx(ctx context.Context, db DB, n names) (pgx.Tx, error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('outward migrate ' || $1::text, 0))`, n.table()); err != nil {
		rollback(ctx, tx)
		return nil, err
	}
	return tx, nil
}

// rollback ends a transaction that was not committed. Its error adds nothing: the
// connection is then closed, which rolls back as well.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// schemaVersion reads the version that stands in the database; 0: no schema.
func schemaVersion(ctx context.Context, tx pgx.Tx, n names) (version int, err error) {
	var exists bool
	// Not to_regclass: a session remembers that a name led nowhere, and waiting for an
	// advisory lock does not make it look again.
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2)`,
		n.schema, n.prefix+"schema").Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = tx.QueryRow(ctx, n.sql(`SELECT version FROM {schema_}`)).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("table %s is empty; it must have one row, as the first migration wrote it", n.sql(`{schema_}`))
	}
	return version, err
}

// ensureSchema creates the schema if it is missing. It asks first: CREATE SCHEMA
// IF NOT EXISTS demands the right to create one also where there is one.
func ensureSchema(ctx context.Context, tx pgx.Tx, n names) error {
	var exists bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, n.schema).Scan(&exists); err != nil || exists {
		return err
	}
	_, err := tx.Exec(ctx, n.sql(`CREATE SCHEMA {schema}`))
	return err
}

func migrateRetention(ctx context.Context, db DB, n names, keep Retention, dry bool, report *MigrateReport) error {
	tx, err := lockedTx(ctx, db, n)
	if err != nil {
		return err
	}
	defer rollback(ctx, tx)
	have, err := readSettings(ctx, tx, n)
	if err != nil || have.Retention == keep {
		return err
	}
	report.Retention = fmt.Sprintf("%v -> %v", have.Retention, keep)
	if dry {
		return nil
	}
	if _, err := tx.Exec(ctx, n.sql(`UPDATE {schema_} SET retention = $1::bigint * interval '1 microsecond', archive = $2::text,
		discard_retention = $3::bigint * interval '1 microsecond'`), keep.Published.Microseconds(), keep.Archive(), keep.Discarded.Microseconds()); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

type queryRower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const settingsSQL = `SELECT version, min_client, (extract(epoch FROM retention) * 1000000)::bigint, archive,
       (extract(epoch FROM discard_retention) * 1000000)::bigint
  FROM {schema_}`

func readSettings(ctx context.Context, q queryRower, n names) (schema.Settings, error) {
	var s schema.Settings
	var published, discarded int64
	var archive string
	err := q.QueryRow(ctx, n.sql(settingsSQL)).Scan(&s.Version, &s.MinClient, &published, &archive, &discarded)
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, fmt.Errorf("%w: %s is empty", schema.ErrNone, n.sql(`{schema_}`))
	case errors.As(err, &pgErr) && (pgErr.Code == "42P01" || pgErr.Code == "3F000"):
		return s, fmt.Errorf("%w: %s does not exist", schema.ErrNone, n.sql(`{schema_}`))
	case err != nil:
		return s, err
	}
	s.Retention = schema.FromRow(published, archive, discarded)
	return s, nil
}
