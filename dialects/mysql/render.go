package mysql

import (
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/ddl"
	"github.com/outward-dev/outward/dialects/internal/schema"
)

// Formats that Render knows.
const (
	FormatSQL     = ddl.FormatSQL     // plain statements
	FormatGoose   = ddl.FormatGoose   // pressly/goose
	FormatMigrate = ddl.FormatMigrate // golang-migrate/migrate; needs multiStatements=true
	FormatAtlas   = ddl.FormatAtlas   // ariga/atlas; run `atlas migrate hash` afterwards
)

// A File is a migration as another tool wants it: its name and its content.
type File = schema.File

// Render writes the steps for a migration tool, in the order in which they are to
// be applied. There are no steps back: they would drop messages. The server commits
// each statement by itself, so a step that was cut short is to be applied again.
func Render(format string, opts *Options) ([]File, error) {
	ms, err := Migrations(opts)
	if err != nil {
		return nil, err
	}
	n, _, err := checkMigration(opts)
	if err != nil {
		return nil, err
	}
	files, err := schema.Render(format, n.prefix, ms, "-- Each statement commits by itself; the whole may be run again.", "-- Done.")
	if err != nil {
		return nil, fmt.Errorf("mysql: render migrations: %w", err)
	}
	return files, nil
}
