package conformance

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/outward-dev/outward/conformance/suite"
)

// An Option changes how a suite is run.
type Option func(*settings)

type settings struct {
	waived map[string]string
}

// Waive leaves out one clause, for a reason that the users of a backend can read.
// It is printed. A clause that does not exist can't be waived.
func Waive(id, reason string) Option {
	return func(s *settings) { s.waived[id] = reason }
}

// TestStore runs every clause for stores, each as a subtest on a subject of its
// own. newSubject returns an empty one that is ready to use, and registers with
// t.Cleanup what has to be undone.
//
// It ends with one line that counts the clauses that ran, were waived and were
// NOT CHECKED; the latter two are skipped subtests that say why, never passes.
func TestStore(t *testing.T, newSubject func(t *testing.T) *suite.StoreSubject, opts ...Option) {
	t.Helper()
	s := settings{waived: map[string]string{}}
	for _, o := range opts {
		o(&s)
	}
	clauses := suite.Stores()
	for _, id := range slices.Sorted(maps.Keys(s.waived)) {
		if !slices.ContainsFunc(clauses, func(c suite.Clause) bool { return c.ID == id }) {
			t.Errorf("conformance: there is no clause %s to waive", id)
		} else if strings.TrimSpace(s.waived[id]) == "" {
			t.Errorf("conformance: clause %s is waived without a reason", id)
		}
	}
	var ran, failed int
	var waived, notChecked []string
	for _, c := range clauses {
		t.Run(c.ID, func(t *testing.T) {
			if reason, is := s.waived[c.ID]; is {
				waived = append(waived, c.ID)
				t.Skipf("WAIVED %s: %s", c.ID, reason)
			}
			subject, r := newSubject(t), limited(t)
			if names := c.Missing(r, subject); len(names) > 0 {
				notChecked = append(notChecked, c.ID)
				t.Skipf("NOT CHECKED %s: the subject has no %s", c.ID, strings.Join(names, ", no "))
			}
			ran++
			defer func() {
				// The sentence that was broken and the place where it is written; the failure
				// itself only says what was seen.
				if t.Failed() {
					failed++
					t.Logf("the clause is %v", c)
				}
			}()
			c.Check(r, subject)
		})
	}
	t.Logf("conformance: ran %d of %d clauses, FAILED %d, WAIVED %d%s, NOT CHECKED %d%s",
		ran, len(clauses), failed, len(waived), list(waived), len(notChecked), list(notChecked))
}

func list(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ": " + strings.Join(ids, " ")
}

// reporter is t with a context that ends: a store that hangs fails the clause in
// which it hangs, and not the whole run.
type reporter struct {
	*testing.T
	ctx context.Context
}

func limited(t *testing.T) suite.T {
	ctx, cancel := context.WithTimeout(t.Context(), suite.Limit)
	t.Cleanup(cancel)
	return &reporter{T: t, ctx: ctx}
}

// Context returns the clause's context.
func (r *reporter) Context() context.Context { return r.ctx }
