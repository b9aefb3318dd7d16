//go:build unix

// Testrun is what `make test` runs: it brings up the servers that the tests need,
// runs go vet and the tests of every module of this repository, stops exactly the
// servers that it started, and says what ran and what did not.
//
//	testrun [-run REGEXP] [-module DIR] [-timeout DURATION] [PACKAGE...]
//
// With packages it runs those of the root module alone, or of the module in DIR,
// without packages all of that one. Settings are in the
// environment:
//
//	OUTWARD_TEST_SERVERS   the servers wanted, by their names in scripts/services
//	                       [pg15 pg17 pg18 mysql mariadb mariadb118 rabbitmq4 nats]; empty: none
//	OUTWARD_TEST_REQUIRE   those whose absence fails the run, with commas between them
//	OUTWARD_TEST_LIMIT     how long the whole may take [60m]
//
// A server whose OUTWARD_TEST_<NAME>_DSN (_URL, _BROKERS) is set already is used as
// it is. The last line of the output is `ran N, NOT RUN M: names`. The exit code is 0
// if every test that ran passed, at least one did, nothing required is missing and
// no test was skipped without saying what it lacks.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	run := flag.String("run", "", "run only tests that match this `regexp`, as go test -run does")
	module := flag.String("module", "", "run only the tests of the module in this `folder` of the repository")
	timeout := flag.Duration("timeout", 25*time.Minute, "how long the tests of one package may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(testrun(ctx, selection{*run, *module, *timeout, flag.Args()}, os.Stdout))
}

// A selection says what is to be run.
type selection struct {
	match    string
	module   string // its folder; empty: all modules
	timeout  time.Duration
	packages []string
}

func testrun(ctx context.Context, sel selection, out io.Writer) int {
	started := time.Now()
	limit := 60 * time.Minute
	if s := os.Getenv("OUTWARD_TEST_LIMIT"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			fmt.Fprintf(out, "testrun: OUTWARD_TEST_LIMIT is %q: not a duration\n", s)
			return 2
		}
		limit = d
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took longer than OUTWARD_TEST_LIMIT, %s", limit))
	defer cancel()

	root, err := repository()
	if err != nil {
		fmt.Fprintf(out, "testrun: %v\n", err)
		return 1
	}
	required := words(os.Getenv("OUTWARD_TEST_REQUIRE"))
	wanted := []string{"pg15", "pg17", "pg18", "mysql", "mariadb", "mariadb118", "rabbitmq4", "nats"}
	if s, set := os.LookupEnv("OUTWARD_TEST_SERVERS"); set {
		wanted = words(s)
	}
	for _, n := range required {
		if !slices.Contains(wanted, n) {
			wanted = append(wanted, n)
		}
	}

	var problems []string
	sv := &servers{script: filepath.Join(root, "scripts", "services"), out: out, environ: os.Environ()}
	for _, n := range sv.up(ctx, wanted) {
		if slices.Contains(required, n) {
			problems = append(problems, n+" is required and did not start")
		}
	}

	t := newTally(out)
	modules, err := modules(root)
	if err != nil {
		problems = append(problems, err.Error())
	}
	packages := sel.packages
	if len(packages) > 0 || sel.module != "" {
		modules = []string{filepath.Join(root, sel.module)}
	}
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	for _, dir := range modules {
		if ctx.Err() != nil {
			break
		}
		name, err := filepath.Rel(root, dir)
		if err != nil {
			name = dir
		}
		fmt.Fprintf(out, "\n# %s: go vet\n", name)
		if err := goCommand(ctx, dir, sv.environ, out, append([]string{"vet"}, packages...)...); err != nil {
			problems = append(problems, fmt.Sprintf("%s: go vet: %v", name, err))
		}
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(out, "# %s: go test\n", name)
		// -count=1: what a server does today is in no cache. -race also checks unsafe
		// pointers; in SQLite's translated C, which is full of them, that finds nothing
		// of ours and takes two thirds of the time.
		args := []string{"test", "-race", "-gcflags=modernc.org/...=-d=checkptr=0", "-json", "-count=1", "-timeout=" + sel.timeout.String(), "-p=" + strconv.Itoa(min(runtime.NumCPU(), 4))}
		if sel.match != "" {
			args = append(args, "-run="+sel.match)
		}
		before := t.failed
		r, w := io.Pipe()
		read := make(chan error, 1)
		go func() {
			err := t.read(r)
			r.CloseWithError(err) // so that the writing side can't block
			read <- err
		}()
		err = goCommand(ctx, dir, sv.environ, w, append(args, packages...)...)
		_ = w.Close() // of a pipe in memory: it has no error to give
		if rerr := <-read; rerr != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", name, rerr))
		}
		if err != nil && t.failed == before { // else the count says it
			problems = append(problems, fmt.Sprintf("%s: go test: %v", name, err))
		}
	}
	if ctx.Err() != nil {
		problems = append(problems, "stopped before the end: "+context.Cause(ctx).Error())
	}
	problems = append(problems, sv.down(context.WithoutCancel(ctx))...)
	problems = append(problems, t.problems(required)...)

	fmt.Fprintf(out, "\n%.0f s in all\n", time.Since(started).Seconds())
	for _, p := range problems {
		fmt.Fprintf(out, "FAIL: %s\n", p)
	}
	counts, last := t.summary()
	fmt.Fprintf(out, "%s\n%s\n", counts, last)
	if len(problems) > 0 {
		return 1
	}
	return 0
}

func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
}

// repository finds the root of the checkout: the folder, here or above, that has
// both a go.mod and scripts/services.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err1 := os.Stat(filepath.Join(dir, "go.mod"))
		_, err2 := os.Stat(filepath.Join(dir, "scripts", "services"))
		if err1 == nil && err2 == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("run it inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// modules lists the folders at and below root that have a go.mod, root first.
func modules(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if name == "go.mod" && !d.IsDir() {
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	slices.Sort(dirs) // root first: the others begin with it
	return dirs, err
}

// goCommand runs the go command in dir; its output goes to out. When ctx ends, it
// and the test programs below it are ended.
func goCommand(ctx context.Context, dir string, environ []string, out io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// a workspace file above the checkout would change what nested modules mean
	cmd.Env = append(slices.Clone(environ), "GOWORK=off")
	cmd.Stdout = out
	cmd.Stderr = os.Stderr
	return runGroup(cmd)
}

// runGroup runs cmd in a process group of its own: an interrupt from the terminal
// then reaches this program alone, and ending cmd ends all that it started.
func runGroup(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if cmd.Process != nil && err != nil {
		// Those that took no notice. ESRCH, nobody is left, is the usual answer.
		if kerr := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); kerr != nil && !errors.Is(kerr, syscall.ESRCH) {
			err = errors.Join(err, fmt.Errorf("end what it started: %w", kerr))
		}
	}
	return err
}

// servers brings up what is wanted by scripts/services and remembers what it was
// that it started.
type servers struct {
	script  string
	out     io.Writer
	environ []string // for the tests; grows by the addresses
	started []string // by us: to be stopped
	found   []string // running before us: to be left running
}

// up makes the wanted servers run and returns the names of those that don't.
func (s *servers) up(ctx context.Context, wanted []string) (absent []string) {
	var here []string
	for _, n := range wanted {
		if s.given(n) {
			fmt.Fprintf(s.out, "testrun: %s: its address was given\n", n)
			continue
		}
		if ctx.Err() != nil {
			absent = append(absent, n)
			continue
		}
		if s.call(ctx, nil, io.Discard, "status", n) == nil {
			s.found = append(s.found, n)
			here = append(here, n)
			continue
		}
		// Remembered before it is tried: an interrupted start is undone as well.
		s.started = append(s.started, n)
		var fresh bytes.Buffer
		if err := s.call(ctx, &fresh, os.Stderr, "up", n); err != nil {
			fmt.Fprintf(s.out, "\ntestrun: %s DID NOT START (%v): its tests will be NOT RUN\n\n", n, err)
			absent = append(absent, n)
			continue
		}
		here = append(here, n)
		if !slices.Contains(words(fresh.String()), n) { // someone else was faster
			s.started = s.started[:len(s.started)-1]
			s.found = append(s.found, n)
		}
	}
	if len(here) == 0 {
		return absent
	}
	if err := s.call(ctx, s.out, os.Stderr, "status", here...); err != nil {
		fmt.Fprintf(s.out, "testrun: services status: %v\n", err)
	}
	var env bytes.Buffer
	if err := s.call(ctx, &env, os.Stderr, "env", here...); err != nil {
		fmt.Fprintf(s.out, "testrun: services env: %v\n", err)
		return append(absent, here...)
	}
	s.environ = append(s.environ, exports(env.String())...)
	return absent
}

// given tells whether somebody set the address of the server, so that there is
// nothing to start.
func (s *servers) given(name string) bool {
	for _, suffix := range []string{"_DSN", "_URL", "_BROKERS"} {
		if os.Getenv("OUTWARD_TEST_"+strings.ToUpper(name)+suffix) != "" {
			return true
		}
	}
	return false
}

// down stops the servers that up started, and brings back those it found running
// if a test was ended while it had one killed or paused.
// It has to happen as well when the run is over because its time, or the user's
// patience, is.
func (s *servers) down(ctx context.Context) (problems []string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for _, n := range s.started {
		if err := s.call(ctx, nil, os.Stderr, "down", n); err != nil {
			problems = append(problems, fmt.Sprintf("%s was started here and could not be stopped: %v", n, err))
		}
	}
	for _, n := range s.found {
		if s.call(ctx, nil, io.Discard, "status", n) == nil {
			continue
		}
		problems = append(problems, n+" ran before the tests and did not after them")
		if s.call(ctx, nil, os.Stderr, "resume", n) == nil && s.call(ctx, nil, io.Discard, "status", n) == nil {
			continue
		}
		if err := s.call(ctx, nil, os.Stderr, "up", n); err != nil {
			problems = append(problems, fmt.Sprintf("%s could not be started again: %v", n, err))
		}
	}
	return problems
}

func (s *servers) call(ctx context.Context, stdout, stderr io.Writer, command string, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute) // a first start fetches packages or images
	defer cancel()
	cmd := exec.CommandContext(ctx, s.script, append([]string{command}, names...)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return runGroup(cmd)
}

// exports reads lines of the form export NAME='VALUE'.
func exports(s string) (env []string) {
	for line := range strings.Lines(s) {
		rest, ok := strings.CutPrefix(line, "export ")
		name, value, ok2 := strings.Cut(rest, "='")
		value, _, ok3 := strings.Cut(value, "'")
		if ok && ok2 && ok3 {
			env = append(env, name+"="+value)
		}
	}
	return env
}
