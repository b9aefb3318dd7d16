package testservers_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/internal/testservers"
)

// fake is a test that is only watched. Skipf and Fatalf end its goroutine, as the
// real ones do.
type fake struct {
	said     string
	cleanups []func()
}

func (f *fake) Helper()             {}
func (f *fake) Cleanup(c func())    { f.cleanups = append(f.cleanups, c) }
func (f *fake) Setenv(k, v string)  {}
func (f *fake) Logf(string, ...any) {}
func (f *fake) Skipf(format string, args ...any) {
	f.said = "SKIP " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fake) Fatalf(format string, args ...any) {
	f.said = "FATAL " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// watch runs f as a test and gives what it said, or what it returned.
func watch(f func(t testservers.T) string) string {
	t := &fake{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(t.cleanups) - 1; i >= 0; i-- {
				t.cleanups[i]()
			}
		}()
		t.said = f(t)
	}()
	<-done
	return t.said
}

// atHome keeps the test from the variables and the lock of the run it is part of.
func atHome(t *testing.T) {
	t.Helper()
	t.Cleanup(testservers.SetShort(false))
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("OUTWARD_TEST_REQUIRE", "")
	t.Setenv("OUTWARD_TEST_PG99_DSN", "postgres://here")
}

func TestAddress(t *testing.T) {
	atHome(t)
	t.Setenv("OUTWARD_TEST_RABBITMQ9_URL", "amqp://here")
	t.Setenv("OUTWARD_TEST_RABBITMQ9_MANAGEMENT_URL", "http://here")
	t.Setenv("OUTWARD_TEST_PG98_DSN", "")
	t.Setenv("OUTWARD_TEST_REQUIRE", "pg99, pg97")
	for _, tt := range []struct {
		call func(testservers.T) string
		want string
	}{
		{func(t testservers.T) string { return testservers.DSN(t, "pg99") }, "postgres://here"},
		{func(t testservers.T) string { return testservers.URL(t, "rabbitmq9") }, "amqp://here"},
		{func(t testservers.T) string { return testservers.Management(t, "rabbitmq9") }, "http://here"},
		{func(t testservers.T) string { return testservers.DSN(t, "pg98") }, "SKIP NOT RUN: pg98: OUTWARD_TEST_PG98_DSN is not set"},
		{func(t testservers.T) string { return testservers.DSN(t, "pg97") }, "FATAL pg97 is required (OUTWARD_TEST_REQUIRE) and OUTWARD_TEST_PG97_DSN is not set"},
		{func(t testservers.T) string { return testservers.Address(t, "kafka9", "BROKERS") }, "SKIP NOT RUN: kafka9: OUTWARD_TEST_KAFKA9_BROKERS is not set"},
	} {
		if got := watch(tt.call); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestShort(t *testing.T) {
	atHome(t)
	t.Cleanup(testservers.SetShort(true))
	for _, call := range []func(testservers.T) string{
		func(t testservers.T) string { return testservers.DSN(t, "pg99") },
		func(t testservers.T) string { testservers.Control(t, "pg99"); return "no complaint" },
	} {
		if got := watch(call); got != "SKIP NOT RUN: pg99: -short" {
			t.Errorf("%q", got)
		}
	}
}

// A script that writes down its calls; the server is up, paused or down as the
// file "state" says.
const script = `#!/bin/sh
cd "$(dirname "$0")" || exit 1
echo "$*" >>calls
state=$(cat state)
case $1 in
  env) echo "export OUTWARD_TEST_SERVICES='x'"; echo "export OUTWARD_TEST_PG99_DSN='postgres://here'" ;;
  status) [ "$state" = up ] || exit 3 ;;
  kill) echo down >state ;;
  pause) echo paused >state ;;
  resume) [ "$state" = paused ] || { echo "not running" >&2; exit 1; }; echo up >state ;;
  up) [ "$state" != paused ] || { echo "paused" >&2; exit 1; }; echo up >state ;;
esac
`

func TestControl(t *testing.T) {
	atHome(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	write("services", script)
	t.Setenv("OUTWARD_TEST_SERVICES", filepath.Join(dir, "services"))

	for name, harm := range map[string]func(*testservers.Server){
		"kill":  (*testservers.Server).Kill,
		"pause": (*testservers.Server).Pause,
		"both":  func(s *testservers.Server) { s.Kill(); s.Up(); s.Pause(); s.Resume() },
	} {
		t.Run(name, func(t *testing.T) {
			write("state", "up")
			got := watch(func(t testservers.T) string {
				s := testservers.Control(t, "pg99")
				dsn := testservers.DSN(t, "pg99") // the lock is held already
				harm(s)
				return dsn
			})
			if got != "postgres://here" {
				t.Error(got)
			}
			if s := read("state"); s != "up" {
				t.Errorf("after the test the server is %s; calls:\n%s", s, read("calls"))
			}
		})
	}

	t.Run("comes first", func(t *testing.T) {
		got := watch(func(t testservers.T) string {
			testservers.DSN(t, "pg99")
			testservers.Control(t, "pg99")
			return "no complaint"
		})
		if !strings.HasPrefix(got, "FATAL testservers.Control comes first") {
			t.Error(got)
		}
	})
	t.Run("another server", func(t *testing.T) {
		t.Setenv("OUTWARD_TEST_PG99_DSN", "postgres://elsewhere")
		got := watch(func(t testservers.T) string { testservers.Control(t, "pg99"); return "no complaint" })
		if !strings.HasPrefix(got, "SKIP NOT RUN: pg99: the server that the tests use is not run by ") {
			t.Error(got)
		}
	})
	t.Run("no script", func(t *testing.T) {
		t.Setenv("OUTWARD_TEST_SERVICES", "")
		t.Setenv("OUTWARD_TEST_REQUIRE", "pg99")
		got := watch(func(t testservers.T) string { testservers.Control(t, "pg99"); return "no complaint" })
		if !strings.HasPrefix(got, "FATAL required: pg99: OUTWARD_TEST_SERVICES is not set") {
			t.Error(got)
		}
	})
}

// Control waits for the tests of other programs that use servers. The other program
// is this one, started again; see TestMain.
func TestControlWaits(t *testing.T) {
	atHome(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"services": script, "state": "up"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("OUTWARD_TEST_SERVICES", filepath.Join(dir, "services"))

	ended := filepath.Join(dir, "ended")
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), "OTHER_PROGRAM="+ended)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "using\n" {
		t.Fatalf("the other program said %q, %v", line, err)
	}
	got := make(chan string)
	go func() {
		got <- watch(func(t testservers.T) string {
			testservers.Control(t, "pg99")
			if _, err := os.Stat(ended); err != nil {
				return "Control returned while another program used the servers"
			}
			return ""
		})
	}()
	if err := in.Close(); err != nil { // its word to end
		t.Error(err)
	}
	if s := <-got; s != "" {
		t.Error(s)
	}
	if err := other.Wait(); err != nil {
		t.Errorf("the other program: %v", err)
	}
}

func TestMain(m *testing.M) {
	if ended := os.Getenv("OTHER_PROGRAM"); ended != "" {
		flag.Parse()
		if said := watch(func(t testservers.T) string { return otherProgram(t, ended) }); said != "" {
			fmt.Fprintln(os.Stderr, said)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func otherProgram(t testservers.T, ended string) string {
	testservers.DSN(t, "pg99")
	fmt.Println("using")
	_, err := io.Copy(io.Discard, os.Stdin)
	if err = errors.Join(err, os.WriteFile(ended, nil, 0o644)); err != nil {
		return err.Error()
	}
	return ""
}

func TestControlOnARealServer(t *testing.T) {
	server := testservers.Control(t, "pg15")
	u, err := url.Parse(testservers.DSN(t, "pg15"))
	if err != nil {
		t.Fatal(err)
	}
	// ask opens a connection and sends PostgreSQL's SSLRequest, which a server that
	// is well answers with one letter.
	ask := func() (net.Conn, error) {
		c, err := net.Dial("tcp", u.Host)
		if err == nil {
			_, err = c.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47})
		}
		return c, err
	}
	answer := func(c net.Conn, within time.Duration) error {
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	answers := func(when string) {
		t.Helper()
		c, err := ask()
		if err == nil {
			defer c.Close()
			err = answer(c, 30*time.Second)
		}
		if err != nil {
			t.Fatalf("%s: no answer: %v", when, err)
		}
	}

	answers("at first")
	server.Kill()
	if c, err := ask(); err == nil {
		c.Close()
		t.Fatal("killed, and it takes connections")
	}
	server.Up()
	answers("after Up")
	server.Pause()
	c, err := ask() // the kernel takes it
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := answer(c, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("paused, and reading gives %v", err)
	}
	server.Resume()
	if err := answer(c, 30*time.Second); err != nil {
		t.Fatalf("after Resume the same connection has no answer: %v", err)
	}
	server.Restart()
	answers("after Restart")
}
