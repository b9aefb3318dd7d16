package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/dialects/postgres"
	"github.com/outward-dev/outward/engine"
)

var postgresDialect = dialect{name: "postgres", read: readPostgres}

// postgresTable implements table.
type postgresTable struct {
	url         secret
	connections int
	options     postgres.Options
}

const postgresURL = "write it as in postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full"

func readPostgres(m *mapping) table {
	faults := len(m.r.faults)
	t := &postgresTable{}
	var ok bool
	t.url, ok = m.secretURL("url", postgresURL)
	if ok {
		if err := checkPostgresURL(t.url()); err != nil {
			m.fault("url", "%v", err)
		}
	}
	t.options.Schema = m.pattern("schema", "public", identifierPattern, identifierWords)
	t.options.Prefix = m.pattern("prefix", "outbox_", identifierPattern, identifierWords)
	t.options.InboxPrefix = m.pattern("inbox_prefix", "inbox_", identifierPattern, identifierWords)
	t.connections = m.number("connections", 4, 2, 1000)
	t.options.Retention = (*postgres.Retention)(readRetention(m, retention(postgres.DefaultRetention)))
	if len(m.r.faults) > faults {
		return nil
	}
	if _, err := postgres.Migrations(&t.options); err != nil {
		key := blame(m, "prefix", "inbox_prefix", "schema")
		if m.at("prefix").expanded || m.at("inbox_prefix").expanded || m.at("schema").expanded {
			err = errors.New("schema, prefix and inbox_prefix can't be used as names in PostgreSQL; they may be too long, or the same")
		}
		m.fault(key, "%s", oneLine(strings.TrimPrefix(err.Error(), "postgres: migrate: ")))
		return nil
	}
	return t
}

// checkPostgresURL reports what is wrong with a connection string, with none of it
// in the text unless it is sure to be harmless.
func checkPostgresURL(dsn string) error {
	general := errors.New("it is not a PostgreSQL connection URL; " + postgresURL +
		", with the special characters of user and password percent-encoded (%40 for @, %2F for /)")
	isURL := strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
	if !isURL && (strings.Contains(dsn, "://") || !strings.Contains(dsn, "=")) { // the other form is host=... dbname=...
		return general
	}
	_, err := pgxpool.ParseConfig(dsn)
	if err == nil {
		return nil
	}
	u, notURL := url.Parse(dsn)
	if notURL != nil {
		return general
	}
	detail := err
	for inner := errors.Unwrap(detail); inner != nil; inner = errors.Unwrap(detail) {
		detail = inner
	}
	secrets := []string{dsn, u.RawQuery, u.EscapedPath()}
	if u.User != nil {
		password, _ := u.User.Password()
		secrets = append(secrets, password, u.User.String())
	}
	for _, s := range secrets {
		if len(s) > 1 && strings.Contains(detail.Error(), s) {
			return general
		}
	}
	if u.User == nil { // what stands before an @ that is none may have come from a password
		return general
	}
	return fmt.Errorf("it is not a usable PostgreSQL connection URL: %w", detail)
}

func (t *postgresTable) identity() string {
	return strings.Join([]string{"postgres", t.url(), t.options.Schema, t.options.Prefix}, "\x00")
}

func (t *postgresTable) render(format string) ([]File, error) {
	files, err := postgres.Render(format, &t.options)
	if err != nil {
		return nil, err
	}
	out := make([]File, len(files))
	for i, f := range files {
		out[i] = File(f)
	}
	return out, nil
}

// connectTimeout bounds one attempt to reach a database, where the URL says nothing
// of it.
const connectTimeout = 5 * time.Second

func (t *postgresTable) open(relay string, log *slog.Logger) (Database, error) {
	conf, err := pgxpool.ParseConfig(t.url())
	if err != nil {
		return nil, checkPostgresURL(t.url()) // the driver's own error may quote the password
	}
	conf.MaxConns = int32(t.connections)
	conf.MinConns, conf.MinIdleConns = 0, 0 // no connection before the first use
	if u, err := url.Parse(t.url()); err == nil && u.Query().Get("connect_timeout") == "" {
		conf.ConnConfig.ConnectTimeout = connectTimeout
	}
	if conf.ConnConfig.RuntimeParams["application_name"] == "" {
		conf.ConnConfig.RuntimeParams["application_name"] = "outward/" + relay
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), conf)
	if err != nil {
		return nil, err
	}
	options := t.options
	options.Logger = log
	store, err := postgres.NewStore(pool, &options)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &postgresDatabase{pool: pool, store: store, options: t.options}, nil
}

// postgresDatabase implements Database.
type postgresDatabase struct {
	pool    *pgxpool.Pool
	store   *postgres.Store
	options postgres.Options
}

func (d *postgresDatabase) Store() engine.Store { return d.store }

func (d *postgresDatabase) Close() { d.pool.Close() }

func (d *postgresDatabase) Version(ctx context.Context) (have, newest int, err error) {
	options := d.options
	options.Retention = nil
	report, err := postgres.Migrate(ctx, d.pool, &options, &postgres.MigrateOptions{DryRun: true})
	return report.From, report.To, err
}

func (d *postgresDatabase) Migrate(ctx context.Context, dryRun bool) (Migration, error) {
	report, err := postgres.Migrate(ctx, d.pool, &d.options, &postgres.MigrateOptions{DryRun: dryRun})
	m := Migration{From: report.From, To: report.To, Retention: report.Retention}
	for _, step := range report.Applied {
		m.Steps = append(m.Steps, fmt.Sprintf("%d %s", step.Version, step.Name))
	}
	return m, err
}
