package postgres

import (
	"fmt"
	"strings"
)

// Formats that Render knows.
const (
	FormatSQL     = "sql"     // plain statements
	FormatGoose   = "goose"   // pressly/goose
	FormatMigrate = "migrate" // golang-migrate/migrate
	FormatAtlas   = "atlas"   // ariga/atlas; run `atlas migrate hash` afterwards
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
		body := strings.TrimRight(m.SQL, "\n") + "\n"
		if i == 0 && n.schema != defaultSchema {
			body = n.sql("CREATE SCHEMA IF NOT EXISTS {schema};\n\n") + body
		}
		base := fmt.Sprintf("%04d_%s%s", m.Version, n.prefix, m.Name)
		switch format {
		case FormatSQL:
			files[i] = File{base + ".sql", "BEGIN;\n\n" + body + "\nCOMMIT;\n"}
		case FormatGoose:
			files[i] = File{base + ".sql", "-- +goose Up\n" + body}
		case FormatMigrate:
			files[i] = File{base + ".up.sql", body}
		case FormatAtlas:
			files[i] = File{base + ".sql", body}
		default:
			return nil, fmt.Errorf("postgres: render migrations: unknown format %q; known are sql, goose, migrate and atlas", format)
		}
	}
	return files, nil
}
