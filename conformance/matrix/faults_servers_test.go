package matrix

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance/judge"
	"github.com/outward-dev/outward/engine"
)

// noServer says why what befalls database servers can't befall some.
func noServer(d dialect, _ transport) string {
	if d.local {
		return "no server and no network between a process and its file"
	}
	return ""
}

// faults is the table.
var faults = []fault{
	{name: "database killed and started", not: noServer, database: true, run: func(c *trial) {
		c.database.Kill()
		c.wait(500 * time.Millisecond)
		c.database.Up()
	}},
	{name: "broker killed and started", broker: true, run: func(c *trial) {
		c.broker.Kill()
		c.wait(500 * time.Millisecond)
		c.broker.Up()
	}},
	{name: "database paused longer than the lease", not: noServer, database: true, run: func(c *trial) {
		c.database.Pause()
		c.outlast()
		c.database.Resume()
	}},
	{name: "broker paused longer than the lease", broker: true, run: func(c *trial) {
		c.broker.Pause()
		c.outlast()
		c.broker.Resume()
	}},
	{name: "database restarted", not: noServer, database: true, heavy: true, run: func(c *trial) { c.database.Restart() }},
	{name: "broker restarted", broker: true, heavy: true, run: func(c *trial) { c.broker.Restart() }},

	{name: "database connections cut", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		for range scale(15) {
			c.wait(c.between(50*time.Millisecond, 150*time.Millisecond))
			c.databaseWire.Cut()
		}
	}},
	{name: "broker connections cut", brokerWire: true, run: func(c *trial) {
		for range scale(15) {
			c.wait(c.between(50*time.Millisecond, 150*time.Millisecond))
			c.brokerWire.Cut()
		}
	}},
	{name: "database slow", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		c.databaseWire.Slow(c.between(30*time.Millisecond, 150*time.Millisecond))
		c.wait(time.Duration(scale(2)) * time.Second)
		c.databaseWire.Slow(0)
	}},
	{name: "broker slow", brokerWire: true, run: func(c *trial) {
		c.brokerWire.Slow(c.between(30*time.Millisecond, 150*time.Millisecond))
		c.wait(time.Duration(scale(2)) * time.Second)
		c.brokerWire.Slow(0)
	}},
	{name: "database connections stalled longer than the lease", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		c.databaseWire.Deaf(true)
		c.databaseWire.Mute(true)
		c.outlast()
		c.databaseWire.Deaf(false)
		c.databaseWire.Mute(false)
	}},
	{name: "broker connections stalled longer than the lease", brokerWire: true, run: func(c *trial) {
		c.brokerWire.Deaf(true)
		c.brokerWire.Mute(true)
		c.outlast()
		c.brokerWire.Deaf(false)
		c.brokerWire.Mute(false)
	}},
	{name: "database connections half open", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		c.databaseWire.HalfOpen()
		c.outlast()
	}},
	{name: "broker connections half open", brokerWire: true, run: func(c *trial) {
		c.brokerWire.HalfOpen()
		c.outlast()
	}},
	{name: "relay's host gone, the database not told", not: noServer, databaseWire: true, run: func(c *trial) {
		c.databaseWire.Keep(true)
		c.killRelay(c.relays[0])
		c.relay(nil)
		c.outlast()
		c.databaseWire.Keep(false)
		c.databaseWire.Cut() // in the end the server hears of it as well
	}},
	{name: "database accepts connections and never answers", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		c.databaseWire.Cut()
		c.databaseWire.Deaf(true)
		c.outlast()
		c.databaseWire.Deaf(false)
	}},
	{name: "broker accepts connections and never answers", brokerWire: true, run: func(c *trial) {
		c.brokerWire.Cut()
		c.brokerWire.Deaf(true)
		c.outlast()
		c.brokerWire.Deaf(false)
	}},

	{name: "broker's queue or stream full", run: func(c *trial) {
		undo := c.full(c.t, c.brokerAt)
		c.wait(time.Duration(scale(2)) * time.Second)
		undo()
	}},
	{name: "broker's memory alarm", broker: true, not: func(_ dialect, tr transport) string {
		if tr.alarm == nil {
			return "it has no alarm: its limits are those of streams"
		}
		return ""
	}, run: func(c *trial) {
		undo := c.alarm(c.t, c.broker)
		c.wait(time.Duration(scale(2)) * time.Second)
		undo()
	}},
	{name: "exchange or stream missing, comes back", run: func(c *trial) { c.hole(c.gone) }},
	{name: "queue missing, comes back", not: func(_ dialect, tr transport) string {
		if tr.queue == nil {
			return "there is none behind the stream"
		}
		return ""
	}, run: func(c *trial) { c.hole(c.queue) }},
	{name: "database refuses the credentials, then takes them", not: noServer, wrongDatabase: true, run: (*trial).refused},
	{name: "broker refuses the credentials, then takes them", wrongBroker: true, run: (*trial).refused},

	{name: "answers lost, to each statement", not: noServer, databaseWire: true, brokerWire: true, prepare: (*trial).watchAnswers, run: (*trial).loseAnswers},

	{name: "stopped past its lease: claimed", relays: -1, run: late(phaseClaimed)},
	{name: "stopped past its lease: handed over, not sent", relays: -1, run: late(phaseHanded)},
	{name: "stopped past its lease: sent", relays: -1, run: late(phaseSent)},
	{name: "stopped past its lease: confirmed, not settled", relays: -1, run: late(phaseConfirmed)},
	{name: "stopped past its lease: settled", relays: -1, run: late(phaseSettled)},
	{name: "stopped past its lease: extending", relays: -1, run: late(phaseExtending)},

	{name: "shutdown in the middle of a batch", brokerWire: true, relays: -1, run: func(c *trial) {
		c.brokerWire.Slow(20 * time.Millisecond)
		c.backlog(scale(300))
		for range 3 {
			r := c.relay(nil)
			c.arrived(20)
			r.stop()
			c.forget(r)
		}
		c.brokerWire.Slow(0)
		c.relay(nil)
	}, expect: func(c *trial, _ judge.Verdict) {
		for _, i := range c.incidents() { // what the slow broker did not confirm in time is another matter
			if i.What != outcomeUnknown {
				c.t.Errorf("%s: %s of %d messages, and it ended in good order", i.Relay, i.What, len(i.IDs))
			}
		}
	}},
	{name: "drain limit hit", brokerWire: true, relays: -1, spec: func(s *relaySpec) { s.Faults.Drain = 200 * time.Millisecond }, run: func(c *trial) {
		c.backlog(scale(300))
		for range 2 {
			r := c.relay(nil)
			c.arrived(20)
			c.brokerWire.Mute(true)
			c.eventually(20*time.Second, "something is under way", func() bool { return r.wrote("handed") })
			began := time.Now()
			r.stop()
			if took := time.Since(began); took > 10*time.Second {
				c.t.Errorf("it took %v to stop, with a limit of 200 ms", took)
			}
			c.forget(r)
			c.brokerWire.Mute(false)
		}
		c.relay(nil)
	}},

	{name: "relay clocks a day ahead and behind", not: func(d dialect, _ transport) string {
		if d.local {
			return "its only clock is that of its processes, which share a machine"
		}
		return ""
	}, heavy: true, relays: -1, prepare: func(c *trial) { c.relayProgram = clockProgram(c.t) }, run: func(c *trial) {
		for _, off := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
			c.relayEnv = []string{clockVariable + "=" + strconv.Itoa(int(off.Seconds()))}
			r := c.relay(nil)
			if got := time.Until(r.clock); (got - off).Abs() > time.Minute {
				c.t.Fatalf("the relay's clock is off by %v, and was to be by %v", got, off)
			}
		}
		c.outlast()
		c.killRelay(c.relays[0]) // its leases end by the database's clock
		c.arrived(scale(50))
		c.outlast()
	}},
	{name: "sessions and processes in other time zones", prepare: func(c *trial) {
		c.relayEnv = []string{"TZ=Asia/Kathmandu"}
		if c.dialect.session != nil {
			c.relayStoreAt = c.dialect.session(c.relayStoreAt, "timezone", "Pacific/Kiritimati")
			c.producersAt = c.dialect.session(c.producersAt, "timezone", "America/St_Johns")
		}
	}},
	{name: "default isolation repeatable read", not: noSessions, prepare: isolation("repeatable read")},
	{name: "default isolation serializable", not: noSessions, prepare: isolation("serializable")},
	{name: "held snapshot and long transaction", run: func(c *trial) {
		release, err := c.outbox.hold(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		defer release()
		msgs := []engine.Message{{Topic: topicOne, Type: kind, Key: "long", Payload: []byte("1")}, {Topic: topicOne, Type: kind, Payload: []byte("2")}}
		long := time.Duration(scale(2)) * time.Second
		if c.dialect.local {
			long = 500 * time.Millisecond // there is one writer at a time
		}
		ids, err := c.outbox.enqueue(c.t.Context(), func(context.Context) error { c.wait(long); return nil }, msgs...)
		if err != nil {
			c.t.Fatal(err)
		}
		c.ledger.Log(judge.Committed, ids, msgs)
		c.arrived(scale(50))
	}},
	{name: "poison, oversize and undecodable rows", run: (*trial).poison, after: (*trial).discard, expect: func(c *trial, v judge.Verdict) {
		if v.Dead != c.poisoned {
			c.t.Errorf("%d are dead in the end, want the %d that were left so", v.Dead, c.poisoned)
		}
	}},
	{name: "a message that kills its relay", relays: -1, producers: -1, run: (*trial).killer, spec: func(s *relaySpec) {
		s.Lease /= 2
		s.Faults.Killer, s.Faults.MaxCrashes = killerType, 3
		if everything() {
			s.Faults.MaxCrashes = 17
		}
	}},
}

func noSessions(d dialect, _ transport) string {
	if d.session == nil {
		return "its transactions are serializable whatever anybody says"
	}
	return ""
}

func isolation(level string) func(c *trial) {
	return func(c *trial) {
		c.relayStoreAt = c.dialect.session(c.relayStoreAt, "default_transaction_isolation", level)
		c.producersAt = c.dialect.session(c.producersAt, "default_transaction_isolation", level)
	}
}

// hole takes away where messages go, and brings it back.
func (c *trial) hole(dig func(t *testing.T, address string) ([]delivery, func())) {
	there, undo := dig(c.t, c.brokerAt)
	c.taken = append(c.taken, there...)
	c.wait(time.Duration(scale(2)) * time.Second)
	undo()
}

// refused is what happens to relays whose account is refused for a while, and to one
// that begins then.
func (c *trial) refused() {
	c.account.wrong()
	c.wait(time.Second)
	c.relay(nil)
	c.wait(time.Duration(scale(1)) * time.Second)
	c.account.right()
}

// late has a relay stop in a phase, for longer than its lease, while another takes
// over.
func late(p phase) func(c *trial) {
	return func(c *trial) {
		old := c.relay(func(s *relaySpec) { s.Faults.StopIn = p })
		c.eventually(30*time.Second, "the relay stops itself, "+string(p), func() bool { return old.wrote("stopping") })
		other := c.relay(nil)
		c.outlast()
		// All that the old one had in hand is the other's, and settled.
		c.eventually(time.Minute, "the other relay does the work", func() bool { return other.wrote("settled") })
		c.arrived(scale(50))
		if old.wrote("woken") {
			c.t.Fatal("the relay was not stopped")
		}
		old.broken = true
		if err := old.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			c.t.Fatal(err)
		}
		c.eventually(20*time.Second, "the old relay wakes up", func() bool { return old.wrote("woken") })
	}
}

// poison mixes rows that never go among the others: some alone, some in the middle
// of a key, which then waits.
func (c *trial) poison() {
	well := engine.Message{Topic: topicOne, Type: kind, Key: "with poison", Payload: []byte("well")}
	for i, key := range []string{"", "", "with poison", "with poison"} {
		if key != "" {
			c.enqueue(well)
		}
		m := c.transport.poison
		m.Topic, m.Key, m.Payload = topicOne, key, fmt.Appendf(nil, "poison %d", i)
		ids := c.enqueue(m)
		c.ledger.Blame("poison", ids...)
		if key != "" {
			c.enqueue(well)
			c.cursed = append(c.cursed, ids...)
		} else {
			c.poisoned++
		}
	}
	raw := func(why string, sqls ...string) {
		id := engine.NewID()
		for _, sql := range sqls {
			if err := c.outbox.exec(c.t.Context(), strings.ReplaceAll(sql, "{id}", id.String())); err != nil {
				c.t.Fatalf("%s: %v", why, err)
			}
		}
		c.ledger.Log(judge.Committed, []engine.ID{id}, []engine.Message{{Topic: topicOne, Type: kind}})
		c.ledger.Blame(why, id)
		c.poisoned++
	}
	raw("undecodable", c.dialect.undecodable...)
	raw("oversize", "INSERT INTO {p}messages (message_id, topic, type, payload_text) VALUES ('{id}', '"+topicOne+"', '"+kind+"', "+c.dialect.text(c.oversize)+")")
	c.arrived(scale(50))
	c.eventually(30*time.Second, "the poison is dead", func() bool {
		b, err := c.outbox.store.(engine.Monitor).Backlog(c.t.Context())
		return err == nil && b.Dead.N == c.poisoned+1 // the second of the key is behind the first
	})
}

// discard lets go on what dead messages hold back.
func (c *trial) discard() {
	for _, id := range c.cursed {
		c.eventually(30*time.Second, "a dead message is discarded", func() bool {
			n, err := c.outbox.store.(engine.Operator).Discard(c.t.Context(), engine.Filter{IDs: []engine.ID{id}}, engine.Actor{Name: "anna", Reason: "poison"})
			return err == nil && n == 1
		})
	}
}

const killerType = "matrix.killer.v1"

// killer has a message kill its relay until it is found out.
func (c *trial) killer() {
	c.backlog(2000, engine.Message{Topic: topicOne, Type: killerType, Payload: []byte("kills")})
	kills := 0
	var ids []engine.ID
	for end := time.Now().Add(3 * time.Minute); ; {
		r := c.relay(nil)
		killed := r.died(c, end)
		if !killed {
			break
		}
		kills++
		r.read(c.t, func(verb string, of []engine.ID) {
			if verb == "killed by" {
				ids = of
			}
		})
		c.killRelay(r)
	}
	want := 6 // until it is alone: each time in half the company
	if everything() {
		want = 20
	}
	c.t.Logf("%d relays were killed", kills)
	if kills < want {
		c.t.Errorf("%d relays were killed, want %d", kills, want)
	}
	if len(ids) != 1 {
		c.t.Fatalf("no relay wrote down who killed it")
	}
	c.ledger.Blame("kills its relay", ids...)
	c.poisoned = 1
}

// died waits until a message has killed the relay, or that message is dead.
func (r *faultRelay) died(c *trial, end time.Time) bool {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		if r.wrote("killed by") {
			return true
		}
		b, err := c.outbox.store.(engine.Monitor).Backlog(c.t.Context())
		if err == nil && b.Dead.N == 1 {
			return false
		}
		if time.Now().After(end) {
			c.t.Fatalf("the message that kills its relay is not dead: %+v, %v", b, err)
		}
	}
}
