package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// worker, in the environment of a process of this test, names the database and the
// file that stands for the broker.
const workerEnv = "OUTWARD_SQLITE_WORKER"

// TestProcesses: four relay processes share a file and are killed at any moment.
// Everything that was committed arrives, nothing that was rolled back does, every key
// keeps its order, and what comes twice was in the hands of a process that died.
func TestProcesses(t *testing.T) {
	if env := os.Getenv(workerEnv); env != "" {
		runWorker(t, env)
		return
	}
	const workers, kills, keys = 4, 8, 7
	d := newDatabase(t, nil)
	broker := filepath.Join(t.TempDir(), "broker")
	must(t, os.WriteFile(broker, nil, 0o600))

	var procs []*process
	for range workers {
		procs = append(procs, startWorker(t, d.path, broker))
	}
	lines := 0 // that were in the broker at the last kill
	want := map[string]int{}
	next := map[int]int{}
	rng := rand.New(rand.NewPCG(1, 2))
	produce := func(n int) {
		for range n {
			key := rng.IntN(keys)
			name := fmt.Sprintf("%d/%d", key, next[key])
			m := msg("t", fmt.Sprint("key ", key))
			m.Type = name
			err := d.w.InTx(t.Context(), d.db, func(tx *Tx) error {
				if _, err := d.w.Enqueue(t.Context(), tx, m); err != nil {
					return err
				}
				if rng.IntN(5) == 0 {
					return errRolledBack
				}
				return nil
			})
			switch {
			case err == nil:
				want[name] = key
				next[key]++
			case !errors.Is(err, errRolledBack):
				t.Fatal(err)
			}
		}
	}
	for range kills {
		produce(25)
		// A few more messages have gone, and one of the processes is in the middle of one.
		waitFor(t, "messages", func() bool { return countLines(t, broker) > lines+rng.IntN(15) })
		i := rng.IntN(workers)
		procs[i].kill()
		lines = countLines(t, broker)
		procs[i] = startWorker(t, d.path, broker)
	}
	waitFor(t, "the end", func() bool { return one[int](d, `SELECT count(*) FROM {messages}`) == 0 })
	for _, p := range procs {
		p.stop()
	}

	text, err := os.ReadFile(broker)
	must(t, err)
	got, before, repeats := map[string]bool{}, map[string]int{}, 0
	for _, name := range strings.Fields(string(text)) {
		if got[name] {
			repeats++
			continue
		}
		got[name] = true
		if _, is := want[name]; !is {
			t.Errorf("%s came and was never committed", name)
		}
		key, n, _ := strings.Cut(name, "/")
		if n != fmt.Sprint(before[key]) {
			t.Errorf("key %s: %s came first, %d is next", key, n, before[key])
		}
		before[key]++
	}
	if len(got) != len(want) {
		t.Errorf("%d of %d messages came", len(got), len(want))
	}
	t.Logf("%d messages, %d kills, %d came twice", len(want), kills, repeats)
	if most := kills * workerBatch; repeats > most {
		t.Errorf("%d messages came twice, %d kills explain %d", repeats, kills, most)
	}
	d.sound()
}

var errRolledBack = errors.New("rolled back")

const (
	workerBatch = 5
	workerLease = 2 * time.Second
)

// runWorker is a relay with a file for a broker. It ends when its standard input does.
func runWorker(t *testing.T, env string) {
	path, broker, _ := strings.Cut(env, "|")
	d := &database{t: t, path: path, opts: &Options{Retention: &Retention{Discarded: time.Hour}}}
	s := d.open()
	file, err := os.OpenFile(broker, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	r := req(workerBatch)
	r.Lease = workerLease
	for pause := time.Millisecond; ctx.Err() == nil; {
		c, err := s.Claim(context.WithoutCancel(ctx), r)
		must(t, err)
		if len(c) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause + rand.N(pause)):
			}
			pause = min(2*pause, 50*time.Millisecond)
			continue
		}
		pause = time.Millisecond
		for i := range c {
			_, err := file.WriteString(c[i].Type + "\n")
			must(t, err)
			// One by one, so that a kill often comes between the two.
			_, err = s.Settle(context.WithoutCancel(ctx), engine.MarkPublished(c[i].Receipt))
			must(t, err)
		}
	}
}

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	out   *strings.Builder
}

func startWorker(t *testing.T, path, broker string) *process {
	t.Helper()
	p := &process{t: t, out: &strings.Builder{}}
	p.cmd = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcesses$")
	p.cmd.Env = append(os.Environ(), workerEnv+"="+path+"|"+broker)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	stdin, err := p.cmd.StdinPipe()
	must(t, err)
	p.stdin = stdin
	must(t, p.cmd.Start())
	return p
}

func (p *process) kill() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Kill())
	if err := p.cmd.Wait(); err == nil || strings.Contains(p.out.String(), "FAIL") {
		p.t.Errorf("a worker had ended by itself before it was killed: %v\n%s", err, p.out)
	}
}

func (p *process) stop() {
	p.t.Helper()
	_ = p.stdin.Close() // whatever it says, Wait tells
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("a worker failed: %v\n%s", err, p.out)
	}
}

func countLines(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		n++
	}
	return n
}

// waitFor looks until it is so, or for half a minute.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s did not come", what)
		}
	}
}

// TestProducers: while two relays claim and settle, four producers commit, and nothing
// is lost or comes twice.
func TestProducers(t *testing.T) {
	d := newDatabase(t, nil)
	contend(t, d)
}

// TestBusyStorm is the same with connections that are refused at once when another one
// has the lock: nobody sees an error.
func TestBusyStorm(t *testing.T) {
	d := newDatabase(t, nil)
	contend(t, d, noWait, deferred)
}

func contend(t *testing.T, d *database, change ...*strings.Replacer) {
	t.Helper()
	const producers, rounds = 4, 15
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		came = map[engine.ID]int{}
		last = map[string]int64{}
		want = map[engine.ID]bool{}
	)
	for n := range producers {
		db := d.connect(change...)
		wg.Go(func() {
			for range rounds {
				var ids []engine.ID
				err := d.w.InTx(t.Context(), db, func(tx *Tx) (err error) {
					ids, err = d.w.Enqueue(t.Context(), tx, msg("t", ""), msg("t", fmt.Sprint("key ", n)), msg("t", "all"))
					return err
				})
				if err != nil {
					t.Errorf("enqueue: %v", err)
					return
				}
				mu.Lock()
				for _, id := range ids {
					want[id] = true
				}
				mu.Unlock()
			}
		})
	}
	for range 2 {
		s := d.store(d.connect(change...))
		wg.Go(func() {
			for t.Context().Err() == nil {
				c, err := s.Claim(t.Context(), req(7))
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				var ss []engine.Settlement
				mu.Lock()
				for i := range c {
					came[c[i].ID]++
					if c[i].Key != "" {
						if c[i].Receipt.Seq < last[c[i].Key] {
							t.Errorf("key %s: out of order", c[i].Key)
						}
						last[c[i].Key] = c[i].Receipt.Seq
					}
					ss = append(ss, engine.MarkPublished(c[i].Receipt))
				}
				all := len(came) == producers*rounds*3
				mu.Unlock()
				if lost, err := s.Settle(t.Context(), ss...); err != nil || len(lost) > 0 {
					t.Errorf("settle: %d lost, %v", len(lost), err)
					return
				}
				if all || t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
	for id := range want {
		if came[id] != 1 {
			t.Errorf("message %v came %d times", id, came[id])
		}
	}
	d.sound()
}

// TestOneConnection: a database limited to one connection works for everything.
func TestOneConnection(t *testing.T) {
	d := newDatabase(t, nil)
	db := d.connect()
	db.SetMaxOpenConns(1)
	s := d.store(db)
	for range 3 {
		must(t, d.w.InTx(t.Context(), db, func(tx *Tx) error {
			_, err := d.w.Enqueue(t.Context(), tx, msg("t", "k"), msg("t", ""))
			return err
		}))
	}
	c := d.claim(s, req(10))
	if len(c) != 6 {
		t.Fatalf("%d claimed", len(c))
	}
	_, err := s.Extend(t.Context(), []engine.Receipt{c[0].Receipt}, time.Minute)
	must(t, err)
	var ss []engine.Settlement
	for i := range c {
		ss = append(ss, engine.DeadLetter(c[i].Receipt, true, engine.Fault{}))
	}
	d.settle(s, 0, ss...)
	n := 0
	for r, err := range s.Dead(t.Context(), engine.Filter{}) {
		must(t, err)
		if _, err := s.Requeue(t.Context(), engine.Filter{IDs: []engine.ID{r.ID}}, engine.Actor{Name: "anna"}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 6 {
		t.Errorf("%d dead", n)
	}
	if got := s.Check(t.Context()); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	_, err = s.Backlog(t.Context())
	must(t, err)
	if in := d.inbox(); in != nil {
		_, err = in.Purge(t.Context(), db, 10)
		must(t, err)
	}
}
