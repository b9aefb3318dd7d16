package postgres

import (
	"strings"
	"testing"
)

// FuzzNames: a name that is accepted is one identifier when it is quoted.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"public", `a"b`, "a.b", "A", "1", "", "é", "a;--"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, schema, prefix string) {
		n, err := (&Options{Schema: schema, Prefix: prefix}).names()
		if err != nil {
			return
		}
		if table := n.sql("{messages}"); strings.Count(table, `"`) != 4 || strings.ContainsAny(n.schema+n.prefix, `". ;-`) {
			t.Errorf("accepted: %s", table)
		}
	})
}
