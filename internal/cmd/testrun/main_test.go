//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeServices stands in for scripts/services: a server is up if a file has its
// name; one named "ill" never starts; one named "raced" is found up by `up`.
const fakeServices = `#!/bin/sh
cd "$(dirname "$0")" || exit 1
echo "$*" >>calls
cmd=$1; shift
for n; do
  case $cmd in
    status) [ -e "$n" ] && [ "$(cat "$n")" != paused ] || exit 3 ;;
    up)
      [ "$n" != ill ] || { echo "ill: no such thing here" >&2; exit 1; }
      if [ "$n" = raced ]; then echo up >"$n"; fi
      [ -e "$n" ] || { echo up >"$n"; echo "$n"; }
      ;;
    down) rm -f "$n" ;;
    resume) [ -e "$n" ] || exit 1; echo up >"$n" ;;
    env) echo "export OUTWARD_TEST_$(echo "$n" | tr a-z A-Z)_URL='fake://$n' # a remark" ;;
  esac
done
`

func newFake(t *testing.T) (*servers, string, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "services"), []byte(fakeServices), 0o755); err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	return &servers{script: filepath.Join(dir, "services"), out: out}, dir, out
}

func isUp(dir, name string) bool {
	b, err := os.ReadFile(filepath.Join(dir, name))
	return err == nil && strings.TrimSpace(string(b)) == "up"
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestServersStopsWhatItStarted(t *testing.T) {
	s, dir, out := newFake(t)
	write(t, dir, "early", "up\n")
	t.Setenv("OUTWARD_TEST_GIVEN_DSN", "somewhere")
	absent := s.up(t.Context(), []string{"early", "mine", "ill", "raced", "given"})
	if !slices.Equal(absent, []string{"ill"}) {
		t.Errorf("absent: %q, want ill", absent)
	}
	if !strings.Contains(out.String(), "ill DID NOT START") {
		t.Errorf("the output does not say that ill did not start:\n%s", out)
	}
	want := []string{"OUTWARD_TEST_EARLY_URL=fake://early", "OUTWARD_TEST_MINE_URL=fake://mine", "OUTWARD_TEST_RACED_URL=fake://raced"}
	if !slices.Equal(s.environ, want) {
		t.Errorf("environment: %q, want %q", s.environ, want)
	}
	if p := s.down(t.Context()); len(p) != 0 {
		t.Errorf("down: %q", p)
	}
	for name, up := range map[string]bool{"early": true, "raced": true, "mine": false} {
		if isUp(dir, name) != up {
			t.Errorf("after the run %s is up: %v, want %v", name, !up, up)
		}
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(calls), "given") {
		t.Errorf("the server whose address was given was touched:\n%s", calls)
	}
}

// A run that is ended while a test has a server of someone else's killed or
// paused brings it back, and says so.
func TestServersBringsBack(t *testing.T) {
	s, dir, _ := newFake(t)
	write(t, dir, "killed", "up\n")
	write(t, dir, "frozen", "up\n")
	if absent := s.up(t.Context(), []string{"killed", "frozen"}); len(absent) != 0 {
		t.Fatalf("absent: %q", absent)
	}
	write(t, dir, "frozen", "paused\n")
	if err := os.Remove(filepath.Join(dir, "killed")); err != nil {
		t.Fatal(err)
	}
	if p := s.down(t.Context()); len(p) != 2 {
		t.Errorf("down: %q, want a line for each", p)
	}
	if !isUp(dir, "killed") || !isUp(dir, "frozen") {
		t.Error("not both are up again")
	}
}

func TestServersInterrupted(t *testing.T) {
	s, dir, _ := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if absent := s.up(ctx, []string{"one", "two"}); !slices.Equal(absent, []string{"one", "two"}) {
		t.Errorf("absent: %q", absent)
	}
	if isUp(dir, "one") || isUp(dir, "two") {
		t.Error("started a server after the end")
	}
}

func TestRunGroupEndsWhatWasStarted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// a grandchild that takes no notice of SIGTERM and holds the pipe open
	cmd := exec.CommandContext(ctx, "sh", "-c", `sh -c 'trap "" TERM; echo ready; while :; do sleep 1; done' & wait`)
	cmd.Stdout = w
	done := make(chan error, 1)
	go func() { done <- runGroup(cmd) }()
	lines := bufio.NewScanner(r)
	if !lines.Scan() {
		t.Fatalf("it did not start: %v", lines.Err())
	}
	cancel()
	if err := <-done; err == nil || !errors.Is(err, context.Canceled) {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Errorf("runGroup: %v", err)
		}
	}
	w.Close()
	if lines.Scan() { // ends only when no process holds the pipe any more
		t.Errorf("more output: %q", lines.Text())
	}
}

func TestModules(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{".", "conformance/matrix", "examples/gorm", ".hidden", "engine/testdata/m", "_old"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, root, filepath.Join(d, "go.mod"), "module m\n")
	}
	got, err := modules(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{root, filepath.Join(root, "conformance/matrix"), filepath.Join(root, "examples/gorm")}
	if !slices.Equal(got, want) {
		t.Errorf("modules: %q, want %q", got, want)
	}
}

func TestExports(t *testing.T) {
	got := exports("export A='1 2'\nnoise\nexport B='x=y' # remark\nexport C=unquoted\n")
	if fmt.Sprint(got) != "[A=1 2 B=x=y]" {
		t.Errorf("exports: %q", got)
	}
}
