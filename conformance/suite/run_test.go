package suite

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// Ids name clauses in waivers and reports, so they have one form and are unique.
func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Stores() {
		if seen[c.ID] {
			t.Errorf("two clauses are called %s", c.ID)
		}
		seen[c.ID] = true
		if strings.Trim(c.ID, "abcdefghijklmnopqrstuvwxyz._") != "" || strings.Count(c.ID, ".") > 2 || !strings.HasPrefix(c.ID, "store.") {
			t.Errorf("%q is no id of the form store.area.word or store.word", c.ID)
		}
		if !strings.HasSuffix(c.Sentence, ".") || strings.Count(c.Sentence, ". ") > 0 {
			t.Errorf("%s: %q is not one sentence", c.ID, c.Sentence)
		}
		if !strings.HasPrefix(c.Source, "conformance/suite/") || !strings.Contains(c.Source, ".go:") {
			t.Errorf("%s: the source %q is no file and line", c.ID, c.Source)
		}
	}
}

func TestRun(t *testing.T) {
	var trail []string
	for _, c := range []struct {
		name    string
		clause  Clause
		outcome Outcome
		says    string
	}{
		{"passes", Clause{Check: func(t T, _ *StoreSubject) { t.Logf("well") }}, Passed, "well"},
		{"fails", Clause{Check: func(t T, _ *StoreSubject) { t.Errorf("ill %d", 1) }}, Failed, "ill 1"},
		{"stops", Clause{Check: func(t T, _ *StoreSubject) {
			t.Cleanup(func() { trail = append(trail, "first") })
			t.Cleanup(func() { trail = append(trail, "second"); t.Fatalf("in a cleanup") })
			t.Fatalf("fatal")
			trail = append(trail, "not reached")
		}}, Failed, "fatal"},
		{"panics", Clause{Check: func(T, *StoreSubject) { panic("oh") }}, Failed, "panic: oh"},
		{"lacks", Clause{Needs: []Need{{"a hook", func(T, *StoreSubject) bool { return false }}},
			Check: func(t T, _ *StoreSubject) { t.Errorf("it was run") }}, NotChecked, ""},
		{"hangs", Clause{Check: func(t T, _ *StoreSubject) { <-t.Context().Done(); t.Errorf("%v", t.Context().Err()) }}, Failed, "deadline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			rep := Run(ctx, c.clause, func(T) *StoreSubject { return &StoreSubject{} })
			if rep.Outcome != c.outcome || !strings.Contains(strings.Join(rep.Log, "\n"), c.says) {
				t.Errorf("it is %s and says %q, want %s and %q", rep.Outcome, rep.Log, c.outcome, c.says)
			}
			if rep.Outcome == NotChecked && rep.Why != "a hook" {
				t.Errorf("what is missing is %q", rep.Why)
			}
		})
	}
	if want := []string{"second", "first"}; !slices.Equal(trail, want) {
		t.Errorf("cleanups ran %q, want %q", trail, want)
	}
}
