package postgres

import (
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/ddl"
)

// Formats that Render knows.
const (
	FormatSQL     = ddl.FormatSQL     // plain statements
	FormatGoose   = ddl.FormatGoose   // pressly/goose
	FormatMigrate = ddl.FormatMigrate // golang-migrate/migrate
	FormatAtlas   = ddl.FormatAtlas   // ariga/atlas; run `atlas migrate hash` afterwards
)

// A File is a migration as another tool wants it.
type File struct{ Name, Content string }

// Render writes the steps for a migration tool, in the order in which they are to
// be applied. There are no steps back: they would drop messages.
func Render(format string, opts *Options) ([]File, error) {
	ms, err := Migrations(opts)
	if err != nil {
		return nil, err
	}
	n, _, err := checkMigration(opts)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(ms))
	for i, m := range ms {
		sql := m.SQL
		if i == 0 && n.schema != defaultSchema {
			sql = n.sql("CREATE SCHEMA IF NOT EXISTS {schema};\n\n") + sql
		}
		name, content, err := ddl.Render(format, ddl.Step{Version: m.Version, Name: n.prefix + m.Name, SQL: sql}, "BEGIN;", "COMMIT;")
		if err != nil {
			return nil, fmt.Errorf("postgres: render migrations: %w", err)
		}
		files[i] = File{name, content}
	}
	return files, nil
}
