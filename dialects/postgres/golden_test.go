package postgres

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file under testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs from what is sent; look at it with: go test ./dialects/postgres -run Golden -update && git diff", file)
	}
}

// TestGoldenSQL shows every statement as it is really sent.
func TestGoldenSQL(t *testing.T) {
	opts := &Options{Schema: "app", Prefix: "outbox_"}
	n, err := opts.names()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	write := func(name, sql string) {
		b.WriteString("-- " + name + "\n" + strings.TrimSpace(sql) + ";\n\n")
	}
	for _, st := range newStatements(n).all() {
		write(st.name, st.sql)
	}
	golden(t, "store.golden", b.String())

	b.Reset()
	w, err := NewWriter(opts)
	if err != nil {
		t.Fatal(err)
	}
	write("enqueue", w.insertSQL)
	write("enqueue through database/sql, one row", w.valuesSQL[0])
	write("enqueue through database/sql, two rows", w.valuesSQL[1])
	write("take out again", w.undoSQL)
	write("serialize keys", w.keysSQL)
	write("notify", w.notifySQL)
	golden(t, "writer.golden", b.String())

	for _, format := range []string{FormatSQL, FormatGoose, FormatMigrate, FormatAtlas} {
		files, err := Render(format, opts)
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
		for _, f := range files {
			b.WriteString("-- file: " + f.Name + "\n" + f.Content)
		}
		if format == FormatSQL {
			golden(t, "migrations.golden", b.String())
		} else if !strings.Contains(b.String(), `CREATE TABLE "app"."outbox_messages"`) || strings.Contains(b.String(), "{") && strings.Contains(b.String(), "{messages}") {
			t.Errorf("%s: %.300s", format, b.String())
		}
	}
	if _, err := Render("flyway", opts); err == nil {
		t.Error("an unknown format was accepted")
	}
}
