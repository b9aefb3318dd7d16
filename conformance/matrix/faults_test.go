package matrix

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/outward-dev/outward/conformance/judge"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
)

// A fault joins the table by one line in faults. It befalls every pair to which it
// can happen: relays are at work and producers commit before, while and after.
type fault struct {
	name string
	// not says why it can't befall a pair; empty: it can.
	not func(d dialect, tr transport) string
	// What is harmed: a server itself, or the network between it and the relays.
	database, broker         bool
	databaseWire, brokerWire bool
	wrongDatabase            bool // relays have an account of their own there
	wrongBroker              bool
	producersToo             bool // they reach the database through the wire as well
	relays                   int  // 0: 2; less: none
	producers                int  // 0: 3; less: none
	heavy                    bool // only where there is time for everything
	spec                     func(s *relaySpec)
	prepare                  func(c *trial) // before anybody is connected
	run                      func(c *trial) // does the harm, and undoes it
	after                    func(c *trial) // when the producers have ended
	expect                   func(c *trial, v judge.Verdict)
}

// everything is set by `make faults`: all servers, two seeds, more messages.
func everything() bool { return os.Getenv("OUTWARD_FAULTS") == "all" }

// scale is how much more there is of everything then.
func scale(n int) int {
	if everything() {
		return 4 * n
	}
	return n
}

// trialsAtOnce is how many trials run at once that harm no server.
const trialsAtOnce = 4

func TestFaults(t *testing.T) {
	seeds := []uint64{rand.Uint64()}
	if everything() {
		seeds = append(seeds, rand.Uint64())
	}
	if s := os.Getenv("OUTWARD_FAULTS_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("OUTWARD_FAULTS_SEED: %v", err)
		}
		seeds = []uint64{seed}
	}
	var table faultTable
	defer table.print(t)
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			var together, alone []func()
			for i := range faults {
				f := &faults[i]
				for _, d := range dialects {
					for _, tr := range transports {
						if f.heavy && !everything() {
							continue
						}
						if f.not != nil {
							if why := f.not(d, tr); why != "" {
								table.none(f.name, d.name+"/"+tr.name, why)
								continue
							}
						}
						for _, ds := range d.faulted() {
							for _, ts := range tr.servers {
								one := func() {
									t.Run(strings.ReplaceAll(f.name, " ", "_")+"/"+ds+"/"+ts, func(t *testing.T) {
										befall(t, f, d, tr, ds, ts, seed, &table)
									})
								}
								if f.database || f.broker {
									alone = append(alone, one)
								} else {
									together = append(together, one)
								}
							}
						}
					}
				}
			}
			var workers sync.WaitGroup
			next := make(chan func())
			for range trialsAtOnce {
				workers.Go(func() {
					for one := range next {
						one()
					}
				})
			}
			for _, one := range together {
				next <- one
			}
			close(next)
			workers.Wait()
			for _, one := range alone {
				one()
			}
		})
	}
}

// faulted lists the servers of a dialect that faults befall.
func (d dialect) faulted() []string {
	if d.typical != "" && !everything() {
		return []string{d.typical}
	}
	return d.servers
}

// befall is one trial.
func befall(t *testing.T, f *fault, d dialect, tr transport, ds, ts string, seed uint64, table *faultTable) {
	c := &trial{fault: f, seed: seed, rand: rand.New(rand.NewPCG(seed, 1<<32)), quit: make(chan struct{}), dir: t.TempDir(), began: time.Now()}
	if f.database {
		c.database = testservers.Control(t, ds)
	}
	if f.broker {
		c.broker = testservers.Control(t, ts)
	}
	c.pair = &pair{t: t, dialect: d, transport: tr}
	c.storeAt, c.brokerAt = d.create(t, ds), tr.create(t, ts)
	c.relayStoreAt, c.relayBrokerAt = c.storeAt, c.brokerAt
	if d.session != nil {
		c.relayStoreAt = d.session(c.storeAt, "application_name", relaysOf(c.storeAt))
	}
	c.producersAt = c.storeAt
	if f.wrongBroker {
		c.brokerAt, c.account = tr.login(t, c.brokerAt)
		c.relayBrokerAt = c.account.address
	}
	if f.wrongDatabase {
		c.account = d.login(t, c.storeAt)
		c.relayStoreAt = d.session(c.account.address, "application_name", relaysOf(c.storeAt))
	}
	if f.databaseWire {
		c.databaseWire = faultproxy.New(t, hostOf(t, c.storeAt))
		c.relayStoreAt = rewire(t, c.relayStoreAt, c.databaseWire.Addr())
		if f.producersToo {
			c.producersAt = rewire(t, c.storeAt, c.databaseWire.Addr())
		}
	}
	if f.brokerWire {
		c.brokerWire = faultproxy.New(t, hostOf(t, c.brokerAt))
		c.relayBrokerAt = rewire(t, c.brokerAt, c.brokerWire.Addr())
	}
	if f.prepare != nil { // before anybody is connected
		f.prepare(c)
	}
	for _, o := range []struct {
		box **outbox
		at  string
	}{{&c.outbox, c.storeAt}, {&c.producers, c.producersAt}} {
		box, err := d.open(o.at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(box.close)
		*o.box = box
	}
	ended := false
	defer func() {
		if !ended { // else the producers would outlive a test that failed
			close(c.quit)
			c.producing.Wait()
		}
	}()
	for range count(f.relays, 2) {
		c.relay(nil)
	}
	c.produce(count(f.producers, 3))
	if f.run != nil {
		if f.producers >= 0 {
			c.more(scale(50))
		}
		f.run(c)
	}
	if f.producers >= 0 {
		c.more(scale(50))
	}
	ended = true
	v := c.verdict()
	if f.expect != nil {
		f.expect(c, v)
	}
	table.add(f.name, ds+"/"+ts, v, time.Since(c.began), seed)
}

// count is n, or what it is if nothing is said; less than 0 is none.
func count(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return max(n, 0)
}

// faultTable is what came of each fault on each pair.
type faultTable struct {
	mu     sync.Mutex
	rows   []string
	noneOf map[string]bool
}

func (f *faultTable) add(name, pair string, v judge.Verdict, took time.Duration, seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t%d", name, pair,
		v.Committed, v.RolledBack, v.Unknown, v.Delivered, v.Repeats, v.Explained, v.Charged, v.Dead, len(v.Findings), took.Seconds(), seed))
}

func (f *faultTable) none(name, pair, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noneOf == nil {
		f.noneOf = map[string]bool{}
	}
	row := fmt.Sprintf("%s\t%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s", name, pair, why)
	if !f.noneOf[row] {
		f.noneOf[row] = true
		f.rows = append(f.rows, row)
	}
}

func (f *faultTable) print(t *testing.T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "| fault\tpair\tcommitted\trolled back\tunknown\tdelivered\trepeats\texplained\tcharged\tdead\tfindings\tseconds\tseed")
	byFault := map[string][]string{}
	for _, row := range f.rows {
		name, _, _ := strings.Cut(row, "\t")
		byFault[name] = append(byFault[name], row)
	}
	for i := range faults {
		for _, row := range byFault[faults[i].name] {
			fmt.Fprintln(w, "| "+row)
		}
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	t.Log("\n" + text.String())
}
