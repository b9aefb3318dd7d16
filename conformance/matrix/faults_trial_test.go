package matrix

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance/judge"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
)

const (
	// faultSettled bounds how long everything takes to arrive after the fault's end.
	faultSettled = 90 * time.Second
)

// lease is that of relays under faults: short, so that "longer than the lease" is
// soon, and long enough for a machine that does much else.
func (d dialect) lease() time.Duration {
	if d.less > 1 { // the race detector slows it down
		return 4 * time.Second
	}
	return 1500 * time.Millisecond
}

// outlast waits for longer than the lease.
func (c *trial) outlast() { c.wait(c.dialect.lease() * 3 / 2) }

// A trial is one fault on one pair, with its producers and its relays.
type trial struct {
	*pair
	fault *fault
	seed  uint64
	rand  *rand.Rand // the driver's own

	database, broker *testservers.Server // nil: this fault harms none
	// Between the relays and the servers, where the fault wants them.
	databaseWire, brokerWire *faultproxy.Proxy
	relayStoreAt             string // as the relays are told
	relayBrokerAt            string

	producersAt string
	account     *login
	answers     *answers

	ledger    judge.Ledger
	committed atomic.Int64 // messages
	quit      chan struct{}
	producing sync.WaitGroup
	producers *outbox

	dir      string
	relays   []*faultRelay
	journals []*faultRelay // of all that ever were
	taken    []delivery    // before the end
	poisoned int           // dead at the end
	cursed   []engine.ID   // dead with a key behind them
	began    time.Time
}

// A faultRelay is a relay process with its journal.
type faultRelay struct {
	*relayProcess
	name    string
	journal string
	broken  bool // it was killed, or stopped: what it had in hand comes again
}

// wait waits for as long as a fault lasts.
func (c *trial) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
	}
}

// between returns a duration of the seed's choice.
func (c *trial) between(from, to time.Duration) time.Duration {
	return from + time.Duration(c.rand.Int64N(int64(to-from)))
}

// eventually waits until ok.
func (c *trial) eventually(limit time.Duration, what string, ok func() bool) {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			c.t.Fatalf("not within %v: %s", limit, what)
		}
		select {
		case <-tick.C:
		case <-c.t.Context().Done():
			c.t.Fatalf("the test ended before: %s", what)
		}
	}
}

// rewire returns an address with another host and port.
func rewire(t *testing.T, address, hostPort string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("the address can't be parsed")
	}
	u.Host = hostPort
	return u.String()
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal("the address can't be parsed")
	}
	return u.Host
}

// relay starts a relay process as the fault wants them, changed once more.
func (c *trial) relay(change func(*relaySpec)) *faultRelay {
	c.t.Helper()
	r := &faultRelay{name: fmt.Sprintf("relay %d", len(c.journals)+1), journal: filepath.Join(c.dir, fmt.Sprint("journal-", len(c.journals)))}
	r.relayProcess = c.startRelay(func(s *relaySpec) {
		s.StoreAt, s.BrokerAt, s.Lease, s.Batch = c.relayStoreAt, c.relayBrokerAt, c.dialect.lease(), 100
		s.Faults = &faultSpec{Journal: r.journal, Alone: c.dialect.local}
		if c.fault.spec != nil {
			c.fault.spec(s)
		}
		if change != nil {
			change(s)
		}
	})
	c.journals = append(c.journals, r)
	c.relays = append(c.relays, r)
	return r
}

// killRelay ends one at once.
func (c *trial) killRelay(r *faultRelay) {
	r.broken = true
	r.kill()
	c.forget(r)
}

func (c *trial) forget(r *faultRelay) {
	for i, other := range c.relays {
		if other == r {
			c.relays = append(c.relays[:i], c.relays[i+1:]...)
			return
		}
	}
}

// read returns what a relay has written down, line by line.
func (r *faultRelay) read(t *testing.T, line func(verb string, ids []engine.ID)) {
	t.Helper()
	file, err := os.Open(r.journal)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in := bufio.NewScanner(file)
	in.Buffer(nil, 1<<22)
	for in.Scan() {
		words := strings.Fields(in.Text())[1:]
		var ids []engine.ID
		verb := len(words)
		for verb > 1 {
			id, err := engine.ParseID(words[verb-1])
			if err != nil {
				break
			}
			ids = append(ids, id)
			verb--
		}
		line(strings.Join(words[:verb], " "), ids)
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
}

// wrote reports whether a relay has written a line with that verb.
func (r *faultRelay) wrote(verb string) (yes bool) {
	r.read(r.t, func(v string, _ []engine.ID) { yes = yes || v == verb })
	return yes
}

// produce starts the producers: each has keys of its own, so that transactions of
// one key do not overlap.
func (c *trial) produce(n int) {
	for i := range n {
		c.producing.Go(func() { c.producer(i, rand.New(rand.NewPCG(c.seed, uint64(i)))) })
	}
}

var errRollback = errors.New("the producer changes its mind")

func (c *trial) producer(n int, rnd *rand.Rand) {
	keys := make([]string, 5)
	for k := range keys {
		keys[k] = fmt.Sprintf("key-%d-%d", n, k)
	}
	for number := 0; ; number++ {
		msgs := make([]engine.Message, 1+rnd.IntN(6))
		ids := make([]engine.ID, len(msgs))
		used := map[string]bool{}
		for i := range msgs {
			m := engine.Message{ID: engine.NewID(), Topic: topicOne, Type: kind, Payload: fmt.Appendf(nil, "%d %d %d ", n, number, i)}
			for range rnd.IntN(200) {
				m.Payload = append(m.Payload, byte(rnd.Uint32()))
			}
			switch p := rnd.IntN(100); {
			case p < 65:
				m.Key = keys[rnd.IntN(len(keys))]
				used[m.Key] = true
			case p < 75:
				m.Delay = time.Duration(1+rnd.IntN(400)) * time.Millisecond
			}
			msgs[i], ids[i] = m, m.ID
		}
		fate, back := judge.Committed, rnd.IntN(10) == 0
		asked := false
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		_, err := c.producers.enqueue(ctx, func(ctx context.Context) error {
			if rnd.IntN(20) == 0 { // others commit higher numbers meanwhile
				select {
				case <-time.After(time.Duration(rnd.IntN(100)) * time.Millisecond):
				case <-ctx.Done():
				}
			}
			if back {
				return errRollback
			}
			asked = true
			return nil
		}, msgs...)
		cancel()
		switch {
		case err == nil:
			c.committed.Add(int64(len(msgs)))
		case asked && (c.dialect.refused == nil || !c.dialect.refused(err)):
			fate = judge.Unknown
			for k := range keys { // when it commits, if it does, nobody knows: no later one of the key is after it
				if used[keys[k]] {
					keys[k] = fmt.Sprintf("key-%d-%d after %d", n, k, number)
				}
			}
		default:
			fate = judge.RolledBack
		}
		c.ledger.Log(fate, ids, msgs)
		select {
		case <-c.quit:
			return
		case <-time.After(time.Duration(5+rnd.IntN(35)) * time.Millisecond):
		}
	}
}

// backlog commits so many messages at once, a third of them with keys.
func (c *trial) backlog(n int, others ...engine.Message) {
	c.t.Helper()
	for done := 0; done < n; {
		msgs := make([]engine.Message, min(200, n-done))
		for i := range msgs {
			msgs[i] = engine.Message{Topic: topicOne, Type: kind, Payload: fmt.Appendf(nil, "backlog %d", done+i)}
			if i%3 == 0 {
				msgs[i].Key = fmt.Sprint("backlog-", i%7)
			}
		}
		if done+len(msgs) >= n/2 { // in the middle
			msgs, others = slices.Concat(msgs, others), nil
		}
		c.enqueue(msgs...)
		done += len(msgs)
	}
}

// enqueue commits messages, and fails the test if it can't.
func (c *trial) enqueue(msgs ...engine.Message) []engine.ID {
	c.t.Helper()
	ids, err := c.producers.enqueue(c.t.Context(), nil, msgs...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ledger.Log(judge.Committed, ids, msgs)
	return ids
}

// more waits until so many more messages are committed.
func (c *trial) more(n int) {
	c.t.Helper()
	want := c.committed.Load() + int64(n)
	c.eventually(time.Minute, fmt.Sprintf("%d more messages are committed", n), func() bool { return c.committed.Load() >= want })
}

// arrived waits until the relays have confirmed so many more messages.
func (c *trial) arrived(n int) {
	c.t.Helper()
	confirmed := func() (sum int) {
		for _, r := range c.journals {
			r.read(c.t, func(verb string, ids []engine.ID) {
				if verb == "confirmed" {
					sum += len(ids)
				}
			})
		}
		return sum
	}
	want := confirmed() + n
	c.eventually(time.Minute, fmt.Sprintf("%d more messages are confirmed", n), func() bool { return confirmed() >= want })
}

// verdict ends the trial: everything arrives, relays and producers end, and the
// judge looks at what is there.
func (c *trial) verdict() judge.Verdict {
	c.t.Helper()
	close(c.quit)
	c.producing.Wait()
	if c.fault.after != nil {
		c.fault.after(c)
	}
	c.settled(faultSettled)
	for _, r := range c.relays {
		r.stop()
	}
	e := c.evidence(append(c.taken, c.pair.taken()...))
	e.Incidents = c.incidents()
	for _, r := range c.journals {
		r.read(c.t, func(verb string, _ []engine.ID) {
			var left int
			if _, err := fmt.Sscanf(verb, "left %d", &left); err == nil {
				e.Goroutines.After += left
			}
		})
	}
	if c.dialect.connections != nil {
		var err error
		if e.Connections.After, err = c.dialect.connections(c.t.Context(), c.outbox); err != nil {
			c.t.Error(err)
		}
	}
	v := judge.Judge(&c.ledger, e)
	if err := v.Err(); err != nil {
		c.t.Error(err)
		for _, r := range c.journals {
			r.read(c.t, func(verb string, ids []engine.ID) {
				if why, is := strings.CutPrefix(verb, "charged "); is {
					c.t.Logf("%s charged %v: %s", r.name, ids, why)
				}
			})
		}
		c.explain(v)
		if dir := os.Getenv("OUTWARD_FAULTS_KEEP"); dir != "" {
			to := filepath.Join(dir, strings.ReplaceAll(c.t.Name(), "/", "_"))
			if err := os.CopyFS(to, os.DirFS(c.dir)); err != nil {
				c.t.Error(err)
			}
			c.t.Logf("the journals are kept in %s", to)
		}
	}
	return v
}

// explain prints what the relays wrote down about the first messages of which there
// is something to find.
func (c *trial) explain(v judge.Verdict) {
	shown := map[engine.ID]bool{}
	for _, f := range v.Findings {
		if f.ID.IsZero() || shown[f.ID] || len(shown) == 3 {
			continue
		}
		shown[f.ID] = true
		for _, r := range c.journals {
			text, err := os.ReadFile(r.journal)
			if err != nil {
				continue // it never wrote one
			}
			for line := range strings.Lines(string(text)) {
				if before, _, ok := strings.Cut(line, f.ID.String()); ok {
					head := strings.Join(strings.Fields(before)[:2], " ")
					c.t.Logf("%s: %s: %s (one of %d)", f.ID, r.name, head, strings.Count(line, "-")/4)
				}
			}
		}
	}
}

const outcomeUnknown = "outcome unknown"

// incidents reads from the journals which messages may come again, and why: they
// were handed over, and what became of that is not known, or was not settled.
func (c *trial) incidents() (all []judge.Incident) {
	for _, r := range c.journals {
		handed, confirmed := map[engine.ID]int{}, map[engine.ID]int{}
		unknown := judge.Incident{What: outcomeUnknown, Relay: r.name}
		killer := judge.Incident{What: "killed by a message", Relay: r.name}
		r.read(c.t, func(verb string, ids []engine.ID) {
			for _, id := range ids {
				switch verb {
				case "handed":
					handed[id]++
				case "unknown":
					unknown.IDs = append(unknown.IDs, id)
					handed[id]--
				case "refused":
					handed[id]--
				case "confirmed":
					handed[id]--
					confirmed[id]++
				case "settled":
					confirmed[id]--
				case "killed by":
					killer.Culprit = id
				}
			}
		})
		open, unsettled := judge.Incident{What: "no word of it", Relay: r.name}, judge.Incident{What: "confirmed and not settled", Relay: r.name}
		for id, n := range handed {
			for range n {
				open.IDs = append(open.IDs, id)
			}
		}
		for id, n := range confirmed {
			for range n {
				unsettled.IDs = append(unsettled.IDs, id)
			}
		}
		for _, i := range []judge.Incident{unknown, open, unsettled} {
			if len(i.IDs) > 0 {
				all = append(all, i)
			}
		}
		if !killer.Culprit.IsZero() {
			all = append(all, killer)
		}
	}
	return all
}
