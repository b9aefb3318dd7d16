package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/engine"
)

// bare is a file without tables.
func bare(t *testing.T) *database {
	t.Helper()
	d := &database{t: t, path: filepath.Join(t.TempDir(), "bare.db"), opts: &Options{}}
	d.db = d.connect()
	var err error
	d.n, err = d.opts.names()
	must(t, err)
	d.w, err = NewWriter(nil)
	must(t, err)
	return d
}

func TestMigrate(t *testing.T) {
	d := bare(t)
	dry, err := Migrate(t.Context(), d.db, nil, &MigrateOptions{DryRun: true})
	if err != nil || dry.From != 0 || dry.To != schema.Version || len(dry.Applied) != schema.Version {
		t.Errorf("%+v %v", dry, err)
	}
	if n := one[int](d, `SELECT count(*) FROM sqlite_master`); n != 0 {
		t.Errorf("a dry run made %d things", n)
	}
	// Four at a time, from processes of their own: each step is done once.
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied := 0
	for range 4 {
		db := d.connect(noWait)
		wg.Go(func() {
			r, err := Migrate(t.Context(), db, nil, nil)
			if err != nil || r.To != schema.Version {
				t.Errorf("%+v %v", r, err)
			}
			mu.Lock()
			defer mu.Unlock()
			applied += len(r.Applied)
		})
	}
	wg.Wait()
	if applied != schema.Version {
		t.Errorf("%d steps were done by four at a time", applied)
	}
	for _, opts := range []*Options{nil, {}, {Retention: &DefaultRetention}} {
		if r, err := Migrate(t.Context(), d.db, opts, nil); err != nil || r.From != schema.Version || len(r.Applied) > 0 || r.Retention != "" {
			t.Errorf("once more: %+v %v", r, err)
		}
	}
	// Another outbox beside it shares the inbox.
	if r, err := Migrate(t.Context(), d.db, &Options{Prefix: "other_"}, nil); err != nil || r.From != 0 {
		t.Errorf("beside it: %+v %v", r, err)
	}
}

func TestMigrateRetention(t *testing.T) {
	d := bare(t)
	old := Retention{Published: time.Hour, Discarded: time.Hour}
	_, err := Migrate(t.Context(), d.db, &Options{Retention: &old}, nil)
	must(t, err)
	opts := &Options{Retention: &Retention{Published: 0, Metadata: true, Discarded: 2 * time.Hour}}
	s, err := NewStore(d.db, opts)
	must(t, err)
	if got := s.Check(t.Context()); len(got) != 1 || got[0].Code != "retention" || got[0].Level != engine.Fatal {
		t.Errorf("%+v", got)
	}
	for _, dry := range []bool{true, false} {
		if r, err := Migrate(t.Context(), d.db, opts, &MigrateOptions{DryRun: dry}); err != nil || !strings.Contains(r.Retention, "1h0m0s, archive full") || !strings.Contains(r.Retention, "archive metadata") {
			t.Errorf("%+v %v", r, err)
		}
	}
	if got := s.Check(t.Context()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	for _, r := range []Retention{{}, {Published: -1, Discarded: 1}} {
		if _, err := Migrate(t.Context(), d.db, &Options{Retention: &r}, nil); err == nil {
			t.Errorf("%v is accepted", r)
		}
	}
}

// TestMigrateFurther: a later step is done once, also when an earlier try of it
// failed half way, and today's program runs on tomorrow's schema.
func TestMigrateFurther(t *testing.T) {
	d := newDatabase(t, nil)
	n := len(steps)
	more := append(steps[:n:n], schema.Step{Name: "broken", MinClient: 1, SQL: "CREATE TABLE two (a);\nCREATE TABLE two (a);\n"})
	r, err := migrate(t.Context(), d.db, d.opts, nil, more)
	if err == nil || r.To != n || !strings.Contains(err.Error(), fmt.Sprintf("step %d (broken)", n+1)) {
		t.Errorf("%+v %v", r, err)
	}
	more[n] = schema.Step{Name: "two", MinClient: 1, SQL: "CREATE TABLE two (a);\n"}
	if r, err = migrate(t.Context(), d.db, d.opts, nil, more); err != nil || r.From != n || r.To != n+1 {
		t.Errorf("%+v %v", r, err)
	}
	s := d.open()
	if got := s.Check(t.Context()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	d.enqueue(msg("t", ""))
	if c := d.claim(s, req(1)); len(c) != 1 {
		t.Error("nothing came")
	}
	if _, err := Migrate(t.Context(), d.db, d.opts, nil); err != nil {
		t.Errorf("an older program's migrate: %v", err)
	}
}

// TestRendered: what is printed for other tools makes the same tables.
func TestRendered(t *testing.T) {
	for _, format := range []string{FormatSQL, FormatMigrate} {
		d, want := bare(t), bare(t)
		files, err := Render(format, nil)
		must(t, err)
		for _, f := range files {
			_, err := d.db.Exec(f.Content)
			must(t, err)
		}
		_, err = Migrate(t.Context(), want.db, nil, nil)
		must(t, err)
		const all = `SELECT group_concat(sql, char(10)) FROM (SELECT sql FROM sqlite_master ORDER BY name)`
		if one[string](d, all) != one[string](want, all) {
			t.Errorf("%s makes other tables", format)
		}
		if got := d.open().Check(t.Context()); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// TestCheck: what is wrong is found, by its code, and what is well is not.
func TestCheck(t *testing.T) {
	d := newDatabase(t, nil)
	find := func(s *Store, code string, level engine.Level) {
		t.Helper()
		found := s.Check(t.Context())
		if !slices.ContainsFunc(found, func(f engine.Finding) bool { return f.Code == code && f.Level == level && f.Text != "" }) {
			t.Errorf("%s was not found: %+v", code, found)
		}
	}
	s := d.open()
	if got := s.Check(t.Context()); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	with := func(do, undo, code string, level engine.Level) {
		t.Helper()
		d.exec(do)
		find(s, code, level)
		d.exec(undo)
	}
	with(`DELETE FROM {lanes} WHERE lane = 7`, `INSERT INTO {lanes} (lane) VALUES (7)`, "lanes", engine.Fatal)
	with(`UPDATE {schema_} SET min_client = 99`, `UPDATE {schema_} SET min_client = 1`, "schema_version", engine.Fatal)
	with(`UPDATE {schema_} SET version = 0`, `UPDATE {schema_} SET version = 1`, "schema_version", engine.Fatal)
	find(s, "schema_older", engine.Note)
	d.exec(`UPDATE {schema_} SET version = ?`, schema.Version)
	with(`UPDATE {schema_} SET archive = 'metadata'`, `UPDATE {schema_} SET archive = 'full'`, "retention", engine.Fatal)
	with(`DROP INDEX "{p}messages_ready"`, `CREATE INDEX "{p}messages_ready" ON {messages} (lane, seq) WHERE state = 0`, "index", engine.Warning)
	if got := s.Check(t.Context()); len(got) != 0 {
		t.Errorf("%+v", got)
	}

	find(d.store(d.connect(noWait)), "busy_timeout", engine.Warning)
	pragma := func(p string) *strings.Replacer { return strings.NewReplacer("&_txlock", "&_pragma="+p+"&_txlock") }
	find(d.store(d.connect(pragma("synchronous(0)"))), "synchronous", engine.Warning)
	find(d.store(d.connect(pragma("synchronous(1)"))), "synchronous", engine.Note)
	find(d.store(d.connect(strings.NewReplacer("?", "?mode=ro&"))), "read_only", engine.Fatal)
	find(d.store(d.connect(pragma("query_only(1)"))), "read_only", engine.Fatal)

	// Somebody keeps the lock.
	must(t, d.w.InTx(t.Context(), d.db, func(*Tx) error {
		ctx, cancel := contextWithin(t, time.Second)
		defer cancel()
		var levels []engine.Level
		for _, f := range d.store(d.connect(noWait)).Check(ctx) {
			levels = append(levels, f.Level)
		}
		if !slices.Contains(levels, engine.Retry) || slices.Contains(levels, engine.Fatal) {
			t.Errorf("while another writes: %v", levels)
		}
		return nil
	}))

	d.exec(`DROP TABLE {schema_}`)
	find(s, "schema_missing", engine.Fatal)
	if _, err := d.open().Claim(t.Context(), req(1)); !errors.Is(err, schema.ErrNone) || !strings.Contains(err.Error(), "outward migrate") {
		t.Errorf("a claim without a table: %v", err)
	}
}

func TestCheckJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	db, err := sql.Open("sqlite", strings.Replace(DSN(path), "(WAL)", "(DELETE)", 1))
	must(t, err)
	defer db.Close()
	_, err = Migrate(t.Context(), db, nil, nil)
	must(t, err)
	s, err := NewStore(db, nil)
	must(t, err)
	codes := func() (codes []string) {
		for _, f := range s.Check(t.Context()) {
			codes = append(codes, f.Code)
		}
		return codes
	}
	if got := codes(); !slices.Equal(got, []string{"journal_mode"}) {
		t.Errorf("in a rollback journal: %v", got)
	}
	// The same table without AUTOINCREMENT, as a tool that copies tables might leave it.
	var make string
	must(t, db.QueryRow(`SELECT sql FROM sqlite_master WHERE name = 'outbox_messages'`).Scan(&make))
	for _, query := range []string{`DROP VIEW outbox_all`, `DROP TABLE outbox_messages`, strings.Replace(make, " AUTOINCREMENT", "", 1)} {
		_, err := db.Exec(query)
		must(t, err)
	}
	if got := codes(); !slices.Contains(got, "autoincrement") {
		t.Errorf("without AUTOINCREMENT: %v", got)
	}
}

func TestCheckMemory(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	must(t, err)
	defer db.Close()
	s, err := NewStore(db, nil)
	must(t, err)
	if got := s.Check(t.Context()); len(got) != 1 || got[0].Code != "memory" || got[0].Level != engine.Fatal {
		t.Errorf("%+v", got)
	}
	db.SetMaxOpenConns(1)
	_, err = Migrate(t.Context(), db, nil, nil)
	must(t, err)
	if got := s.Check(t.Context()); len(got) != 1 || got[0].Code != "memory" || got[0].Level != engine.Warning {
		t.Errorf("%+v", got)
	}
}

func TestCheckFile(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "no.db"), []byte(strings.Repeat("no database ", 1000)), 0o600))
	for path, code := range map[string]string{filepath.Join(dir, "missing", "app.db"): "unreachable", filepath.Join(dir, "no.db"): "corrupt"} {
		db, err := sql.Open("sqlite", DSN(path))
		must(t, err)
		s, err := NewStore(db, nil)
		must(t, err)
		if got := s.Check(t.Context()); len(got) != 1 || got[0].Code != code {
			t.Errorf("%s: %+v", path, got)
		}
		must(t, db.Close())
	}
	if _, err := NewStore(nil, &Options{Prefix: "a b"}); err == nil || !strings.Contains(err.Error(), "nil") || !strings.Contains(err.Error(), "prefix") {
		t.Errorf("not all faults at once: %v", err)
	}
}
