// Package testservers gives tests the real servers that they run on.
//
// A server is known by its name in scripts/services, and found by the variable
// that `scripts/services env` prints for it. A test asks for one by name:
//
//	dsn := testservers.DSN(t, "pg17")
//
// Where the variable isn't set the test is skipped, with the text `NOT RUN: pg17:
// OUTWARD_TEST_PG17_DSN is not set` that `make test` counts, or fails, if
// OUTWARD_TEST_REQUIRE names the server. With -short no server is used at all.
//
// Several packages are tested at a time on the same servers. So a test keeps what
// it makes there under names of its own, and one that kills or freezes a server
// asks for it by [Control], which waits until nobody else uses any.
//
// Only tests import this package.
package testservers

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// T is what the package needs of a [testing.T].
type T interface {
	Helper()
	Cleanup(func())
	Setenv(key, value string)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// DSN gives the data source name of a database. It does not return if there is
// none.
func DSN(t T, name string) string { t.Helper(); return Address(t, name, "DSN") }

// URL gives the address of a broker. It does not return if there is none.
func URL(t T, name string) string { t.Helper(); return Address(t, name, "URL") }

// Management gives the address of a broker's management API, with the account in
// it. It does not return if there is none.
func Management(t T, name string) string { t.Helper(); return Address(t, name, "MANAGEMENT_URL") }

// Address gives what the variable OUTWARD_TEST_<NAME>_<KIND> holds, as
// scripts/services sets it. It does not return if that is nothing.
func Address(t T, name, kind string) string {
	t.Helper()
	key := variable(name, kind)
	if short() {
		t.Skipf("NOT RUN: %s: -short", name)
	}
	address := os.Getenv(key)
	if address == "" {
		if slices.Contains(required(), name) {
			t.Fatalf("%s is required (OUTWARD_TEST_REQUIRE) and %s is not set", name, key)
		}
		t.Skipf("NOT RUN: %s: %s is not set", name, key)
	}
	using(t)
	return address
}

// A variable, so that the package's own tests can have it either way.
var short = testing.Short

func variable(name, kind string) string {
	return "OUTWARD_TEST_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_" + kind
}

func required() []string {
	return strings.FieldsFunc(os.Getenv("OUTWARD_TEST_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' })
}

// Postgres lists the PostgreSQL servers, oldest first, for [Each].
func Postgres() []string { return []string{"pg15", "pg17", "pg18"} }

// MySQL lists the servers of MySQL and MariaDB, for [Each].
func MySQL() []string { return []string{"mysql", "mariadb", "mariadb118"} }

// Each runs f as one subtest per database of the list, named for it, with its data
// source name.
func Each(t *testing.T, names []string, f func(t *testing.T, dsn string)) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) { f(t, DSN(t, name)) })
	}
}

// A Server is one that a test may kill, freeze and bring back.
type Server struct {
	t      T
	name   string
	script string
}

// Control lets the test do harm to a server. For as long as the test runs nothing
// else uses any server: Control waits until the tests of other packages that do
// have ended. So a test calls it first, before it asks for an address, and is not
// parallel (Control panics if it is, as t.Setenv does). When the test ends the
// server is brought back, whatever was done to it.
//
// The test is skipped, or fails, as by [DSN] where the server is not one that
// scripts/services runs here.
func Control(t T, name string) *Server {
	t.Helper()
	t.Setenv("OUTWARD_TEST_CONTROLLED", name) // panics in a parallel test
	if short() {
		t.Skipf("NOT RUN: %s: -short", name)
	}
	lack := t.Skipf
	prefix := "NOT RUN: "
	if slices.Contains(required(), name) {
		lack, prefix = t.Fatalf, "required: "
	}
	script := os.Getenv("OUTWARD_TEST_SERVICES")
	if script == "" {
		lack("%s%s: OUTWARD_TEST_SERVICES is not set, so it can't be killed or paused", prefix, name)
	}
	alone(t)
	s := &Server{t: t, name: name, script: script}
	// Its address may have been given by hand; then the script's is another server.
	ours, err := s.run("env", name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if !s.matches(ours) {
		lack("%s%s: the server that the tests use is not run by %s", prefix, name, script)
	}
	t.Cleanup(s.Restore)
	return s
}

// matches tells whether every address that the script prints for the server is the
// one the tests use, and there is one.
func (s *Server) matches(env string) bool {
	any := false
	for line := range strings.Lines(env) {
		key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if !ok || !strings.HasPrefix(key, variable(s.name, "")) {
			continue
		}
		value, _, _ = strings.Cut(strings.TrimPrefix(value, "'"), "'")
		if os.Getenv(key) != value {
			return false
		}
		any = true
	}
	return any
}

// Kill ends the server and every process of it with SIGKILL, and returns when they
// are gone.
func (s *Server) Kill() { s.t.Helper(); s.do("kill") }

// Up starts a server that was killed or stopped, and returns when it is ready.
func (s *Server) Up() { s.t.Helper(); s.do("up") }

// Stop stops the server as an operator would, and returns when it is gone.
func (s *Server) Stop() { s.t.Helper(); s.do("down") }

// Restart stops the server as an operator would, starts it, and returns when it is
// ready.
func (s *Server) Restart() { s.t.Helper(); s.do("restart") }

// Pause freezes the server: its connections stay and nothing answers.
func (s *Server) Pause() { s.t.Helper(); s.do("pause") }

// Resume undoes Pause.
func (s *Server) Resume() { s.t.Helper(); s.do("resume") }

// Ctl has the server's own control program do something: rabbitmqctl. A test undoes
// what it did.
func (s *Server) Ctl(args ...string) {
	s.t.Helper()
	if _, err := s.run("ctl", append([]string{s.name}, args...)...); err != nil {
		s.t.Fatalf("%v", err)
	}
}

// Restore brings the server back whatever was done to it; it does nothing to one
// that is well. Control has it called when the test ends.
func (s *Server) Restore() {
	s.t.Helper()
	if _, err := s.run("status", s.name); err == nil {
		return
	}
	// Paused or gone: resume fails if it is gone, and up if neither was all that was wrong.
	_, resumed := s.run("resume", s.name)
	if _, err := s.run("up", s.name); err != nil {
		s.t.Fatalf("%s could not be brought back: %v (resume: %v)", s.name, err, resumed)
	}
}

func (s *Server) do(command string) {
	s.t.Helper()
	if _, err := s.run(command, s.name); err != nil {
		s.t.Fatalf("%v", err)
	}
}

func (s *Server) run(command string, args ...string) (stdout string, err error) {
	cmd := exec.Command(s.script, append([]string{command}, args...)...)
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("services %s %s: %w\n%s", command, strings.Join(args, " "), err, e.String())
	}
	return o.String(), nil
}
