package mysql

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// bare is a database without the tables.
func bare(t *testing.T, dsn string) *database {
	t.Helper()
	id := engine.NewID()
	d := &database{t: t, dsn: dsn, opts: &Options{Prefix: fmt.Sprintf("m_%x_", id[6:]), InboxPrefix: fmt.Sprintf("mi_%x_", id[6:])}}
	d.db = d.connect()
	var err error
	d.n, err = d.opts.names()
	must(t, err)
	t.Cleanup(d.drop)
	return d
}

func TestMigrate(t *testing.T) {
	testservers.Each(t, testservers.MySQL(), func(t *testing.T, dsn string) {
		d := bare(t, dsn)
		dry, err := Migrate(t.Context(), d.db, d.opts, &MigrateOptions{DryRun: true})
		if err != nil || dry.From != 0 || dry.To != schema.Version || len(dry.Applied) != schema.Version {
			t.Fatalf("%+v, %v", dry, err)
		}
		if _, err := d.open().Claim(t.Context(), req(1)); !errors.Is(err, schema.ErrNone) || !strings.Contains(err.Error(), "outward migrate") {
			t.Errorf("without the tables: %v", err)
		}
		var both sync.WaitGroup
		var mu sync.Mutex
		applied := 0
		for range 4 {
			db := d.connect()
			both.Go(func() {
				r, err := Migrate(t.Context(), db, d.opts, nil)
				if err != nil || r.To != schema.Version {
					t.Errorf("%+v, %v", r, err)
				}
				mu.Lock()
				defer mu.Unlock()
				applied += len(r.Applied)
			})
		}
		both.Wait()
		if applied != schema.Version {
			t.Errorf("%d steps were done by four at once", applied)
		}
		other := *d.opts
		other.Retention = &Retention{Published: time.Hour, Metadata: true, Discarded: 2 * time.Hour}
		r, err := Migrate(t.Context(), d.db, &other, nil)
		if err != nil || !strings.Contains(r.Retention, "->") {
			t.Errorf("%+v, %v", r, err)
		}
		have, err := readSettings(t.Context(), d.db, d.n)
		if err != nil || have.Retention != *other.Retention {
			t.Errorf("%+v, %v", have, err)
		}
	})
}

// A migration that was cut short at any statement goes on when it is run again.
func TestMigrationIsResumed(t *testing.T) {
	testservers.Each(t, testservers.MySQL(), func(t *testing.T, dsn string) {
		d := bare(t, dsn)
		ms, err := Migrations(d.opts)
		must(t, err)
		first := split(ms[0].SQL)
		for n := range len(first) - 1 {
			for _, statement := range first[:n+1] {
				d.exec(statement)
			}
		}
		r, err := Migrate(t.Context(), d.db, d.opts, nil)
		if err != nil || r.From != 0 || r.To != schema.Version {
			t.Fatalf("%+v, %v", r, err)
		}
		for _, f := range d.open().Check(t.Context()) {
			t.Errorf("%v %s: %s", f.Level, f.Code, f.Text)
		}
	})
}

func TestCheck(t *testing.T) {
	testservers.Each(t, testservers.MySQL(), func(t *testing.T, dsn string) {
		d := bare(t, dsn)
		find := func(s *Store, code string, level engine.Level) {
			t.Helper()
			for _, f := range s.Check(t.Context()) {
				if f.Code == code && f.Level == level {
					return
				}
			}
			t.Errorf("no finding %s of level %v: %+v", code, level, s.Check(t.Context()))
		}
		find(d.open(), "schema_missing", engine.Fatal)
		_, err := Migrate(t.Context(), d.db, d.opts, nil)
		must(t, err)
		if found := d.open().Check(t.Context()); len(found) > 0 {
			t.Errorf("%+v", found)
		}
		find(d.store(d.connect("autocommit=0")), "autocommit", engine.Fatal)
		find(d.store(d.connect("auto_increment_increment=2")), "auto_increment", engine.Fatal)
		d.exec(`DELETE FROM {lanes} WHERE lane = 7`)
		find(d.open(), "lanes", engine.Fatal)
		d.exec("DROP INDEX `{p}messages_due` ON {messages}")
		find(d.open(), "index", engine.Warning)
		d.exec(`UPDATE {schema_} SET min_client = 99`)
		find(d.open(), "schema_version", engine.Fatal)
		d.exec(`UPDATE {schema_} SET min_client = 1`)
		d.opts.Retention = &Retention{Published: time.Minute, Discarded: time.Hour}
		find(d.open(), "retention", engine.Fatal)
		gone := &database{t: t, dsn: "root:wrong@tcp(127.0.0.1:1)/x?timeout=1s", opts: d.opts}
		find(gone.open(), "unreachable", engine.Retry)
		for _, f := range gone.open().Check(t.Context()) {
			if strings.Contains(f.Text, "wrong") {
				t.Errorf("a password is shown: %s", f.Text)
			}
		}
	})
}
