package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/mysql"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

func mysqlRelay(store string) string {
	return `
relays:
  - name: orders
    store: {dialect: mysql, ` + store + `}
    transports:
      main: {kind: nats, url: "nats://h"}
    routes:
      - {topics: [">"], to: main}
`
}

func TestMySQLFaults(t *testing.T) {
	for store, want := range map[string]string{
		`prefix: x_`:                                 "4:12: relays[0].store.url: it is missing; write it as in mysql://",
		`url: ""`:                                    "4:34: relays[0].store.url: it is empty; write it as in mysql://",
		`url: "u:hunter2@tcp(h:3306)/d"`:             "4:34: relays[0].store.url: it is not a MySQL connection URL",
		`url: "postgres://u:hunter2@h/d"`:            "4:34: relays[0].store.url: it is not a MySQL connection URL",
		`url: "mysql://u:hunter2%zz@h/d"`:            "4:34: relays[0].store.url: it is not a MySQL connection URL",
		`url: "mysql://u:hunter2@h"`:                 "4:34: relays[0].store.url: it names no database",
		`url: "mysql://h/d"`:                         "4:34: relays[0].store.url: it names no user",
		`url: "mysql://u:hunter2@/d"`:                "4:34: relays[0].store.url: it names no host",
		`url: "mysql://u:hunter2@h/d?charset=x"`:     "4:34: relays[0].store.url: it has a parameter other than tls and socket",
		`url: "mysql://u:hunter2@h/d?tls=maybe"`:     "4:34: relays[0].store.url: its parameter tls must be",
		`url: "mysql://u@h/d", schema: x`:            "4:59: relays[0].store.schema: unknown key",
		`url: "mysql://u@h/d", prefix: 1x`:           "4:59: relays[0].store.prefix: \"1x\" is not a name of letters",
		`url: "mysql://u@h/d", prefix: inbox_`:       "4:59: relays[0].store.prefix: prefix and inbox prefix are both",
		`url: "mysql://u@h/d", connections: 1`:       "4:64: relays[0].store.connections: it must be at least 2",
		`url: "mysql://u@h/d", discard_retention: 0`: "4:70: relays[0].store.discard_retention: it must be at least 1m",
	} {
		_, err := parseTest(t, mysqlRelay(store))
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), "test.yaml:"+want) {
			t.Errorf("%s: got %v, want %s", store, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a password is shown: %v", store, err)
		}
	}
}

func TestMySQLURL(t *testing.T) {
	for url, want := range map[string]string{
		"mysql://u:p@h/d":                            "u:p@tcp(h:3306)/d",
		"mariadb://u:p%40%2F@h:3307/d?tls=true":      "u:p@/@tcp(h:3307)/d",
		"mysql://u@[::1]/d":                          "u@tcp([::1]:3306)/d",
		"mysql://u:p@localhost/d?socket=/run/m.sock": "u:p@unix(/run/m.sock)/d",
	} {
		c, err := mysqlConfig(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := c.FormatDSN(); !strings.HasPrefix(got, want) || strings.Contains(url, "tls=true") != (c.TLSConfig == "true") {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	one, err := parseTest(t, mysqlRelay(`url: "mysql://u:one@h/d"`))
	if err != nil {
		t.Fatal(err)
	}
	two, err := parseTest(t, strings.Replace(mysqlRelay(`url: "mariadb://v:two@h:3306/d?tls=true"`), "mysql", "mariadb", 1))
	if err != nil {
		t.Fatal(err)
	}
	if one.Relays[0].table.identity() != two.Relays[0].table.identity() {
		t.Error("the same table by two URLs counts as two")
	}
}

// The database of a relay is migrated, read and rendered by what the file says.
func TestMySQLDatabase(t *testing.T) {
	testservers.Each(t, testservers.MySQL(), func(t *testing.T, dsn string) {
		user, rest, _ := strings.Cut(dsn, "@tcp(")
		address, rest, _ := strings.Cut(rest, ")/")
		name, _, _ := strings.Cut(rest, "?")
		id := engine.NewID()
		prefix := "c" + strings.ReplaceAll(id.String(), "-", "")[20:] + "_"
		c, err := parseTest(t, mysqlRelay(`url: "mysql://`+user+"@"+address+"/"+name+`", retention: 1h, prefix: `+prefix+`, inbox_prefix: i`+prefix))
		if err != nil {
			t.Fatal(err)
		}
		db, err := c.Relays[0].Open()
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		defer func() {
			d := db.(*mysqlDatabase)
			for _, statement := range []string{"VIEW " + prefix + "all", "TABLE " + prefix + "messages", "TABLE " + prefix + "archive", "TABLE " + prefix + "lanes",
				"TABLE " + prefix + "blocks", "TABLE " + prefix + "pauses", "TABLE " + prefix + "audit", "TABLE " + prefix + "schema", "TABLE i" + prefix + "messages"} {
				if _, err := d.db.Exec("DROP " + statement); err != nil {
					t.Error(err)
				}
			}
		}()
		have, newest, err := db.Version(t.Context())
		if err != nil || have != 0 || newest == 0 {
			t.Errorf("version %d of %d, %v", have, newest, err)
		}
		m, err := db.Migrate(t.Context(), false)
		if err != nil || m.To != newest || len(m.Steps) != newest {
			t.Fatalf("%+v, %v", m, err)
		}
		if have, _, err := db.Version(t.Context()); err != nil || have != newest {
			t.Errorf("version %d, %v", have, err)
		}
		if found := db.Store().(engine.Checker).Check(t.Context()); len(found) > 0 {
			t.Errorf("%+v", found)
		}
		if c, err := db.Store().Claim(t.Context(), engine.ClaimRequest{Limit: 1, Lease: time.Minute}); err != nil || len(c) > 0 {
			t.Errorf("%d claimed, %v", len(c), err)
		}
		files, err := c.Relays[0].Render(mysql.FormatSQL)
		if err != nil || len(files) != newest || !strings.Contains(files[0].Content, "`"+prefix+"messages`") {
			t.Errorf("%d files, %v", len(files), err)
		}
	})
}
