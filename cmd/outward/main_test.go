package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outward-dev/outward/internal/testservers"
)

// built is the program as users run it, made once.
var built string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if testing.Short() || flag.Lookup("test.list").Value.String() != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "outward")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() {
			if err := os.RemoveAll(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
		built = filepath.Join(dir, "outward")
		args := []string{"build", "-o", built}
		if raceDetector {
			args = append(args, "-race")
		}
		build := exec.Command("go", append(args, ".")...)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// patience bounds everything that a test waits for.
const patience = 30 * time.Second

// within waits until ok.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// A site is a place of a test's own on the servers, with a configuration.
type site struct {
	t       *testing.T
	name    string // of the schema, the exchange, the queue and the stream
	dir     string
	file    string // with SQLite: where its tables are, and there is no schema
	env     []string
	secrets []string
}

// newSite makes a site with a configuration that uses it. What the test runs there
// must not print a secret.
func newSite(t *testing.T) *site {
	t.Helper()
	s := bareSite(t)
	dsn, url := testservers.DSN(t, "pg17"), testservers.URL(t, "rabbitmq4")
	s.setenv("ORDERS_DB", dsn)
	s.setenv("AMQP_URL", url)
	s.secrets = []string{dsn, url, "hunter2", ":outbox@", ":guest@"}
	s.configure(s.config())
	s.dropAfter()
	return s
}

// bareSite is a site without a configuration, and nothing on any server.
func bareSite(t *testing.T) *site {
	t.Helper()
	return &site{t: t, name: fmt.Sprintf("ow_cmd_%d_%d", os.Getpid(), time.Now().UnixNano()%1e9), dir: t.TempDir(), secrets: []string{"hunter2"}}
}

// config is a configuration with one relay, to the site's exchange.
func (s *site) config(changes ...string) string {
	return strings.NewReplacer(append([]string{"NAME", s.name}, changes...)...).Replace(`
relays:
  - name: orders
    store: {dialect: postgres, url: "${ORDERS_DB}", schema: NAME}
    transports:
      main: {kind: rabbitmq, url: "${AMQP_URL}", source: /orders}
    routes:
      - {topics: [">"], to: main, exchange: NAME}
http:
  probes: {listen: "127.0.0.1:0"}
`)
}

func (s *site) configure(text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "outward.yaml"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) setenv(key, value string) {
	s.env = append(s.env, key+"="+value)
}

// clean reports a secret in what the program printed.
func (s *site) clean(output string) {
	s.t.Helper()
	for _, secret := range s.secrets {
		if strings.Contains(output, secret) {
			s.t.Errorf("a secret was printed: %s", secret)
		}
	}
	if strings.Contains(output, "DATA RACE") || strings.Contains(output, "panic:") {
		s.t.Errorf("the program raced or panicked:\n%s", output)
	}
}

func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, built, args...)
	c.Dir = s.dir
	c.Env = append(append(os.Environ(), "OUTWARD_CONFIG=outward.yaml", "GORACE=atexit_sleep_ms=0"), s.env...)
	return c
}

// run runs the program to its end.
func (s *site) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	c := s.command(ctx, args...)
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("outward %s: %v", strings.Join(args, " "), err)
	}
	s.clean(o.String() + e.String())
	return c.ProcessState.ExitCode(), o.String(), e.String()
}

// want runs the program and checks its exit code, and that its output has all of
// the texts in it.
func (s *site) want(code int, args string, texts ...string) string {
	s.t.Helper()
	got, stdout, stderr := s.run(strings.Fields(args)...)
	s.checkOutput("outward "+args, got, code, stdout+stderr, texts)
	return stdout
}

func (s *site) checkOutput(what string, got, want int, output string, texts []string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: exit code %d, want %d\n%s", what, got, want, output)
	}
	for _, text := range texts {
		if !strings.Contains(output, text) {
			s.t.Errorf("%s: it does not say %q:\n%s", what, text, output)
		}
	}
}

// A daemon is a running relay process.
type daemon struct {
	s    *site
	cmd  *exec.Cmd
	out  output
	done chan struct{}
}

// output is written by the process and read by the test.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start starts a relay process, which the end of the test kills if nobody else has
// ended it.
func (s *site) start(args ...string) *daemon {
	s.t.Helper()
	d := &daemon{s: s, done: make(chan struct{})}
	d.cmd = s.command(context.Background(), append([]string{"relay"}, args...)...)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	if err := d.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait() // its exit code is looked at
	}()
	s.t.Cleanup(func() {
		_ = d.cmd.Process.Kill() // it may have ended
		<-d.done
		s.clean(d.out.String())
		if s.t.Failed() {
			s.t.Logf("the relay printed:\n%s", d.out.String())
		}
	})
	return d
}

// says waits until the process has printed a text.
func (d *daemon) says(text string) {
	d.s.t.Helper()
	within(d.s.t, "the relay says "+text, func() bool {
		select {
		case <-d.done:
			if !strings.Contains(d.out.String(), text) {
				d.s.t.Fatalf("the relay ended without saying %q:\n%s", text, d.out.String())
			}
		default:
		}
		return strings.Contains(d.out.String(), text)
	})
}

// stop ends the process as an orchestrator would.
func (d *daemon) stop() {
	d.s.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.s.t.Fatal(err)
	}
	d.ends(exitWell)
}

// ends waits for the end of the process and checks its exit code.
func (d *daemon) ends(code int, texts ...string) {
	d.s.t.Helper()
	select {
	case <-d.done:
	case <-time.After(patience):
		d.s.t.Fatalf("the relay did not end within %v", patience)
	}
	d.s.checkOutput("outward relay", d.cmd.ProcessState.ExitCode(), code, d.out.String(), texts)
}

var listens = regexp.MustCompile(`msg=probes listen=(\S+)`)

// address waits for the address of the probes.
func (d *daemon) address() string {
	d.s.t.Helper()
	d.says("msg=probes")
	return listens.FindStringSubmatch(d.out.String())[1]
}
