package postgres

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A planNode is a node of EXPLAIN (FORMAT JSON).
type planNode struct {
	Type      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Cond      string  `json:"Index Cond"`
	Hit       int     `json:"Shared Hit Blocks"`
	Read      int     `json:"Shared Read Blocks"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Operation string  `json:"Operation"`
	Plans     []planNode
}

func (n planNode) walk(f func(planNode)) {
	f(n)
	for _, p := range n.Plans {
		p.walk(f)
	}
}

// explain returns the plan of a statement. With generic it is the plan that any
// arguments get; args are then not needed.
func (db *database) explain(tx pgx.Tx, options, sql string, args ...any) planNode {
	db.t.Helper()
	var text string
	if err := tx.QueryRow(db.t.Context(), "EXPLAIN ("+options+", FORMAT JSON) "+sql, args...).Scan(&text); err != nil {
		db.t.Fatalf("explain: %v\n%s", err, sql)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		db.t.Fatal(err)
	}
	return plans[0].Plan
}

// accesses lists how a statement's generic plan gets at the large tables.
func (db *database) accesses(sql string) []string {
	db.t.Helper()
	tx, err := db.pool.Begin(db.t.Context())
	if err != nil {
		db.t.Fatal(err)
	}
	defer rollback(db.t.Context(), tx)
	if _, err := tx.Exec(db.t.Context(), limitsSQL, "1000", "1000", "100000"); err != nil {
		db.t.Fatal(err)
	}
	if _, err := tx.Exec(db.t.Context(), `SET LOCAL plan_cache_mode = force_generic_plan`); err != nil {
		db.t.Fatal(err)
	}
	sd, err := tx.Prepare(db.t.Context(), "plan", sql)
	if err != nil {
		db.t.Fatalf("%v\n%s", err, sql)
	}
	defer func() { _ = tx.Conn().Deallocate(db.t.Context(), "plan") }()
	execute := "EXECUTE plan"
	if n := len(sd.ParamOIDs); n > 0 {
		execute += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
	}
	var list []string
	db.explain(tx, "COSTS OFF", execute).walk(func(n planNode) {
		relation := strings.TrimPrefix(n.Relation, db.n.prefix)
		if n.Type == "ModifyTable" || relation == "lanes" || relation == "" || relation == "schema" || relation == "audit" {
			return
		}
		how := strings.ToLower(n.Type) + " " + relation
		if n.Index != "" {
			how = strings.TrimPrefix(n.Index, db.n.prefix)
			if n.Cond == "" {
				how += " without a condition"
			}
		}
		if !slices.Contains(list, how) {
			list = append(list, how)
		}
	})
	slices.Sort(list)
	return list
}

// wantAccesses is how each statement gets at the tables that may be large, whatever
// the planner believes of them. "without a condition" is only right where the
// statement takes the first few rows in the order of the index.
var wantAccesses = map[string]string{
	"limits":                    "",
	"promote":                   "messages_due, messages_pkey",
	"unpark":                    "messages_parked, messages_parked without a condition, messages_pkey, pauses_pkey",
	"draining":                  "blocks_draining without a condition",
	"lease":                     "messages_ready",
	"suspect":                   "messages_pkey",
	"read":                      "blocks_pkey, messages_ready",
	"ahead":                     "blocks_pkey, messages_ready",
	"body":                      "messages_pkey",
	"park":                      "messages_pkey",
	"pause":                     "messages_pkey",
	"hand":                      "",
	"lock":                      "",
	"lock free":                 "",
	"hold":                      "blocks_pkey, messages_pkey, tid scan blocks",
	"drain":                     "blocks_draining without a condition, blocks_pkey, messages_held, messages_pkey, tid scan blocks",
	"publish":                   "blocks_pkey, messages_held, messages_pkey, tid scan blocks",
	"publish, archive full":     "blocks_pkey, messages_held, messages_pkey, tid scan blocks",
	"publish, archive metadata": "blocks_pkey, messages_held, messages_pkey, tid scan blocks",
	"settle":                    "messages_pkey",
	"resolve":                   "blocks_pkey, messages_held, messages_pkey, tid scan blocks",
	"free":                      "",
	"extend lanes":              "",
	"extend rows":               "messages_detached",
	"extend lost":               "messages_pkey",
	"requeue":                   "messages_pkey",
	"discard":                   "blocks_pkey, messages_held, messages_pkey, tid scan blocks",
	"purge":                     "archive_pkey, tid scan archive",
}

// TestPlans looks at the plan that a connection keeps for each statement: on a new
// table, on one that was analyzed when it was empty, with all rows in one lane, and
// on a full one of which every state and thousands of keys are known.
func TestPlans(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		check := func(when string) {
			t.Helper()
			for _, st := range newStatements(db.n).all() {
				want, is := wantAccesses[st.name]
				if !is {
					if st.name != "begin" && st.name != "commit" && st.name != "backlog" {
						t.Errorf("no plan is expected of %s", st.name)
					}
					continue
				}
				if got := strings.Join(db.accesses(st.sql), ", "); got != want {
					t.Errorf("%s: %s goes by\n  %s, want\n  %s", when, st.name, got, want)
				}
			}
			// Backlog takes the first rows of every index, and counts no table.
			for _, how := range db.accesses(newStatements(db.n).backlog) {
				if strings.Contains(how, "scan") {
					t.Errorf("%s: backlog goes by %s", when, how)
				}
			}
		}
		analyze := func() {
			for _, table := range []string{"messages", "blocks", "archive", "pauses"} {
				db.exec(`VACUUM ANALYZE {` + table + `}`)
			}
		}
		check("new")
		analyze()
		check("empty")
		db.fill(20_000, 100, 1, "one lane")
		analyze()
		check("one lane")
		db.fill(180_000, 100, 5000, "many")
		db.exec(`UPDATE {messages} SET state = CASE WHEN seq % 100 < 2 THEN 3 ELSE 1 END, available_at = 'infinity',
			paused_for = CASE WHEN seq % 2 = 0 THEN 'p' || seq % 7 END WHERE seq % 100 < 30`)
		db.exec(`INSERT INTO {blocks} SELECT ordering_key, seq FROM {messages} WHERE state IN (1, 3) AND seq % 100 < 10`)
		db.exec(`UPDATE {messages} SET state = 2 WHERE seq % 100 BETWEEN 40 AND 60`)
		analyze()
		check("full")
	})
}
