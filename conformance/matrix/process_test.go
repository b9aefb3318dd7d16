package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// The test program is also the relay process that tests start, kill and watch.
const relayVariable = "OUTWARD_MATRIX_RELAY"

func TestMain(m *testing.M) {
	if spec := os.Getenv(relayVariable); spec != "" {
		if err := relayMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// relaySpec is what a relay process is told.
type relaySpec struct {
	Dialect, StoreAt    string
	Transport, BrokerAt string
	Batch               int
	Lease               time.Duration
	Faults              *faultSpec // with a journal, for the tests under faults
	Crash               *crashSpec // with a rig, to be killed at a boundary
}

func relayMain(text string) error {
	var spec relaySpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	for _, d := range dialects {
		for _, tr := range transports {
			if d.name == spec.Dialect && tr.name == spec.Transport {
				return spec.serve(d, tr)
			}
		}
	}
	return errors.New("no such pair")
}

// serve runs a relay until SIGTERM.
func (spec *relaySpec) serve(d dialect, tr transport) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	before := runtime.NumGoroutine()
	if spec.Crash != nil {
		return spec.Crash.serve(ctx, *spec, d, tr)
	}
	if spec.Faults == nil {
		return spec.relay(ctx, d, tr, nil)
	}
	j, err := openJournal(spec.Faults.Journal)
	if err != nil {
		return err
	}
	if err := spec.relay(ctx, d, tr, j); err != nil {
		return err
	}
	j.ended(before)
	return nil
}

func (spec *relaySpec) relay(ctx context.Context, d dialect, tr transport, j *journal) error {
	box, err := d.open(spec.StoreAt)
	if err != nil {
		return err
	}
	defer box.close()
	broker, routes, err := tr.open(spec.BrokerAt)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = broker.Close(ctx) // cutting off is what the limit is for
	}()
	store := box.store
	opts := &engine.Options{
		Batch: spec.Batch, Lease: spec.Lease, SettleTimeout: spec.Lease / 3,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if spec.Faults != nil {
		opts = spec.Faults.options(*spec, j)
		if store, routes, err = spec.Faults.wrap(store, routes, spec.Lease, j); err != nil {
			return err
		}
	}
	relay, err := engine.New(store, routes, opts)
	if err != nil {
		return err
	}
	fmt.Printf("started %d\n", time.Now().Unix())
	return relay.Run(ctx)
}

// A relayProcess is a relay in a process of its own.
type relayProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	clock time.Time // its own, when it began
}

// startRelay starts a relay process for the pair, which is stopped at the end of
// the test at the latest.
func (p *pair) startRelay(change func(*relaySpec)) *relayProcess {
	p.t.Helper()
	spec := relaySpec{Dialect: p.dialect.name, StoreAt: p.storeAt, Transport: p.name, BrokerAt: p.brokerAt, Lease: 3 * time.Second}
	if change != nil {
		change(&spec)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		p.t.Fatal(err)
	}
	r := &relayProcess{t: p.t, cmd: exec.Command(p.program())}
	r.cmd.Env = append(append(os.Environ(), p.relayEnv...), relayVariable+"="+string(text))
	r.cmd.Stderr = logWriter{p.t}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(r.kill)
	var began int64
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, bad := fmt.Sscanf(line, "started %d\n", &began); bad != nil {
		p.t.Fatalf("the relay process did not start: %q, %v", line, err)
	}
	r.clock = time.Unix(began, 0)
	return r
}

// program is what runs a relay: this test program, unless the pair has another.
func (p *pair) program() string {
	if p.relayProgram != "" {
		return p.relayProgram
	}
	return os.Args[0]
}

// kill ends it at once, wherever it is. A second call does nothing.
func (r *relayProcess) kill() {
	if r.cmd.ProcessState != nil {
		return
	}
	_ = r.cmd.Process.Kill() // it may have ended by itself: Wait tells
	_ = r.cmd.Wait()
}

// stop lets it drain, and fails the test if it does not end well.
func (r *relayProcess) stop() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("the relay process ended with %v", err)
	}
}

// logWriter passes a process's log on to the test's.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Logf("relay: %s", p)
	return len(p), nil
}
