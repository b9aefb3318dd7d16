package sqlite

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/outward-dev/outward/dialects/internal/sqlrows"
)

// TestPlans: every statement gets at the large tables through an index, whether the
// statistics are of a full table, of an empty one or missing.
func TestPlans(t *testing.T) {
	d := newDatabase(t, nil)
	s := d.open()
	check := func(when string) {
		t.Helper()
		queries := s.q.all()
		for _, more := range []struct{ name, sql string }{{"backlog", backlogSQL}, {"purge", purgeSQL}, {"requeue", requeueSQL},
			{"file discarded", buryFileSQL}, {"discard", discardSQL}, {"replay", replaySQL}} {
			queries = append(queries, struct{ name, sql string }{more.name, d.n.sql(more.sql)})
		}
		for _, q := range queries {
			if q.name == "begin" || q.name == "commit" || q.name == "rollback" {
				continue
			}
			for _, step := range d.plan(q.sql) {
				if scansMessages.MatchString(step) && !capsItself[q.name] {
					t.Errorf("%s, %s: %s", when, q.name, step)
				}
				if strings.Contains(step, "TEMP B-TREE") && !sortsLittle[q.name] {
					t.Errorf("%s, %s sorts: %s", when, q.name, step)
				}
			}
		}
	}
	check("without statistics")
	d.exec(`ANALYZE`)
	check("with statistics of an empty table")
	d.fill(3000, 100)
	d.exec(`ANALYZE`)
	check("with statistics of a full table")
}

var (
	scansMessages = regexp.MustCompile(`^SCAN (m|a|b|outbox_(messages|archive|blocks))\b`)
	// Backlog counts at most 10 001 entries of an index; markers are few and have an
	// index of their own; purge walks the index of what is old.
	capsItself  = map[string]bool{"backlog": true, "peek": true, "markers": true}
	sortsLittle = map[string]bool{"lease": true, "backlog": true} // 64 lanes
)

// plan is what SQLite would do, a line per step.
func (d *database) plan(query string) (steps []string) {
	d.t.Helper()
	var args []any
	for i := 1; strings.Contains(query, fmt.Sprintf("?%d", i)); i++ {
		args = append(args, "[1, 2]")
	}
	err := sqlrows.Query(d.t.Context(), d.db, "plan", "EXPLAIN QUERY PLAN "+query, func(rows *sql.Rows) error {
		var id, parent, unused int
		var detail string
		err := rows.Scan(&id, &parent, &unused, &detail)
		steps = append(steps, detail)
		return err
	}, args...)
	if err != nil {
		d.t.Fatalf("%s: %v", query, err)
	}
	return steps
}
