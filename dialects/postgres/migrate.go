package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
			last = fmt.Sprintf("INSERT INTO {schema_} (version, min_client, retention, archive, discard_retention)\nVALUES (%d, %d, %s, '%s', %s);\n",
				version, s.minClient, interval(keep.Published), archiveWord(keep), interval(keep.Discarded))
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
		return names{}, Retention{}, fmt.Errorf("postgres: migrate: %w", err)
	}
	return n, keep, nil
}

func interval(d time.Duration) string {
	return fmt.Sprintf("interval '%d microseconds'", d.Microseconds())
}

func archiveWord(r Retention) string {
	if r.Metadata {
		return "metadata"
	}
	return "full"
}

// DB is what Migrate needs: a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
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
// writers may be running.
func Migrate(ctx context.Context, db DB, opts *Options, mo *MigrateOptions) (MigrateReport, error) {
	return migrate(ctx, db, opts, mo, steps)
}

func migrate(ctx context.Context, db DB, opts *Options, mo *MigrateOptions, steps []step) (MigrateReport, error) {
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
		return report, fmt.Errorf("postgres: migrate %s: %w", n.table(), err)
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

// migrateOne does the next step, if there is one. With dry it notes all of them.
func migrateOne(ctx context.Context, db DB, n names, ms []Migration, dry bool, report *MigrateReport) (done bool, err error) {
	tx, err := lockedTx(ctx, db, n)
	if err != nil {
		return false, err
	}
	defer rollback(ctx, tx)
	version, err := schemaVersion(ctx, tx, n)
	if err != nil {
		return false, err
	}
	if report.From < 0 {
		report.From, report.To = version, version
	}
	switch {
	case version >= len(ms):
		report.To = version
		return true, nil
	case dry:
		report.Applied, report.To = ms[version:], len(ms)
		return true, nil
	}
	if version == 0 {
		if err := ensureSchema(ctx, tx, n); err != nil {
			return false, err
		}
	}
	m := ms[version]
	if _, err := tx.Conn().PgConn().Exec(ctx, m.SQL).ReadAll(); err != nil {
		return false, fmt.Errorf("step %d (%s): %w", m.Version, m.Name, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return false, fmt.Errorf("step %d (%s): commit: %w", m.Version, m.Name, err)
	}
	report.Applied, report.To = append(report.Applied, m), m.Version
	return false, nil
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
	if err != nil || have.retention == keep {
		return err
	}
	report.Retention = fmt.Sprintf("%v -> %v", have.retention, keep)
	if dry {
		return nil
	}
	if _, err := tx.Exec(ctx, n.sql(`UPDATE {schema_} SET retention = $1::bigint * interval '1 microsecond', archive = $2::text,
		discard_retention = $3::bigint * interval '1 microsecond'`), keep.Published.Microseconds(), archiveWord(keep), keep.Discarded.Microseconds()); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// settings are the one row of the schema table.
type settings struct {
	version, minClient int
	retention          Retention
	read               time.Time // by this process's clock
}

type queryRower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const settingsSQL = `SELECT version, min_client, (extract(epoch FROM retention) * 1000000)::bigint, archive,
       (extract(epoch FROM discard_retention) * 1000000)::bigint
  FROM {schema_}`

func readSettings(ctx context.Context, q queryRower, n names) (settings, error) {
	var s settings
	var published, discarded int64
	var archive string
	err := q.QueryRow(ctx, n.sql(settingsSQL)).Scan(&s.version, &s.minClient, &published, &archive, &discarded)
	var pgErr *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, fmt.Errorf("%w: %s is empty", errNoSchema, n.sql(`{schema_}`))
	case errors.As(err, &pgErr) && (pgErr.Code == "42P01" || pgErr.Code == "3F000"):
		return s, fmt.Errorf("%w: %s does not exist", errNoSchema, n.sql(`{schema_}`))
	case err != nil:
		return s, err
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
