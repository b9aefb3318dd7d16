package main

import (
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// What another program's plain INSERT has committed arrives byte for byte, with its
// identity and its times; what was rolled back does not.
func TestPlainInsertArrives(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.want(exitWell, "migrate --dry-run", "schema version 0 -> ", "would do 1 outbox")
	s.want(exitWell, "migrate", "schema version 0 -> ", "did 1 outbox")
	s.want(exitWell, "migrate", "is up to date")
	d := s.start()

	payload := `{"a": "'quotes' \"double\" \\ back\\slash \u00e9 é 😀` + "\nand a line\", \"b\": null}\t "
	literal := "'" + strings.ReplaceAll(payload, "'", "''") + "'"
	before := time.Now().Add(-time.Minute)
	s.sql(
		"INSERT INTO NAME.outbox_messages (topic, type, payload_text) VALUES ('order.submitted', 'order.submitted.v1', "+literal+")",
		"BEGIN; INSERT INTO NAME.outbox_messages (topic, type, payload_text) VALUES ('order.lost', 'order.lost.v1', 'rolled back'); ROLLBACK",
		"INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES ('order.paid', 'order.paid.v1', "+literal+", 'order-42')",
		"INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES ('order.last', 'order.last.v1', 'last', 'order-42')",
	)
	seen := map[string]bool{}
	for range 3 {
		m := q.next()
		seen[m.RoutingKey] = true
		want := payload
		key := ""
		switch m.RoutingKey {
		case "order.paid":
			key = "order-42"
		case "order.last":
			want, key = "last", "order-42"
			if !seen["order.paid"] {
				t.Error("the second message of a key came first")
			}
		}
		if string(m.Body) != want {
			t.Errorf("%s: body %q, want %q", m.RoutingKey, m.Body, want)
		}
		id, err := engine.ParseID(m.MessageId)
		if err != nil || id.IsZero() {
			t.Errorf("message id %q: %v", m.MessageId, err)
		}
		if m.Type != m.RoutingKey+".v1" || m.AppId != "/orders" || m.ContentType != "application/json" || m.DeliveryMode != 2 || m.CorrelationId != "" {
			t.Errorf("properties of %s: type %q, app %q, content type %q, mode %d", m.RoutingKey, m.Type, m.AppId, m.ContentType, m.DeliveryMode)
		}
		if m.Timestamp.Before(before) || m.Timestamp.After(time.Now().Add(time.Minute)) {
			t.Errorf("timestamp %v", m.Timestamp)
		}
		for _, name := range []string{"cloudEvents:time", "outward-created-at"} {
			text, _ := m.Headers[name].(string)
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil || at.Before(before) {
				t.Errorf("header %s is %q", name, text)
			}
		}
		if got, _ := m.Headers["outward-key"].(string); got != key {
			t.Errorf("%s: key %q, want %q", m.RoutingKey, got, key)
		}
		if got, _ := m.Headers["cloudEvents:id"].(string); got != m.MessageId {
			t.Errorf("cloudEvents:id %q is not the message id %q", got, m.MessageId)
		}
	}
	if seen["order.lost"] || len(seen) != 3 {
		t.Errorf("arrived: %v", seen)
	}
	within(t, "everything is settled", func() bool { return s.number("SELECT count(*) FROM NAME.outbox_messages") == 0 })
	if n := s.number("SELECT count(*) FROM NAME.outbox_archive WHERE outcome = 'published'"); n != 3 {
		t.Errorf("%d messages in the archive", n)
	}
	q.empty()
	s.want(exitWell, "status", "orders", "reachable, schema version ", "ready", "oldest   none")
	if code, body := d.get("/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	if code, body := d.get("/readyz?strict=1"); code != 200 || body != "ok\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
	d.stop()
}

// A relay that is ended while it works leaves nothing behind that another doesn't
// finish.
func TestDrainOnSignal(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.want(exitWell, "migrate")
	d := s.start()
	s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text) SELECT 'a', 'a.v1', n::text FROM generate_series(1, 3000) n")
	seen := map[string]int{}
	for range 200 {
		seen[string(q.next().Body)]++
	}
	d.stop()
	d.s.checkOutput("outward relay", 0, 0, d.out.String(), []string{"drained and ended"})
	if n := s.number("SELECT count(*) FROM NAME.outbox_lanes WHERE lease_until > now() AND handed_total > 0"); n != 0 {
		t.Errorf("%d lanes are still leased after the drain", n)
	}
	s.start()
	for len(seen) < 3000 {
		seen[string(q.next().Body)]++
	}
	for body, n := range seen {
		if n != 1 {
			t.Errorf("message %s came %d times although nothing crashed", body, n)
		}
	}
}

func TestStartedPaused(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.want(exitWell, "migrate")
	d := s.start("--paused")
	d.says("started paused")
	s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text) VALUES ('a', 'a.v1', 'x')")
	s.want(exitAttention, "status", "paused transport:main", "started with --paused")
	q.empty()
	if _, err := s.operator().Resume(t.Context(), engine.TransportPause("main"), engine.Actor{Name: "anna", Reason: "go"}); err != nil {
		t.Fatal(err)
	}
	if m := q.next(); string(m.Body) != "x" {
		t.Errorf("got %q", m.Body)
	}
	d.stop()
}
