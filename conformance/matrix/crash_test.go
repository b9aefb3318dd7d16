package matrix

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance/crash"
	"github.com/outward-dev/outward/conformance/judge"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/faultproxy"
)

// crashLimit bounds every wait of a crash test.
const crashLimit = time.Minute

// mark is in the payload of every message, so that one is known on the wire.
const mark = "seen on the wire"

// A boundary is where a relay process is killed: where the rig in it stops it, or
// where the wire does.
type boundary struct {
	name    string
	spec    crashSpec
	wire    wireFault     // what becomes of the relay's connections to the broker
	lease   time.Duration // 0: two minutes, so that nothing is extended
	arrived amount        // what the broker has when the relay is killed
	remain  amount        // the rows that are not settled then
	row     amount        // of these, those with a lease of their own
	free    bool          // nothing is leased then
}

// A wireFault begins with the first message that is on its way to the broker.
type wireFault uint8

const (
	wireWell  wireFault = iota
	withheld            // nothing that the broker says comes through
	swallowed           // nothing comes through to the broker
)

// An amount of the messages of a test.
type amount uint8

const (
	none  amount = iota
	heads        // those that may be out together: all without a key, and the first of each key
	some         // at least one
	all
)

var boundaries = []boundary{
	{name: "claimed", spec: crashSpec{At: crash.Claimed}, arrived: none, remain: all},
	{name: "handed to Publish", spec: crashSpec{At: crash.Handed}, arrived: none, remain: all},
	{name: "sent and not arrived", wire: swallowed, arrived: none, remain: all},
	{name: "sent and not confirmed", wire: withheld, arrived: heads, remain: all},
	{name: "sent, not confirmed and detached", wire: withheld, spec: crashSpec{DetachAfter: 50 * time.Millisecond}, arrived: heads, remain: all, row: heads},
	{name: "confirmed and not settled", spec: crashSpec{At: crash.Confirmed, Gather: true}, arrived: all, remain: all},
	{name: "settled", spec: crashSpec{At: crash.Settled, Gather: true}, arrived: all, remain: none, free: true},
	{name: "claimed and not answered", spec: crashSpec{Unanswered: claimed}, arrived: none, remain: all},
	{name: "settled and not answered", spec: crashSpec{Unanswered: settled, Gather: true}, arrived: all, remain: some},
	{name: "extended and not answered", spec: crashSpec{Unanswered: extended}, wire: withheld, lease: 6 * time.Second, arrived: heads, remain: all},
}

// crashKeyless and crashKeys make no more than the eight lanes of one claim.
const (
	crashKeyless = 5
	crashKeys    = 3
	crashPerKey  = 2
	crashTotal   = crashKeyless + crashKeys*crashPerKey
)

// A relay is killed at each boundary. What table and broker have is asserted before
// another relay runs: then everything arrives, with the same id, and exactly that
// comes again which the broker had and the table did not know of.
func TestCrash(t *testing.T) {
	for _, b := range boundaries {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			pairs(t, func(t *testing.T, p *pair) {
				c := &crashTest{pair: p, boundary: b}
				c.kill()
				for _, err := range c.before() {
					t.Error(err)
				}
				v := c.after()
				if err := v.Err(); err != nil {
					t.Error(err)
				}
				if v.Repeats+c.known != len(c.open) {
					t.Errorf("%d messages came again, and %d that the broker knew; it had %d of which the table did not know", v.Repeats, c.known, len(c.open))
				}
			})
		})
	}
}

// What is wrong on purpose is seen at the first boundary behind it, before the
// restart, and by the judge after it.
func TestCrashSeesMarkBeforeConfirm(t *testing.T) {
	for _, tt := range []struct {
		plant string
		boundary
	}{
		{"a transport that confirms what it has not sent", boundary{wire: swallowed, spec: crashSpec{At: crash.Settled, Gather: true, Hasty: true}, remain: all}},
		{"a store that settles what it hands out", boundary{spec: crashSpec{At: crash.Claimed, Careless: true}, remain: all}},
	} {
		t.Run(tt.plant, func(t *testing.T) {
			t.Parallel()
			pairs(t, func(t *testing.T, p *pair) {
				c := &crashTest{pair: p, boundary: tt.boundary}
				c.kill()
				errs := c.before()
				if len(errs) == 0 {
					t.Error("nothing is seen before the restart")
				}
				if err := errors.Join(errs...); err != nil {
					t.Logf("seen before the restart: %v", err)
				}
				v := c.after()
				if v.Has(judge.Lost) != crashTotal || len(v.Findings) != crashTotal {
					t.Errorf("not every message is found to be lost: %v", v.Err())
				}
			})
		})
	}
}

// A crashTest is one relay that is killed at one boundary, and what is found.
type crashTest struct {
	*pair
	boundary
	ledger   judge.Ledger
	arrivals []delivery
	first    judge.Evidence // before the restart
	open     []engine.ID    // what the broker had then, and the table did not know of
	known    int            // messages that came again, and the broker said that it had them
	seen     chan struct{}  // closed when the wire has reached the boundary
	once     sync.Once
}

func (c *crashTest) reached() { c.once.Do(func() { close(c.seen) }) }

// enqueue commits messages in one transaction.
func (c *crashTest) enqueue(msgs ...engine.Message) {
	c.t.Helper()
	ids, err := c.outbox.enqueue(c.t.Context(), nil, msgs...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ledger.Log(judge.Committed, ids, msgs)
}

func crashMessage(key string, n int) engine.Message {
	return engine.Message{Topic: topicOne, Type: kind, Key: key, Payload: fmt.Appendf(nil, "%s %q %d", mark, key, n),
		Headers: map[string]string{"traceparent": fmt.Sprintf("00-%032x-00f067aa0ba902b7-01", n+1), "Tenant": "größer als 7 %"}}
}

// kill starts a relay, and kills it where it is to be killed.
func (c *crashTest) kill() {
	c.t.Helper()
	var msgs []engine.Message
	for n := range crashKeyless {
		msgs = append(msgs, crashMessage("", n))
	}
	for n := range crashKeys * crashPerKey {
		msgs = append(msgs, crashMessage(fmt.Sprint("key-", n%crashKeys), n))
	}
	c.enqueue(msgs...)

	c.seen = make(chan struct{})
	c.spec.After = 0
	if c.spec.Gather {
		c.spec.After = crashTotal
	}
	spec := relaySpec{Dialect: c.dialect.name, StoreAt: c.storeAt, Transport: c.transport.name, BrokerAt: c.brokerAt, Lease: c.lease, Crash: &c.spec}
	if spec.Lease == 0 {
		spec.Lease = 2 * time.Minute
	}
	tells := c.spec.At != ""
	if c.spec.Unanswered != "" {
		if _, local := hearing[c.dialect.name]; local {
			tells = true
		} else {
			spec.StoreAt = c.unanswered()
		}
	}
	if c.wire != wireWell {
		spec.BrokerAt = c.brokerWire()
	}
	cmd := c.startCrash(spec)
	switch {
	case tells:
		cmd.heard()
	case c.spec.Unanswered != "" || c.wire != wireWell:
		cmd.wait("the wire", c.seen)
	}
	// What is on its way arrives, and is all that does.
	if c.arrived == heads {
		cmd.until("the heads at the broker", func() bool {
			c.arrivals = append(c.arrivals, c.taken()...)
			return len(c.arrivals) >= c.many(heads)
		})
	}
	if c.row == heads {
		cmd.until("the heads detached", func() bool { return c.count("{p}messages WHERE lease_token IS NOT NULL") >= c.many(heads) })
	}
	cmd.kill()
	c.arrivals = append(c.arrivals, c.taken()...)
}

// many says how many messages an amount is; some is 1.
func (c *crashTest) many(a amount) int {
	switch a {
	case heads:
		if c.keepsKeyOrder() {
			return crashTotal
		}
		return crashKeyless + crashKeys
	case some:
		return 1
	case all:
		return crashTotal
	}
	return 0
}

func (c *crashTest) keepsKeyOrder() bool {
	c.t.Helper()
	tr, _, err := c.transport.open(c.brokerAt)
	if err != nil {
		c.t.Fatal(err)
	}
	defer tr.Close(c.t.Context())
	return tr.Describe().KeepsKeyOrder
}

// count counts the rows of a FROM clause.
func (c *crashTest) count(from string) (n int) {
	c.t.Helper()
	err := c.outbox.query(c.t.Context(), "SELECT count(*) FROM "+from, func(scan func(...any) error) error { return scan(&n) })
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// before says what is not as it should be at the boundary, while no relay runs.
func (c *crashTest) before() (errs []error) {
	c.t.Helper()
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	c.first = c.evidence(c.arrivals)
	c.first.Interim = true
	want(len(c.arrivals) == c.many(c.arrived), "%d messages are at the broker, not %d", len(c.arrivals), c.many(c.arrived))

	open := map[string]bool{}
	published, ready, leased := 0, 0, 0
	for _, r := range c.first.Rows {
		want(r.Attempts == 0 && r.Crashes == 0 && r.Resends == 0, "message %s: %d attempts, %d crashes, %d resends", r.ID, r.Attempts, r.Crashes, r.Resends)
		switch {
		case r.State == judge.Published:
			published++
			continue
		case r.State == judge.Ready:
			ready++
		case r.Leased:
			want(r.State == judge.Waiting, "a leased row is %s", r.State)
			leased++
		default:
			want(c.row != none && r.State == judge.Held, "message %s is %s", r.ID, r.State)
		}
		open[r.ID.String()] = true
	}
	if c.remain == some {
		want(len(open) < crashTotal, "nothing is settled")
	} else {
		want(len(open) == c.many(c.remain), "%d messages are not settled, which should be %d", len(open), c.many(c.remain))
	}
	want(len(open)+published == crashTotal, "%d messages are in the table and %d in the archive", len(open), published)
	want(leased == c.many(c.row), "%d rows have a lease of their own, not %d", leased, c.many(c.row))

	handed := c.count("{p}lanes WHERE handed_total > 0")
	want(c.count(fmt.Sprintf("{p}lanes WHERE handed_total NOT IN (0, %d)", crashTotal)) == 0, "a lane has been handed out in another number than all %d", crashTotal)
	want(c.lease != 0 || c.first.Leases == handed+leased, "%d leases are live; %d lanes have handed out something and %d rows have a lease", c.first.Leases, handed, leased)
	switch {
	case c.free, len(open) == 0:
		want(handed == 0, "%d lanes are not free", handed)
	case c.row == none:
		want(handed > 0, "no lane is leased, and %d messages are in hand", ready)
	}
	if err := judge.Judge(&c.ledger, c.first).Err(); err != nil {
		errs = append(errs, fmt.Errorf("before the restart: %w", err))
	}
	for _, d := range c.arrivals {
		if id, err := engine.ParseID(d.id); err == nil && open[d.id] && !slices.Contains(c.open, id) {
			c.open = append(c.open, id)
		}
	}
	return errs
}

// after lets the leases run out, has another relay deliver what is left, and some
// more, and judges.
func (c *crashTest) after() judge.Verdict {
	c.t.Helper()
	c.enqueue(crashMessage("", crashTotal), crashMessage("key-0", crashTotal))
	// Whatever "used" counts, it was when the claim was made: so the lease is over.
	for _, sql := range []string{
		"UPDATE {p}lanes SET lease_until = used WHERE handed_total > 0",
		"UPDATE {p}messages SET available_at = created_at WHERE lease_token IS NOT NULL",
	} {
		if err := c.outbox.exec(c.t.Context(), sql); err != nil {
			c.t.Fatal(err)
		}
	}
	relay := c.startCrash(relaySpec{Dialect: c.dialect.name, StoreAt: c.storeAt, Transport: c.transport.name, BrokerAt: c.brokerAt,
		Lease: 2 * time.Minute, Crash: &crashSpec{Plain: true}})
	c.settled(crashLimit)
	relay.stop()
	known, err := io.ReadAll(relay.parent)
	if err != nil {
		c.t.Fatal(err)
	}
	c.known = len(known)
	c.arrivals = append(c.arrivals, c.taken()...)
	e := c.evidence(c.arrivals)
	if len(c.open) > 0 {
		e.Incidents = []judge.Incident{{What: "killed at " + c.name, IDs: c.open}}
	}
	return judge.Judge(&c.ledger, e)
}

// brokerWire puts a proxy before the broker that does what the boundary says from
// the first message on.
func (c *crashTest) brokerWire() (address string) {
	proxy := faultproxy.New(c.t, hostOf(c.t, c.brokerAt))
	var mu sync.Mutex
	tails := map[*faultproxy.Conn][]byte{} // a mark may come in two pieces
	proxy.Up(func(conn *faultproxy.Conn, unit []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		text := append(tails[conn], unit...)
		tails[conn] = bytes.Clone(text[max(len(text)-len(mark), 0):])
		if !bytes.Contains(text, []byte(mark)) {
			select {
			case <-c.seen:
				return c.wire != swallowed
			default:
				return true
			}
		}
		if c.wire == withheld {
			proxy.Mute(true)
		}
		if c.spec.Unanswered == "" {
			c.reached()
		}
		return c.wire != swallowed
	})
	return rewire(c.t, c.brokerAt, proxy.Addr())
}

// unanswered puts a proxy before the database that withholds the answer to what took
// effect. It asks the database before it passes on anything that it says.
func (c *crashTest) unanswered() (address string) {
	proxy := faultproxy.New(c.t, hostOf(c.t, c.storeAt))
	took := c.spec.Unanswered.watch(c.outbox, crashTotal)
	var mu sync.Mutex
	over := false
	proxy.Down(func(_ *faultproxy.Conn, _ []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return false
		}
		effect, err := took(c.t.Context())
		if err != nil {
			c.t.Errorf("it can't be seen whether it took effect: %v", err)
		}
		if over = effect || err != nil; over {
			proxy.Mute(true)
			c.reached()
		}
		return !over
	})
	return rewire(c.t, c.storeAt, proxy.Addr())
}

// A crashProcess is a relay that is to be killed.
type crashProcess struct {
	*relayProcess
	parent *os.File
}

// startCrash starts a relay with a rig, which has a pipe to tell us.
func (c *crashTest) startCrash(spec relaySpec) *crashProcess {
	c.t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		c.t.Fatal(err)
	}
	parent, child, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = parent.Close() })
	r := &crashProcess{relayProcess: &relayProcess{t: c.t, cmd: exec.Command(c.program())}, parent: parent}
	r.cmd.Env = append(os.Environ(), relayVariable+"="+string(text))
	r.cmd.Stderr = logWriter{c.t}
	r.cmd.ExtraFiles = []*os.File{child}
	if err := r.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	_ = child.Close() // the child has it
	c.t.Cleanup(r.kill)
	return r
}

// heard waits for the byte.
func (r *crashProcess) heard() {
	r.t.Helper()
	if err := r.parent.SetReadDeadline(time.Now().Add(crashLimit)); err != nil {
		r.t.Fatal(err)
	}
	if n, err := r.parent.Read(make([]byte, 1)); n != 1 {
		r.t.Fatalf("the relay did not come to the boundary: %v", err)
	}
}

func (r *crashProcess) wait(what string, ch <-chan struct{}) {
	r.t.Helper()
	select {
	case <-ch:
	case <-time.After(crashLimit):
		r.t.Fatalf("the relay did not come to the boundary: %s", what)
	}
}

func (r *crashProcess) until(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(crashLimit); !ok(); <-tick.C {
		if time.Now().After(end) {
			r.t.Fatalf("the relay did not come to the boundary: %s", what)
		}
	}
}
