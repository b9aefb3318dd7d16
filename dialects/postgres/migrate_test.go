package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// bare is a database of its own without a schema.
func bare(t *testing.T, dsn string) *database {
	t.Helper()
	db := newDatabase(t, dsn, nil)
	db.exec(`DROP SCHEMA {schema} CASCADE`)
	return db
}

func TestMigrate(t *testing.T) {
	testservers.Each(t, testservers.Postgres(), func(t *testing.T, dsn string) {
		db := bare(t, dsn)
		opts := &Options{Schema: db.opts.Schema}
		report, err := Migrate(t.Context(), db.pool, opts, &MigrateOptions{DryRun: true})
		if err != nil || report.From != 0 || report.To != schema.Version || len(report.Applied) != schema.Version {
			t.Errorf("dry run: %+v %v", report, err)
		}
		if one[bool](db, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, db.opts.Schema) {
			t.Error("a dry run made a schema")
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		applied := 0
		for range 4 {
			wg.Go(func() {
				r, err := Migrate(t.Context(), db.pool, opts, nil)
				mu.Lock()
				defer mu.Unlock()
				applied += len(r.Applied)
				if err != nil || r.To != schema.Version {
					t.Errorf("%+v %v", r, err)
				}
			})
		}
		wg.Wait()
		if applied != schema.Version {
			t.Errorf("%d steps were done by four at a time", applied)
		}
		s := db.open()
		if got := s.Check(t.Context()); len(got) != 1 || got[0].Code != "retention" { // this store wants the tests' one
			t.Errorf("%+v", got)
		}
		have, err := readSettings(t.Context(), db.pool, db.n)
		if err != nil || have.Retention != DefaultRetention {
			t.Errorf("%+v %v", have, err)
		}
		r, err := Migrate(t.Context(), db.pool, db.opts, &MigrateOptions{DryRun: true})
		if err != nil || r.Retention == "" {
			t.Errorf("%+v %v", r, err)
		}
		if r, err = Migrate(t.Context(), db.pool, db.opts, nil); err != nil || r.Retention == "" || len(r.Applied) != 0 {
			t.Errorf("%+v %v", r, err)
		}
		if r, err = Migrate(t.Context(), db.pool, db.opts, nil); err != nil || r.Retention != "" {
			t.Errorf("%+v %v", r, err)
		}
		if got := s.Check(t.Context()); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestMigrateFurther: a later step is done once, also when an earlier try of it
// failed half way.
func TestMigrateFurther(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		n := len(steps)
		more := append(steps[:n:n], schema.Step{Name: "broken", MinClient: 1, SQL: "CREATE TABLE {schema}.two (a int);\nCREATE TABLE {schema}.two (a int);\n"})
		r, err := migrate(t.Context(), db.pool, db.opts, nil, more)
		if err == nil || r.To != n || !strings.Contains(err.Error(), fmt.Sprintf("step %d (broken)", n+1)) {
			t.Errorf("%+v %v", r, err)
		}
		more[n] = schema.Step{Name: "two", MinClient: 1, SQL: "CREATE TABLE {schema}.two (a int);\n"}
		if r, err = migrate(t.Context(), db.pool, db.opts, nil, more); err != nil || r.From != n || r.To != n+1 {
			t.Errorf("%+v %v", r, err)
		}
		if got := one[int](db, `SELECT version FROM {schema_}`); got != n+1 {
			t.Errorf("version %d", got)
		}
		// Today's program on tomorrow's schema.
		s := db.open()
		if got := s.Check(t.Context()); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		db.enqueue(msg("t", ""))
		if c := db.claim(s, req(1)); len(c) != 1 {
			t.Error("nothing came")
		}
		if _, err := Migrate(t.Context(), db.pool, db.opts, nil); err != nil {
			t.Errorf("an older program's migrate: %v", err)
		}
	})
}

// TestRendered: what is printed for other tools makes the same tables.
func TestRendered(t *testing.T) {
	testservers.Each(t, testservers.Postgres(), func(t *testing.T, dsn string) {
		db := bare(t, dsn)
		files, err := Render(FormatSQL, db.opts)
		must(t, err)
		for _, f := range files {
			c, err := db.pool.Acquire(t.Context())
			must(t, err)
			_, err = c.Conn().PgConn().Exec(t.Context(), f.Content).ReadAll()
			c.Release()
			must(t, err)
		}
		s := db.open()
		if got := s.Check(t.Context()); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		db.enqueue(msg("t", "k"))
		if c := db.claim(s, req(1)); len(c) != 1 {
			t.Error("nothing came")
		}
	})
}

// TestNames: upper case and the longest prefix work as well as the defaults.
func TestNames(t *testing.T) {
	testservers.Each(t, testservers.Postgres(), func(t *testing.T, dsn string) {
		db := bare(t, dsn)
		db.opts.Prefix = "Order_" + strings.Repeat("x", 21) + "_"
		var err error
		db.n, err = db.opts.names()
		must(t, err)
		_, err = Migrate(t.Context(), db.pool, db.opts, nil)
		must(t, err)
		db.w, err = NewWriter(db.opts)
		must(t, err)
		s := db.open()
		if got := s.Check(t.Context()); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		signals, err := s.Listen(ctx)
		must(t, err)
		wait(t, signals) // it listens
		db.enqueue(msg("t", "k"))
		must(t, db.w.Notify(t.Context(), db.pool))
		wait(t, signals)
		if c := db.claim(s, req(1)); len(c) != 1 {
			t.Error("nothing came")
		}
	})
}

func wait(t *testing.T, signals <-chan struct{}) {
	t.Helper()
	select {
	case _, open := <-signals:
		if !open {
			t.Fatal("the channel was closed")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no signal in 30 s")
	}
}

// TestListen: a connection that is killed is made again, and a signal follows; the
// listener holds neither transaction nor snapshot (graphile_worker_rs PR#456).
func TestListen(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = db.opts.Schema })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		signals, err := s.Listen(ctx)
		must(t, err)
		wait(t, signals)
		const listener = `FROM pg_stat_activity WHERE application_name = $1 AND query LIKE 'LISTEN%'`
		if n := one[int](db, `SELECT count(*) `+listener, db.opts.Schema); n != 1 {
			t.Fatalf("%d listeners", n)
		}
		if n := one[int](db, `SELECT count(*) `+listener+` AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL)`, db.opts.Schema); n != 0 {
			t.Error("the listener holds a transaction or a snapshot")
		}
		db.exec(`SELECT pg_terminate_backend(pid) `+listener, db.opts.Schema)
		wait(t, signals)
		must(t, db.w.Notify(t.Context(), db.pool))
		wait(t, signals)

		w, err := NewWriter(&Options{Schema: db.opts.Schema, NotifyInTx: true})
		must(t, err)
		tx, err := db.pool.Begin(t.Context())
		must(t, err)
		_, err = w.Enqueue(t.Context(), tx, msg("t", ""))
		must(t, err)
		must(t, tx.Commit(t.Context()))
		wait(t, signals)
		cancel()
		for range signals {
		}
		if _, err := s.Listen(ctx); err == nil {
			t.Error("listens although its context is over")
		}
	})
}

// TestCheck: each thing that would break a promise is found by name.
func TestCheck(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		find := func(code string, level engine.Level) {
			t.Helper()
			for _, f := range s.Check(t.Context()) {
				if f.Code == code {
					if f.Level != level || f.Text == "" || f.Fix == "" {
						t.Errorf("%+v, want level %v", f, level)
					}
					return
				}
			}
			t.Errorf("%s was not found", code)
		}
		if got := s.Check(t.Context()); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		with := func(do, undo, code string, level engine.Level) {
			t.Helper()
			db.exec(do)
			find(code, level)
			db.exec(undo)
		}
		with(`ALTER TABLE {messages} ALTER COLUMN seq SET CACHE 50`, `ALTER TABLE {messages} ALTER COLUMN seq SET CACHE 1`, "sequence_cache", engine.Fatal)
		with(`ALTER TABLE {messages} ALTER COLUMN seq SET INCREMENT BY 2`, `ALTER TABLE {messages} ALTER COLUMN seq SET INCREMENT BY 1`, "sequence_increment", engine.Fatal)
		with(`ALTER TABLE {messages} ALTER COLUMN seq SET CYCLE`, `ALTER TABLE {messages} ALTER COLUMN seq SET NO CYCLE`, "sequence_cycle", engine.Fatal)
		with(`DELETE FROM {lanes} WHERE lane = 7`, `INSERT INTO {lanes} (lane) VALUES (7)`, "lanes", engine.Fatal)
		with(`ALTER TABLE {messages} SET (autovacuum_enabled = false)`, `ALTER TABLE {messages} RESET (autovacuum_enabled)`, "autovacuum_table", engine.Warning)
		with(`UPDATE {schema_} SET min_client = 99`, `UPDATE {schema_} SET min_client = 1`, "schema_version", engine.Fatal)
		with(`UPDATE {schema_} SET version = 0`, fmt.Sprintf(`UPDATE {schema_} SET version = %d`, schema.Version), "schema_version", engine.Fatal)
		with(`UPDATE {schema_} SET archive = 'metadata'`, `UPDATE {schema_} SET archive = 'full'`, "retention", engine.Fatal)
		with(`DROP INDEX {schema}."{p}messages_ready"`, `CREATE INDEX "{p}messages_ready" ON {messages} (lane, seq NULLS FIRST) WHERE state = 0`, "index", engine.Warning)
		if got := s.Check(t.Context()); len(got) != 0 {
			t.Errorf("%+v", got)
		}
		db.exec(`DROP SCHEMA {schema} CASCADE`)
		find("schema_missing", engine.Fatal)
		if _, err := db.open().Claim(t.Context(), req(1)); err == nil || !strings.Contains(err.Error(), "outward migrate") {
			t.Errorf("a claim without a table: %v", err)
		}
	})
}
