package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/outward-dev/outward/conformance"
	"github.com/outward-dev/outward/conformance/suite"
	"github.com/outward-dev/outward/engine"
)

// inner names, in the environment of a process of this test, the suite to run.
const inner = "OUTWARD_CONFORMANCE_INNER"

// deaf has no optional ability, and claims nothing.
type deaf struct{ engine.Store }

func (deaf) Claim(context.Context, engine.ClaimRequest) ([]engine.Claimed, error) { return nil, nil }

func TestStoreReports(t *testing.T) {
	if which := os.Getenv(inner); which != "" {
		runInner(t, which)
		return
	}
	for _, c := range []struct {
		which string
		fails bool
		says  []string
	}{
		{"waived", false, []string{
			"WAIVED store.order.flood: too slow here",
			"WAIVED 1: store.order.flood, NOT CHECKED 0"}},
		{"hooks", false, []string{
			"NOT CHECKED store.bad_row.claimed: the subject has no StoreSubject.Plant",
			"NOT CHECKED store.claim.snapshot: the subject has no StoreSubject.HoldSnapshot",
			"WAIVED 0, NOT CHECKED 2: store.claim.snapshot store.bad_row.claimed"}},
		{"deaf", true, []string{
			"NOT CHECKED store.purge.archive: the subject has no engine.Purger",
			"NOT CHECKED store.backlog.counts: the subject has no engine.Monitor, no engine.Operator",
			"WAIVED 3",
			"the clause is store.order.run: A claim returns a run of a key without gaps, from its head on. (conformance/suite/order.go:"}},
		{"unknown", true, []string{"there is no clause store.nonsense to waive"}},
		{"unreasoned", true, []string{"clause store.order.flood is waived without a reason"}},
	} {
		t.Run(c.which, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStoreReports$", "-test.v")
			cmd.Env = append(os.Environ(), inner+"="+c.which)
			out, err := cmd.CombinedOutput()
			if failed := err != nil; failed != c.fails {
				t.Errorf("the run failed: %v, want %v (%v)", failed, c.fails, err)
			}
			for _, text := range c.says {
				if !strings.Contains(string(out), text) {
					t.Errorf("the output does not say %q", text)
				}
			}
			if c.which == "deaf" {
				// No other clause may be content with a store that never hands out anything.
				for _, line := range strings.Split(string(out), "\n") {
					if _, id, is := strings.Cut(line, "--- PASS: TestStoreReports/"); is && !strings.HasPrefix(id, "store.extend.none ") && !strings.HasPrefix(id, "store.describe ") {
						t.Errorf("passed: %s", id)
					}
				}
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

func runInner(t *testing.T, which string) {
	change := func(s *suite.StoreSubject) {}
	var opts []conformance.Option
	switch which {
	case "waived":
		opts = append(opts, conformance.Waive("store.order.flood", "too slow here"))
	case "hooks":
		change = func(s *suite.StoreSubject) { s.Plant, s.HoldSnapshot = nil, nil }
	case "deaf":
		for _, id := range []string{"store.claim.exclusive", "store.concurrent.order", "store.concurrent.enqueue"} {
			opts = append(opts, conformance.Waive(id, "waits long for what never comes"))
		}
		change = func(s *suite.StoreSubject) {
			open := s.Open
			s.Open = func(t suite.T) engine.Store { return deaf{open(t)} }
		}
	case "unknown":
		opts = append(opts, conformance.Waive("store.nonsense", "it does not exist"))
	case "unreasoned":
		opts = append(opts, conformance.Waive("store.order.flood", " "))
	default:
		t.Fatalf("no suite is called %q", which)
	}
	conformance.TestStore(t, func(t *testing.T) *suite.StoreSubject {
		s := newSubject(t)
		change(s)
		return s
	}, opts...)
}
