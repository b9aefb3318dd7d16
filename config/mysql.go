package config

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/outward-dev/outward/dialects/mysql"
	"github.com/outward-dev/outward/engine"
)

// MariaDB is the same dialect by the name that its users look for.
var (
	mysqlDialect   = dialect{name: "mysql", read: readMySQL}
	mariadbDialect = dialect{name: "mariadb", read: readMySQL}
)

// mysqlTable implements table.
type mysqlTable struct {
	url         secret
	connections int
	options     mysql.Options
}

const mysqlURL = "write it as in mysql://USER:PASSWORD@HOST:3306/DATABASE?tls=true"

func readMySQL(m *mapping) table {
	faults := len(m.r.faults)
	t := &mysqlTable{}
	var ok bool
	t.url, ok = m.secretURL("url", mysqlURL)
	if ok {
		if _, err := mysqlConfig(t.url()); err != nil {
			m.fault("url", "%v", err)
		}
	}
	t.options.Prefix = m.pattern("prefix", "outbox_", identifierPattern, identifierWords)
	t.options.InboxPrefix = m.pattern("inbox_prefix", "inbox_", identifierPattern, identifierWords)
	t.connections = m.number("connections", 4, 2, 1000)
	t.options.Retention = (*mysql.Retention)(readRetention(m, retention(mysql.DefaultRetention)))
	if len(m.r.faults) > faults {
		return nil
	}
	if _, err := mysql.Migrations(&t.options); err != nil {
		key := blame(m, "prefix", "inbox_prefix")
		if m.at("prefix").expanded || m.at("inbox_prefix").expanded {
			err = errors.New("prefix and inbox_prefix can't be used for names in MySQL; they may be too long, or the same")
		}
		m.fault(key, "%s", oneLine(strings.TrimPrefix(err.Error(), "mysql: migrate: ")))
		return nil
	}
	return t
}

// mysqlTLS are the words of the parameter tls, and what the driver calls them.
var mysqlTLS = map[string]string{"": "", "false": "", "true": "true", "skip-verify": "skip-verify", "preferred": "preferred"}

// mysqlConfig makes of a URL what the driver takes. How sessions are set up is the
// dialect's own business, so there are few parameters. Its errors have nothing of raw
// in them.
func mysqlConfig(raw string) (*driver.Config, error) {
	general := errors.New("it is not a MySQL connection URL; " + mysqlURL +
		", with the special characters of user and password percent-encoded (%40 for @, %2F for /)")
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "mysql" && u.Scheme != "mariadb" || u.Opaque != "" || u.Fragment != "" {
		return nil, general
	}
	c := driver.NewConfig()
	if u.User != nil {
		c.User = u.User.Username()
		c.Passwd, _ = u.User.Password()
	}
	switch c.DBName = strings.TrimPrefix(u.Path, "/"); {
	case c.DBName == "" || strings.Contains(c.DBName, "/"):
		return nil, errors.New("it names no database; " + mysqlURL)
	case u.User == nil || c.User == "":
		return nil, errors.New("it names no user; " + mysqlURL)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, general
	}
	var faults []error
	for key, values := range query {
		switch {
		case key != "tls" && key != "socket":
			faults = append(faults, errors.New("it has a parameter other than tls and socket; a relay sets up its sessions in the one way that its promises need"))
		case len(values) > 1:
			faults = append(faults, fmt.Errorf("it has the parameter %s twice", key))
		}
	}
	tls, known := mysqlTLS[query.Get("tls")]
	if !known {
		faults = append(faults, errors.New("its parameter tls must be true, skip-verify, preferred or false"))
	}
	c.TLSConfig = tls
	c.Net, c.Addr = "tcp", u.Host
	switch socket := query.Get("socket"); {
	case socket != "":
		c.Net, c.Addr = "unix", socket
	case u.Hostname() == "":
		faults = append(faults, errors.New("it names no host; "+mysqlURL))
	case u.Port() == "":
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if len(faults) > 0 {
		return nil, faults[0]
	}
	c.Timeout = connectTimeout
	return c, nil
}

func (t *mysqlTable) identity() string {
	c, err := mysqlConfig(t.url())
	if err != nil {
		return "mysql" // it was checked when it was read
	}
	return strings.Join([]string{"mysql", c.Net, c.Addr, c.DBName, t.options.Prefix}, "\x00")
}

func (t *mysqlTable) render(format string) ([]File, error) {
	files, err := mysql.Render(format, &t.options)
	if err != nil {
		return nil, err
	}
	out := make([]File, len(files))
	for i, f := range files {
		out[i] = File(f)
	}
	return out, nil
}

// idleConnection is how long a connection may rest: shorter than what proxies and
// firewalls allow.
const idleConnection = 3 * time.Minute

func (t *mysqlTable) open(_ string, log *slog.Logger) (Database, error) {
	conf, err := mysqlConfig(t.url())
	if err != nil {
		return nil, err
	}
	connector, err := driver.NewConnector(conf)
	if err != nil {
		return nil, errors.New("it is not a MySQL connection URL; " + mysqlURL) // the driver's own error may quote it
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(t.connections)
	db.SetMaxIdleConns(t.connections)
	db.SetConnMaxIdleTime(idleConnection)
	options := t.options
	options.Logger = log
	store, err := mysql.NewStore(db, &options)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &mysqlDatabase{db: db, store: store, options: t.options}, nil
}

// mysqlDatabase implements Database.
type mysqlDatabase struct {
	db      *sql.DB
	store   *mysql.Store
	options mysql.Options
}

func (d *mysqlDatabase) Store() engine.Store { return d.store }

func (d *mysqlDatabase) Close() {
	_ = d.db.Close() // nothing of it is unfinished
}

func (d *mysqlDatabase) Version(ctx context.Context) (have, newest int, err error) {
	options := d.options
	options.Retention = nil
	report, err := mysql.Migrate(ctx, d.db, &options, &mysql.MigrateOptions{DryRun: true})
	return report.From, report.To, err
}

func (d *mysqlDatabase) Migrate(ctx context.Context, dryRun bool) (Migration, error) {
	report, err := mysql.Migrate(ctx, d.db, &d.options, &mysql.MigrateOptions{DryRun: dryRun})
	m := Migration{From: report.From, To: report.To, Retention: report.Retention}
	for _, step := range report.Applied {
		m.Steps = append(m.Steps, fmt.Sprintf("%d %s", step.Version, step.Name))
	}
	return m, err
}
