package config

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver that the name "sqlite" stands for

	"github.com/outward-dev/outward/dialects/sqlite"
	"github.com/outward-dev/outward/engine"
)

var sqliteDialect = dialect{name: "sqlite", read: readSQLite}

// sqliteTable implements table.
type sqliteTable struct {
	path        string
	connections int
	options     sqlite.Options
}

const sqliteURL = "write it as in file:/var/lib/app/orders.db; a relative path is relative to the configuration"

func readSQLite(m *mapping) table {
	faults := len(m.r.faults)
	t := &sqliteTable{}
	if raw, ok := m.needText("url", sqliteURL); ok {
		path, err := sqlitePath(raw)
		if err != nil {
			m.fault("url", "%v; %s", err, sqliteURL)
		}
		t.path = m.r.from.at(path)
	}
	t.options.Prefix = m.pattern("prefix", "outbox_", identifierPattern, identifierWords)
	t.options.InboxPrefix = m.pattern("inbox_prefix", "inbox_", identifierPattern, identifierWords)
	t.connections = m.number("connections", 4, 1, 1000)
	t.options.Retention = (*sqlite.Retention)(readRetention(m, retention(sqlite.DefaultRetention)))
	if len(m.r.faults) > faults {
		return nil
	}
	if _, err := sqlite.Migrations(&t.options); err != nil {
		key := blame(m, "prefix", "inbox_prefix")
		if m.at("prefix").expanded || m.at("inbox_prefix").expanded {
			err = errors.New("prefix and inbox_prefix can't be used for names in SQLite; they may be too long, or the same")
		}
		m.fault(key, "%s", oneLine(strings.TrimPrefix(err.Error(), "sqlite: migrate: ")))
		return nil
	}
	return t
}

// sqlitePath reads file:PATH. How the file is opened is the dialect's own business,
// so there are no parameters. Its errors have nothing of raw in them.
func sqlitePath(raw string) (string, error) {
	rest, ok := strings.CutPrefix(raw, "file:")
	switch {
	case !ok:
		return "", errors.New("it does not begin with file:")
	case strings.ContainsAny(rest, "?#"):
		return "", errors.New("it has parameters; a relay opens the file in the one way that its promises need (a ? or # in the path is written %3F or %23)")
	}
	if after, ok := strings.CutPrefix(rest, "//"); ok { // file://HOST/PATH
		host, path, _ := strings.Cut(after, "/")
		if host != "" && host != "localhost" {
			return "", errors.New("it names a host; SQLite has its file on a local disk")
		}
		rest = "/" + path
	}
	path, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return "", errors.New("it contains a % that begins no percent-encoding; write %25")
	case path == "" || strings.HasSuffix(path, "/"):
		return "", errors.New("it names no file")
	case strings.HasPrefix(path, ":memory:"):
		return "", errors.New("a database in memory is seen by one connection alone")
	case strings.ContainsRune(path, 0):
		return "", errors.New("it contains a NUL")
	}
	return path, nil
}

func (t *sqliteTable) identity() string {
	path, err := filepath.Abs(t.path)
	if err != nil {
		path = t.path // it is only compared
	}
	return strings.Join([]string{"sqlite", path, t.options.Prefix}, "\x00")
}

func (t *sqliteTable) render(format string) ([]File, error) {
	files, err := sqlite.Render(format, &t.options)
	if err != nil {
		return nil, err
	}
	out := make([]File, len(files))
	for i, f := range files {
		out[i] = File(f)
	}
	return out, nil
}

func (t *sqliteTable) open(_ string, log *slog.Logger) (Database, error) {
	// Only Migrate makes the file: a mistyped path must not become an empty database.
	db, err := sql.Open("sqlite", sqlite.DSN(t.path)+"&mode=rw")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(t.connections)
	db.SetMaxIdleConns(t.connections)
	options := t.options
	options.Logger = log
	store, err := sqlite.NewStore(db, &options)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &sqliteDatabase{db: db, store: store, path: t.path, options: t.options}, nil
}

// sqliteDatabase implements Database.
type sqliteDatabase struct {
	db      *sql.DB
	store   *sqlite.Store
	path    string
	options sqlite.Options
}

func (d *sqliteDatabase) Store() engine.Store { return d.store }

func (d *sqliteDatabase) Close() {
	_ = d.db.Close() // what was committed is on the disk
}

// there returns an error that names the file if there is none. SQLite's own does not.
func (d *sqliteDatabase) there() error {
	_, err := os.Stat(d.path)
	return err
}

func (d *sqliteDatabase) Version(ctx context.Context) (have, newest int, err error) {
	if err := d.there(); err != nil {
		return 0, 0, err
	}
	options := d.options
	options.Retention = nil
	report, err := sqlite.Migrate(ctx, d.db, &options, &sqlite.MigrateOptions{DryRun: true})
	return report.From, report.To, err
}

// Migrate makes the file if there is none.
func (d *sqliteDatabase) Migrate(ctx context.Context, dryRun bool) (Migration, error) {
	db := d.db
	if err := d.there(); errors.Is(err, fs.ErrNotExist) {
		if dryRun {
			return d.whole()
		}
		made, err := sql.Open("sqlite", sqlite.DSN(d.path)+"&mode=rwc")
		if err != nil {
			return Migration{}, err
		}
		defer made.Close() //nolint:errcheck // what was committed is on the disk
		db = made
	}
	report, err := sqlite.Migrate(ctx, db, &d.options, &sqlite.MigrateOptions{DryRun: dryRun})
	return sqliteMigration(report), err
}

// whole is what would be done to a file that isn't there.
func (d *sqliteDatabase) whole() (Migration, error) {
	all, err := sqlite.Migrations(&d.options)
	return sqliteMigration(sqlite.MigrateReport{To: len(all), Applied: all}), err
}

func sqliteMigration(report sqlite.MigrateReport) Migration {
	m := Migration{From: report.From, To: report.To, Retention: report.Retention}
	for _, step := range report.Applied {
		m.Steps = append(m.Steps, fmt.Sprintf("%d %s", step.Version, step.Name))
	}
	return m
}
