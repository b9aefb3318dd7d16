package config

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/sqlite"
	"github.com/outward-dev/outward/engine"
)

func sqliteRelay(store string) string {
	return `
relays:
  - name: orders
    store: {dialect: sqlite, ` + store + `}
    transports:
      main: {kind: nats, url: "nats://h"}
    routes:
      - {topics: [">"], to: main}
`
}

func TestSQLiteFaults(t *testing.T) {
	for store, want := range map[string]string{
		`prefix: x_`:                          "4:12: relays[0].store.url: it is missing; write it as in file:/var/lib/app/orders.db",
		`url: ""`:                             "4:35: relays[0].store.url: it is empty; write it as in file:",
		`url: "${ORDERS_DB}"`:                 "4:35: relays[0].store.url: it does not begin with file:",
		`url: /var/lib/app/orders.db`:         "4:35: relays[0].store.url: it does not begin with file:",
		`url: "file:"`:                        "4:35: relays[0].store.url: it names no file",
		`url: "file:/var/lib/"`:               "4:35: relays[0].store.url: it names no file",
		`url: "file::memory:"`:                "4:35: relays[0].store.url: a database in memory is seen by one connection alone",
		`url: "file:x.db?mode=memory"`:        "4:35: relays[0].store.url: it has parameters",
		`url: "file://other/x.db"`:            "4:35: relays[0].store.url: it names a host",
		`url: "file:100%.db"`:                 "4:35: relays[0].store.url: it contains a % that begins no percent-encoding",
		`url: "file:%00.db"`:                  "4:35: relays[0].store.url: it contains a NUL",
		`url: "file:x", schema: public`:       "4:53: relays[0].store.schema: unknown key",
		`url: "file:x", prefix: 1x`:           "4:53: relays[0].store.prefix: \"1x\" is not a name of letters",
		`url: "file:x", prefix: sqlite_x_`:    "4:53: relays[0].store.prefix: prefix \"sqlite_x_\": SQLite keeps names",
		`url: "file:x", prefix: inbox_`:       "4:53: relays[0].store.prefix: prefix and inbox prefix are both",
		`url: "file:x", inbox_prefix: a-b`:    "4:59: relays[0].store.inbox_prefix: \"a-b\" is not a name of letters",
		`url: "file:x", connections: 0`:       "4:58: relays[0].store.connections: it must be at least 1",
		`url: "file:x", retention: 1`:         "4:56: relays[0].store.retention: \"1\" has no unit",
		`url: "file:x", discard_retention: 0`: "4:64: relays[0].store.discard_retention: it must be at least 1m",
	} {
		_, err := parseTest(t, sqliteRelay(store))
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), "test.yaml:"+want) {
			t.Errorf("%s: got %v, want %s", store, err, want)
		}
	}
}

func TestSQLitePaths(t *testing.T) {
	for url, want := range map[string]string{
		"file:/var/lib/app/orders.db":   "/var/lib/app/orders.db",
		"file:///var/lib/app/orders.db": "/var/lib/app/orders.db",
		"file://localhost/var/lib/a.db": "/var/lib/a.db",
		"file:/a%20b%3Fc%23d%25.db":     "/a b?c#d%.db",
		"file:/a b.db":                  "/a b.db",
		"file:relative.db":              "relative.db",
	} {
		if got, err := sqlitePath(url); got != want || err != nil {
			t.Errorf("sqlitePath(%q) = %q, %v, want %q", url, got, err, want)
		}
	}
}

func TestSQLiteInEffect(t *testing.T) {
	files["ca.pem"] = testCA
	defer delete(files, "ca.pem")
	c, err := parse("full.yaml", read(t, "full.yaml"), testSource())
	if err != nil {
		t.Fatal(err)
	}
	table := c.Relay("embedded").table.(*sqliteTable)
	keep := sqlite.Retention{Published: 24 * time.Hour, Metadata: true, Discarded: 2160 * time.Hour}
	if table.path != "/var/lib/app/orders of 7.db" || table.options.Prefix != "ob_" || table.options.InboxPrefix != "ib_" || table.connections != 2 || *table.options.Retention != keep {
		t.Errorf("%+v", table)
	}
}

var claimOne = engine.ClaimRequest{Worker: "test", Limit: 1, Lease: time.Minute}

// Only migrate makes the file, and a dry run does not.
func TestSQLiteFileIsMadeByMigrateAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a ?#%.db")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := Load(write("c.yaml", sqliteRelay(`url: "file:a %3F%23%25.db", retention: 1h`)))
	if err != nil {
		t.Fatal(err)
	}
	db, err := c.Relays[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx := t.Context()
	if _, _, err := db.Version(ctx); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), file) {
		t.Errorf("Version: %v", err)
	}
	if _, err := db.Store().Claim(ctx, claimOne); err == nil {
		t.Error("a claim from a file that isn't there succeeded")
	}
	steps, err := sqlite.Migrations(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := db.Migrate(ctx, true)
	if err != nil || m.From != 0 || m.To != len(steps) || len(m.Steps) != len(steps) || m.Steps[0] != "1 outbox" {
		t.Errorf("dry run: %+v, %v", m, err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the file is there: %v", err)
	}
	if m, err = db.Migrate(ctx, false); err != nil || m.From != 0 || m.To != len(steps) || len(m.Steps) != len(steps) {
		t.Errorf("migrate: %+v, %v", m, err)
	}
	if have, newest, err := db.Version(ctx); have != len(steps) || newest != len(steps) || err != nil {
		t.Errorf("Version: %d of %d, %v", have, newest, err)
	}
	if _, err := db.Store().Claim(ctx, claimOne); err != nil {
		t.Errorf("a claim from the file that is there now: %v", err)
	}
	other, err := sql.Open("sqlite", sqlite.DSN(file))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var mode string
	if err := other.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("journal mode %q, %v", mode, err)
	}

	c, err = Load(write("c.yaml", sqliteRelay(`url: "file:a %3F%23%25.db", retention: 2h`)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Relays[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, dry := range []bool{true, false} {
		if m, err := again.Migrate(context.Background(), dry); err != nil || !strings.Contains(m.Retention, "retention 1h0m0s") || !strings.Contains(m.Retention, "retention 2h0m0s") {
			t.Errorf("dry run %v: %+v, %v", dry, m, err)
		}
	}
}

// Two relays on one file in one process would take each other's work.
func TestSQLiteTwoOfATable(t *testing.T) {
	text := sqliteRelay(`url: "file:x.db"`)
	_, err := parseTest(t, text+strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(text, "\nrelays:\n"), "name: orders", "name: more"), "file:x.db", "file:./x.db"))
	if err == nil || !strings.Contains(err.Error(), "works on this table already") {
		t.Errorf("got %v", err)
	}
}
