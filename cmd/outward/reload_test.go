package main

import (
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/outward-dev/outward/internal/testservers"
)

// bills is a second relay, with a table and a database address of its own.
const bills = `
  - name: bills
    store: {dialect: postgres, url: "${BILLS_DB}", schema: NAME_b}
    transports:
      main: {kind: rabbitmq, url: "${AMQP_URL}"}
    routes:
      - {topics: [">"], to: main, exchange: NAME}
http:`

// The database of one of two relays goes away and comes back.
func TestOneOfTwoRelaysIsIll(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	u, err := url.Parse(testservers.DSN(t, "pg17"))
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, u.Host)
	u.Host = p.address
	s.setenv("BILLS_DB", u.String())
	s.configure(s.config("\nhttp:", strings.ReplaceAll(bills, "NAME", s.name)))
	s.want(exitWell, "migrate", "orders: ", "bills: ")
	d := s.start()
	s.sql("INSERT INTO NAME.outbox_messages (topic, type) VALUES ('one', 'a.v1')")
	s.sql("INSERT INTO NAME_b.outbox_messages (topic, type) VALUES ('two', 'a.v1')")
	if a, b := q.next().RoutingKey, q.next().RoutingKey; a+b != "onetwo" && a+b != "twoone" {
		t.Errorf("arrived: %s and %s", a, b)
	}
	if code, body := d.get("/readyz?strict=1"); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}

	p.cut()
	within(t, "readyz names the ill relay", func() bool {
		code, body := d.get("/readyz")
		return code == 200 && strings.HasPrefix(body, "bills: the database fails since") && !strings.Contains(body, "orders")
	})
	if code, _ := d.get("/readyz?strict=1"); code != 503 {
		t.Errorf("readyz?strict=1: %d", code)
	}
	if code, body := d.get("/healthz"); code != 200 {
		t.Errorf("healthz: %d %s", code, body)
	}
	_, metrics := d.get("/metrics")
	for _, line := range []string{`outward_relay_ill{relay="bills"} 1`, `outward_relay_ill{relay="orders"} 0`, `outward_relay_ready{relay="orders"} 1`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("/metrics has no %s", line)
		}
	}
	s.want(exitFailed, "status", "bills", "can't be reached", "orders", "reachable, schema version ")
	s.sql("INSERT INTO NAME.outbox_messages (topic, type) VALUES ('three', 'a.v1')")
	if m := q.next(); m.RoutingKey != "three" {
		t.Errorf("got %s", m.RoutingKey)
	}

	s.sql("INSERT INTO NAME_b.outbox_messages (topic, type) VALUES ('four', 'a.v1')")
	p.restore()
	if m := q.next(); m.RoutingKey != "four" {
		t.Errorf("got %s", m.RoutingKey)
	}
	within(t, "all relays are well", func() bool { code, _ := d.get("/readyz?strict=1"); return code == 200 })
	d.stop()
}

// One of two relays has no table: it is reported and tried again, and the other one
// works.
func TestOneOfTwoRelaysHasNoTable(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.setenv("BILLS_DB", testservers.DSN(t, "pg17"))
	s.configure(s.config("\nhttp:", strings.ReplaceAll(bills, "NAME", s.name)))
	s.want(exitWell, "migrate --relay orders")
	d := s.start()
	d.says("the relay can't work; trying again while others do")
	s.sql("INSERT INTO NAME.outbox_messages (topic, type) VALUES ('one', 'a.v1')")
	q.next()
	if code, body := d.get("/readyz"); code != 503 || !strings.HasPrefix(body, "bills: ended with an error") {
		t.Errorf("readyz: %d %s", code, body)
	}
	s.want(exitWell, "migrate --relay bills")
	s.sql("INSERT INTO NAME_b.outbox_messages (topic, type) VALUES ('two', 'a.v1')")
	if m := q.next(); m.RoutingKey != "two" {
		t.Errorf("got %s", m.RoutingKey)
	}
	within(t, "all relays are well", func() bool { code, _ := d.get("/readyz?strict=1"); return code == 200 })
	d.stop()
}

func (d *daemon) hangup() {
	d.s.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		d.s.t.Fatal(err)
	}
}

func TestReload(t *testing.T) {
	s := newSite(t)
	first := s.listen()
	second := s.listenTo(s.name + "_2")
	s.setenv("BILLS_DB", testservers.DSN(t, "pg17"))
	s.want(exitWell, "migrate")
	d := s.start()
	s.sql("INSERT INTO NAME.outbox_messages (topic, type) VALUES ('one', 'a.v1')")
	first.next()

	// A fault: the old configuration goes on, and a metric says so.
	s.configure(s.config("exchange: NAME", "exchnge: NAME", `store: {`, `store: {url: "${NOPE}", `))
	d.hangup()
	d.says("not reloaded: the old configuration goes on")
	d.s.checkOutput("the log", 0, 0, d.out.String(), []string{"line=8", "relays[0].routes[0].exchnge", "NOPE is not set"})
	if _, metrics := d.get("/metrics"); !strings.Contains(metrics, "\noutward_config_reload_failed 1\n") {
		t.Error("the metric doesn't say that the reload failed")
	}
	s.sql("INSERT INTO NAME.outbox_messages (topic, type) VALUES ('two', 'a.v1')")
	if m := first.next(); m.RoutingKey != "two" {
		t.Errorf("got %s", m.RoutingKey)
	}

	// Another exchange: the relay drains and starts again. A second one is added.
	s.configure(s.config("exchange: NAME", "exchange: "+s.name+"_2", "\nhttp:", strings.ReplaceAll(bills, "NAME", s.name)))
	s.want(exitWell, "migrate --relay bills")
	d.hangup()
	d.says("msg=reloaded added=[bills] changed=[orders] removed=[] unchanged=[]")
	s.sql("INSERT INTO NAME.outbox_messages (topic, type) VALUES ('three', 'a.v1')",
		"INSERT INTO NAME_b.outbox_messages (topic, type) VALUES ('bill', 'a.v1')")
	if m := second.next(); m.RoutingKey != "three" {
		t.Errorf("got %s", m.RoutingKey)
	}
	if m := first.next(); m.RoutingKey != "bill" {
		t.Errorf("got %s", m.RoutingKey)
	}
	if _, metrics := d.get("/metrics"); !strings.Contains(metrics, "\noutward_config_reload_failed 0\n") {
		t.Error("the metric still says that the reload failed")
	}

	// The second one goes, the first isn't touched, the probes move.
	before := d.address()
	s.configure(s.config("exchange: NAME", "exchange: "+s.name+"_2", "127.0.0.1:0", "localhost:0"))
	d.hangup()
	d.says("removed=[bills] unchanged=[orders]")
	after := listens.FindAllStringSubmatch(d.out.String(), -1)
	if len(after) != 2 || after[1][1] == before {
		t.Errorf("the probes are at %v", after)
	}
	s.sql("INSERT INTO NAME.outbox_messages (topic, type) VALUES ('four', 'a.v1')")
	if m := second.next(); m.RoutingKey != "four" {
		t.Errorf("got %s", m.RoutingKey)
	}
	d.stop()
}

func TestMetrics(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.want(exitWell, "migrate")
	d := s.start()
	s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text) SELECT 'a', 'a.v1', 'x' FROM generate_series(1, 50)",
		"INSERT INTO NAME.outbox_messages (topic, type, ordering_key) VALUES ('b', repeat('é', 255), 'k'), ('b', 'b.v1', 'k')")
	for range 50 {
		q.next()
	}
	want := []string{
		`outward_published_total{destination="main:` + s.name + `",outcome="confirmed",relay="orders",topic="a"} 50`,
		`outward_published_total{destination="main:` + s.name + `",outcome="rejected",relay="orders",topic="b"} 1`,
		`outward_messages{relay="orders",state="dead"} 1`,
		`outward_messages{relay="orders",state="held"} 1`,
		`outward_messages_capped{relay="orders",state="dead"} 0`,
		`outward_held_keys{relay="orders"} 1`,
		`outward_oldest_age_seconds{relay="orders"} `,
		`outward_hold_age_seconds{relay="orders"} `,
		`outward_buried_total{class="rejected",relay="orders"} 1`,
		`outward_commit_confirm_duration_seconds_count{destination="main:` + s.name + `",relay="orders"} 50`,
		`outward_attempts_bucket{relay="orders",le="0"} 51`,
		`outward_claim_duration_seconds_count{relay="orders"} `,
		`outward_settle_duration_seconds_count{relay="orders"} `,
		`outward_settled_total{relay="orders"} `,
		`outward_in_hand{relay="orders"} 0`,
		`outward_config_reload_failed 0`,
		"go_goroutines ",
	}
	var missing []string
	deadline := func() bool {
		_, metrics := d.get("/metrics")
		missing = nil
		for _, line := range want {
			if !strings.Contains(metrics, "\n"+line) {
				missing = append(missing, line)
			}
		}
		return len(missing) == 0
	}
	defer func() {
		if t.Failed() {
			t.Logf("missing:\n%s", strings.Join(missing, "\n"))
		}
	}()
	within(t, "all figures are there", deadline)
	d.stop()
}
