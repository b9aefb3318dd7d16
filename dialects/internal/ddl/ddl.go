// Package ddl writes migrations as other tools want them.
package ddl

import (
	"fmt"
	"strings"
)

// Formats that Render knows.
const (
	FormatSQL     = "sql"     // plain statements
	FormatGoose   = "goose"   // pressly/goose
	FormatMigrate = "migrate" // golang-migrate/migrate
	FormatAtlas   = "atlas"   // ariga/atlas
)

// A Step is a migration with the names filled in.
type Step struct {
	Version int
	Name    string // with the tables' prefix: "outbox_outbox"
	SQL     string // statements, each ended by a semicolon at the end of a line
}

// Render gives the name and the content of a step's file. begin and commit are
// what a transaction is wrapped in where the tool does not do so itself.
func Render(format string, s Step, begin, commit string) (name, content string, err error) {
	body := strings.TrimRight(s.SQL, "\n") + "\n"
	base := fmt.Sprintf("%04d_%s", s.Version, s.Name)
	switch format {
	case FormatSQL:
		return base + ".sql", begin + "\n\n" + body + "\n" + commit + "\n", nil
	case FormatGoose:
		return base + ".sql", "-- +goose Up\n" + body, nil
	case FormatMigrate:
		return base + ".up.sql", body, nil
	case FormatAtlas:
		return base + ".sql", body, nil
	default:
		return "", "", fmt.Errorf("unknown format %q; known are sql, goose, migrate and atlas", format)
	}
}
