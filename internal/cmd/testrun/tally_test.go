//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The streams in testdata were written by go test -json on packages made for it;
// cut.jsonl is the beginning of good.jsonl.
func TestTally(t *testing.T) {
	tests := []struct {
		stream   string
		counts   string
		last     string
		problems []string // a part of each, in order
		shown    []string
		hidden   []string
	}{
		{
			stream: "good",
			counts: "3 passed, 0 failed, 4 skipped",
			last:   "ran 3, NOT RUN 4: nats, pg17, pg18, sqlserver",
			shown: []string{"ok    example.com/rec/good ", "3 passed, 4 not run",
				"NOT RUN: nats: OUTWARD_TEST_NATS_URL is not set\n", "NOT RUN: pg17, sqlserver: their addresses are not set\n"},
			hidden: []string{"said and not shown", "=== RUN"},
		},
		{
			stream:   "bad",
			counts:   "3 passed, 2 failed, 0 skipped",
			last:     "ran 5, NOT RUN 0",
			problems: []string{"2 failed"},
			shown:    []string{"FAIL  example.com/rec/bad ", "two is wrong", "the parent is wrong"},
			hidden:   []string{"said and not shown", "=== RUN"},
		},
		{
			stream:   "silent",
			counts:   "1 passed, 0 failed, 2 skipped",
			last:     "ran 1, NOT RUN 0",
			problems: []string{"silent.TestSilent was skipped and does not say", "silent.TestMute was skipped and does not say"},
		},
		{
			stream:   "panics",
			counts:   "1 passed, 1 failed, 0 skipped",
			last:     "ran 2, NOT RUN 0",
			problems: []string{"1 failed"},
			shown:    []string{"panic: in a goroutine", "x_test.go:9", "--- FAIL: TestElsewhere (it did not finish)"},
		},
		{
			stream:   "slow",
			counts:   "1 passed, 1 failed, 0 skipped",
			last:     "ran 2, NOT RUN 0",
			problems: []string{"1 failed"},
			shown:    []string{"panic: test timed out after 1s", "TestForEver/below (1s)", "--- FAIL: TestForEver/below (it did not finish)"},
		},
		{
			stream:   "broken",
			counts:   "0 passed, 1 failed, 0 skipped",
			last:     "ran 1, NOT RUN 0",
			problems: []string{"1 failed"},
			shown:    []string{"undefined: undefinedFunction", "FAIL  example.com/rec/broken ", "(it does not build)"},
		},
		{
			stream:   "exits",
			counts:   "1 passed, 1 failed, 0 skipped",
			last:     "ran 2, NOT RUN 0",
			problems: []string{"1 failed"},
			shown:    []string{"FAIL  example.com/rec/exits "},
		},
		{
			stream:   "cut",
			counts:   "1 passed, 1 failed, 0 skipped",
			last:     "ran 2, NOT RUN 0",
			problems: []string{"1 failed"},
			shown:    []string{"FAIL  example.com/rec/good ", "(it did not finish)"},
		},
		{
			stream:   "none",
			counts:   "0 passed, 0 failed, 0 skipped",
			last:     "ran 0, NOT RUN 0",
			problems: []string{"no test ran"},
			hidden:   []string{"example.com"},
		},
		{
			stream: "all", // good, bad, silent and broken in one run, two packages at a time
			counts: "7 passed, 3 failed, 6 skipped",
			last:   "ran 10, NOT RUN 4: nats, pg17, pg18, sqlserver",
			problems: []string{"3 failed", "silent.TestSilent was skipped", "silent.TestMute was skipped",
				"pg17 is required and 2 of its tests were not run"},
			shown: []string{"ok    example.com/rec/good ", "FAIL  example.com/rec/bad ", "ok    example.com/rec/silent ", "FAIL  example.com/rec/broken "},
		},
	}
	for _, tt := range tests {
		t.Run(tt.stream, func(t *testing.T) {
			f, err := os.Open(filepath.Join("testdata", tt.stream+".jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var out strings.Builder
			ta := newTally(&out)
			if err := ta.read(f); err != nil {
				t.Fatal(err)
			}
			required := []string{"pg15"}
			if tt.stream == "all" {
				required = append(required, "pg17")
			}
			counts, last := ta.summary()
			if counts != tt.counts || last != tt.last {
				t.Errorf("summary:\n%s\n%s\nwant:\n%s\n%s", counts, last, tt.counts, tt.last)
			}
			problems := ta.problems(required)
			if len(problems) != len(tt.problems) {
				t.Errorf("problems %q, want %q", problems, tt.problems)
			} else {
				for i, p := range problems {
					if !strings.Contains(p, tt.problems[i]) {
						t.Errorf("problem %q, want %q in it", p, tt.problems[i])
					}
				}
			}
			for _, s := range tt.shown {
				if !strings.Contains(out.String(), s) {
					t.Errorf("the output lacks %q", s)
				}
			}
			for _, s := range tt.hidden {
				if strings.Contains(out.String(), s) {
					t.Errorf("the output has %q", s)
				}
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
	}
}

func TestTallyReadError(t *testing.T) {
	r, w := io.Pipe()
	go w.CloseWithError(errors.New("the pipe broke"))
	if err := newTally(io.Discard).read(r); err == nil || !strings.Contains(err.Error(), "the pipe broke") {
		t.Errorf("read: %v", err)
	}
}

func TestMissing(t *testing.T) {
	for line, want := range map[string]string{
		"    x_test.go:9: NOT RUN: pg17: not set\n":          "pg17",
		"        x_test.go:9: NOT RUN: pg17, nats : why\n":   "pg17|nats",
		"NOT RUN: mysql: printed\n":                          "mysql",
		"    x_test.go:9: the other one was NOT RUN: pg17\n": "",
		"    x_test.go:9: NOT RUN: \n":                       "",
		"    x_test.go:9: not today\n":                       "",
	} {
		names, _ := missing([]string{"=== RUN   TestX\n", line, "--- SKIP: TestX (0.00s)\n"})
		if got := strings.Join(names, "|"); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// A waived clause is shown with its reason and counts neither as passed nor as
// silently skipped.
func TestWaiver(t *testing.T) {
	stream := `{"Action":"run","Package":"p","Test":"TestA/store.x"}
{"Action":"output","Package":"p","Test":"TestA/store.x","Output":"    store.go:52: WAIVED store.order.late_commit: one writer at a time\n"}
{"Action":"skip","Package":"p","Test":"TestA/store.x"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: WAIVED because it is late\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Elapsed":1}
`
	var out strings.Builder
	tl := newTally(&out)
	if err := tl.read(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "0 passed, 1 waived") || !strings.Contains(out.String(), "WAIVED store.order.late_commit: one writer at a time") {
		t.Errorf("shown: %s", out.String())
	}
	if len(tl.silent) != 1 || tl.silent[0] != "p.TestB" || tl.passed != 0 || tl.notRun != 0 {
		t.Errorf("silent %v, passed %d, not run %d", tl.silent, tl.passed, tl.notRun)
	}
}

// Rows of tables are shown although the test that wrote them passed, once.
func TestTallyShowsTables(t *testing.T) {
	var out strings.Builder
	tally := newTally(&out)
	stream := `{"Action":"run","Package":"p","Test":"TestT"}
{"Action":"output","Package":"p","Test":"TestT","Output":"    t_test.go:1: \n"}
{"Action":"output","Package":"p","Test":"TestT","Output":"        | fault  pair\n"}
{"Action":"output","Package":"p","Test":"TestT","Output":"        | cut    pg17/nats\n"}
{"Action":"pass","Package":"p","Test":"TestT"}
{"Action":"pass","Package":"p","Elapsed":1}
`
	if err := tally.read(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "| fault  pair\n") != 1 || !strings.HasSuffix(got, "      | cut    pg17/nats\n") || strings.Contains(got, "t_test.go") {
		t.Errorf("it shows:\n%s", got)
	}
}
