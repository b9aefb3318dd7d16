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
}

func relayMain(text string) error {
	var spec relaySpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	var relay *engine.Relay
	for _, d := range dialects {
		if d.name != spec.Dialect {
			continue
		}
		box, err := d.open(spec.StoreAt)
		if err != nil {
			return err
		}
		defer box.close()
		for _, tr := range transports {
			if tr.name != spec.Transport {
				continue
			}
			broker, routes, err := tr.open(spec.BrokerAt)
			if err != nil {
				return err
			}
			defer broker.Close(context.Background())
			relay, err = engine.New(box.store, routes, &engine.Options{
				Batch: spec.Batch, Lease: spec.Lease, SettleTimeout: spec.Lease / 3,
				Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				return err
			}
		}
	}
	if relay == nil {
		return errors.New("no such pair")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("started")
	return relay.Run(ctx)
}

// A relayProcess is a relay in a process of its own.
type relayProcess struct {
	t   *testing.T
	cmd *exec.Cmd
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
	r := &relayProcess{t: p.t, cmd: exec.Command(os.Args[0])}
	r.cmd.Env = append(os.Environ(), relayVariable+"="+string(text))
	r.cmd.Stderr = logWriter{p.t}
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(r.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		p.t.Fatalf("the relay process did not start: %q, %v", line, err)
	}
	return r
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
