package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/outward-dev/outward/dialects/sqlite"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/natsjs"
)

// relayWord is the argument by which this program is the relay.
const relayWord = "relay"

// relayMain is the relay process. It ends when its standard input does, so that it
// never outlives the program that started it.
func relayMain(args []string) int {
	flags := flag.NewFlagSet(relayWord, flag.ExitOnError)
	file, url := flags.String("file", "", ""), flags.String("nats", "", "")
	stopAt, lose := flags.Int("stop-at", 0, ""), flags.Bool("lose", false, "")
	_ = flags.Parse(args)       // it exits by itself
	signal.Ignore(os.Interrupt) // Ctrl-C is the parent's
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it
		cancel()
	}()
	if err := relay(ctx, *file, *url, *stopAt, *lose); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func relay(ctx context.Context, file, url string, stopAt int, lose bool) (err error) {
	db, err := sql.Open("sqlite", sqlite.DSN(file))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	store, err := sqlite.NewStore(db, nil)
	if err != nil {
		return err
	}
	nats, err := natsjs.New(url, &natsjs.Options{Source: "/shop", Stream: streamName})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, nats.Close(closing))
	}()
	options := &engine.Options{}
	if stopAt > 0 {
		// One message at a time: then exactly one is in its hands when it dies. A short
		// lease: the next relay need not wait for long.
		options = &engine.Options{Batch: 1, InFlight: 1, Lease: 3 * time.Second, SettleTimeout: time.Second}
	}
	r, err := engine.New(store, []engine.Route{{Topics: ">", Transport: &stopping{Transport: nats, stopAt: stopAt, lose: lose}}}, options)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// stopping is a transport that stands still between a broker's acknowledgement and
// the relay that would take note of it: the moment in which a process must not die,
// and does.
type stopping struct {
	*natsjs.Transport
	stopAt int
	lose   bool

	mu        sync.Mutex
	confirmed int
}

func (s *stopping) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(int, engine.Result)) {
	if s.lose && len(msgs) > 0 { // a test's fault
		s.lose = false
		report(0, engine.Result{})
		s.Transport.Publish(ctx, destination, msgs[1:], func(i int, r engine.Result) { report(i+1, r) })
		return
	}
	s.Transport.Publish(ctx, destination, msgs, func(i int, r engine.Result) {
		if r.Fault == nil && s.count() == s.stopAt {
			fmt.Println(msgs[i].ID) // the parent reads it and kills this process
			<-ctx.Done()
			os.Exit(1) // it did not
		}
		report(i, r)
	})
}

func (s *stopping) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed++
	return s.confirmed
}

// A process is a relay that was started.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// startRelay starts this program once more, as a relay.
func startRelay(ctx context.Context, shop *shop, broker *broker, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, append([]string{relayWord, "-file", shop.path, "-nats", broker.url()}, args...)...)}
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdout = bufio.NewReader(stdout)
	return p, p.cmd.Start()
}

// killRelay starts a relay, and kills it when the broker has acknowledged a message
// and the outbox doesn't know. It returns the id of that message.
func killRelay(ctx context.Context, say func(string, ...any), shop *shop, broker *broker, plant faults) (id string, err error) {
	args := []string{"-stop-at", fmt.Sprint(killAt)}
	if plant.loseMessage {
		args = append(args, "-lose")
	}
	p, err := startRelay(ctx, shop, broker, args...)
	if err != nil {
		return "", fmt.Errorf("relay: %w", err)
	}
	id, err = p.stdout.ReadString('\n') // when it stands still
	if err != nil {
		_ = p.cmd.Process.Kill() // it may have ended
		return "", fmt.Errorf("relay: it ended too early: %w: %s", errors.Join(err, p.cmd.Wait()), &p.stderr)
	}
	id = strings.TrimSpace(id)
	if err := p.cmd.Process.Kill(); err != nil {
		return "", fmt.Errorf("relay: kill: %w", err)
	}
	end := p.cmd.Wait()
	if end == nil || p.cmd.ProcessState.Exited() {
		return "", fmt.Errorf("relay: it was not killed: %v", p.cmd.ProcessState)
	}
	info, err := broker.stream.Info(ctx)
	if err != nil {
		return "", fmt.Errorf("jetstream: %w", err)
	}
	left, err := shop.count(ctx, waiting)
	if err != nil {
		return "", err
	}
	say("   Process %d had %d messages acknowledged. Before it noted the last one, order %d, it was killed (%v).", p.cmd.Process.Pid, info.State.Msgs, shop.sent[id].Number, end)
	say("   The stream has %d messages, and the outbox %d: one is in both.", info.State.Msgs, left)
	return id, nil
}

// finishRelay starts a relay, lets it empty the outbox, and ends it in good order.
func finishRelay(ctx context.Context, say func(string, ...any), shop *shop, broker *broker) error {
	p, err := startRelay(ctx, shop, broker)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	emptied := shop.emptied(ctx)
	end := errors.Join(p.stdin.Close(), p.cmd.Wait())
	if err := errors.Join(emptied, end); err != nil {
		return fmt.Errorf("relay: %w: %s", err, &p.stderr)
	}
	say("   Process %d emptied the outbox, drained and ended.", p.cmd.Process.Pid)
	return nil
}
