package mysql

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
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs from what is sent; look at it with: go test ./dialects/mysql -run Golden -update && git diff", file)
	}
}

// TestGoldenSQL shows every statement as it is really sent, with a question mark for
// each argument.
func TestGoldenSQL(t *testing.T) {
	opts := &Options{Prefix: "outbox_"}
	n, err := opts.names()
	must(t, err)
	var b strings.Builder
	write := func(name, sql string) {
		b.WriteString("-- " + name + "\n" + strings.TrimSpace(sql) + ";\n\n")
	}
	for _, st := range newStatements(n).all() {
		write(st.name, st.sql)
	}
	for _, st := range []struct{ name, sql string }{
		{"backlog", backlogSQL}, {"purged", purgedSQL}, {"purge", purgeSQL}, {"requeue", requeueSQL}, {"file discarded", buryFileSQL},
		{"replay", replaySQL}, {"put pause", putPauseSQL}, {"change pause", changePauseSQL}, {"end pause", endPauseSQL}, {"take probe", takeProbeSQL}, {"pauses", pausesSQL},
	} {
		write(st.name, n.sql(st.sql))
	}
	golden(t, "store.golden", b.String())

	b.Reset()
	w, err := NewWriter(opts)
	must(t, err)
	write("enqueue, one row", w.insertSQL[0])
	write("enqueue, two rows", w.insertSQL[1])
	in, err := NewInbox(nil)
	must(t, err)
	write("inbox: record", in.record)
	write("inbox: purged", in.purged)
	write("inbox: purge", in.wipe)
	golden(t, "writer.golden", b.String())

	b.Reset()
	for _, format := range []string{FormatSQL, FormatGoose, FormatMigrate, FormatAtlas} {
		files, err := Render(format, opts)
		must(t, err)
		for _, f := range files {
			b.WriteString("== " + format + ": " + f.Name + "\n" + f.Content + "\n")
		}
	}
	golden(t, "migrations.golden", b.String())
}
