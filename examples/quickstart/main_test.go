package main

import (
	"bytes"
	"os"
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
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
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
