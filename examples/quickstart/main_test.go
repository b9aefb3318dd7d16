package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The relay is this program started once more, which in a test is the test's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == relayWord {
		os.Exit(relayMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func TestQuickstart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	err := run(t.Context(), &out, faults{})
	t.Logf("%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "WRONG") {
		t.Error("it says that something is wrong")
	}
	inREADME(t, out.String())
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// inREADME checks that the README shows what is printed. Ids and process numbers
// differ each time.
func inREADME(t *testing.T, printed string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "$ make quickstart\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("the README shows no quickstart")
	}
	varies := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|Process \d+`)
	printed = varies.ReplaceAllString(printed, "*")
	for line := range strings.Lines(block) {
		if line = varies.ReplaceAllString(line, "*"); !strings.Contains(printed, line) && strings.TrimSpace(line) != "…" {
			t.Errorf("the README shows %q, which is not printed", line)
		}
	}
}

// It sees what would be wrong.
func TestQuickstartSeesFaults(t *testing.T) {
	for name, test := range map[string]struct {
		plant faults
		want  string
	}{
		"the inbox is not asked":           {faults{skipInbox: true}, "WRONG  each order was shipped once: 1, 2, 3, 4, 4, 5"},
		"a roll-back is a commit":          {faults{commitRollback: true}, "WRONG  10 orders were committed"},
		"a message is taken for delivered": {faults{loseMessage: true}, "WRONG  each of their 9 messages is in the stream (1 missing)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run(t.Context(), &out, test.plant)
			if err == nil || !strings.Contains(err.Error(), "of the above are wrong") || !strings.Contains(out.String(), test.want) {
				t.Errorf("got %v, want %q in\n%s", err, test.want, &out)
			}
		})
	}
}
