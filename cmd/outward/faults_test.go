package main

import (
	"bytes"
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/outward-dev/outward/engine"
)

func TestMissingTable(t *testing.T) {
	s := newSite(t)
	s.want(exitFailed, "status", "does not exist", "run: outward migrate")
	s.start().ends(exitFailed, "does not exist", "run: outward migrate")
	s.want(exitWell, "migrate")
	s.start().says("msg=relaying")
}

func TestWrongSchemaVersion(t *testing.T) {
	s := newSite(t)
	s.want(exitWell, "migrate")
	s.sql("UPDATE NAME.outbox_schema SET version = 99, min_client = 99")
	s.want(exitFailed, "status", "needs client version 99", "use a newer version of Outward")
	s.start().ends(exitFailed, "needs client version 99")
	s.sql("UPDATE NAME.outbox_schema SET version = 0, min_client = 0")
	s.start().ends(exitFailed, "has version 0", "run: outward migrate")
}

func TestOtherRetention(t *testing.T) {
	s := newSite(t)
	s.want(exitWell, "migrate")
	s.configure(s.config("schema: NAME", "schema: "+s.name+", retention: 1h"))
	s.start().ends(exitFailed, "retention 72h", "retention 1h", "run: outward migrate")
	s.want(exitWell, "migrate --dry-run", "would do: retention 72h")
	s.want(exitWell, "migrate", "did: retention 72h")
	s.want(exitWell, "status")
}

func TestUnreachableDatabase(t *testing.T) {
	s := newSite(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s.setenv("ORDERS_DB", "postgres://outward:hunter2@"+l.Addr().String()+"/orders")
	s.want(exitFailed, "status", "can't be reached", l.Addr().String())
	s.want(exitFailed, "migrate", "orders", l.Addr().String())
	d := s.start()
	d.says("the database fails; trying again")
	if code, body := d.get("/healthz"); code != 200 {
		t.Errorf("healthz: %d %q", code, body)
	}
	within(t, "readyz names the ill relay", func() bool {
		code, body := d.get("/readyz")
		return code == 503 && strings.HasPrefix(body, "orders: the database fails since") && !strings.Contains(body, "127.0.0.1")
	})
	d.stop()
}

func TestWrongDatabasePassword(t *testing.T) {
	s := newSite(t)
	address, passwords := refusing(t)
	s.setenv("ORDERS_DB", "postgres://outward:hunter2@"+address+"/orders?sslmode=disable")
	s.want(exitFailed, "status", "password authentication failed", "check user and password")
	if p := <-passwords; p != "hunter2" {
		t.Errorf("the password sent was %q", p)
	}
	s.want(exitFailed, "migrate", "password authentication failed")
	d := s.start()
	d.says("password authentication failed")
	d.stop()
}

func TestWrongBrokerPassword(t *testing.T) {
	s := newSite(t)
	s.want(exitWell, "migrate")
	url := s.env[1][len("AMQP_URL="):]
	s.setenv("AMQP_URL", strings.Replace(url, "guest:guest@", "guest:hunter2@", 1))
	d := s.start()
	s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text) VALUES ('a', 'a.v1', 'x')")
	d.says("destination=transport:main")
	within(t, "status says that it is paused", func() bool {
		code, stdout, _ := s.run("status")
		return code == exitAttention && strings.Contains(stdout, "transport:main") && strings.Contains(stdout, "unavailable")
	})
	code, body := d.get("/readyz")
	if code != 200 || !strings.Contains(body, "orders: 1 destination paused by a fault") {
		t.Errorf("readyz: %d %q", code, body)
	}
	if code, _ := d.get("/readyz?strict=1"); code != 503 {
		t.Errorf("readyz?strict=1: %d", code)
	}
	d.stop()
	if n := s.number("SELECT max(attempts) FROM NAME.outbox_messages"); n != 0 {
		t.Errorf("a message was charged %d attempts", n)
	}
}

func TestMissingExchange(t *testing.T) {
	s := newSite(t)
	s.want(exitWell, "migrate")
	s.start()
	s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text) VALUES ('a', 'a.v1', 'x')")
	within(t, "status says that it is paused", func() bool {
		code, stdout, stderr := s.run("status")
		return code == exitAttention && strings.Contains(stdout, "main:"+s.name) && strings.Contains(stdout, "404") &&
			strings.Contains(stderr, "attention: orders: paused main:"+s.name)
	})
	q := s.listen() // makes the exchange
	if m := q.next(); string(m.Body) != "x" {
		t.Errorf("got %q", m.Body)
	}
	within(t, "all is well again", func() bool { code, _, _ := s.run("status"); return code == exitWell })
}

func TestStatusNeedsAttention(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.want(exitWell, "migrate")
	d := s.start()
	// A type of 255 characters fits the table and is too long for AMQP.
	s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES ('a', repeat('é', 255), 'bad', 'k')",
		"INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES ('a', 'a.v1', 'behind', 'k')",
		"INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES ('a', 'a.v1', 'other', 'l')")
	if m := q.next(); string(m.Body) != "other" {
		t.Errorf("got %q", m.Body)
	}
	within(t, "the message is dead and holds its key", func() bool {
		code, stdout, stderr := s.run("status")
		return code == exitAttention && strings.Contains(stdout, "behind 1 key") &&
			strings.Contains(stderr, "outward: attention: orders: 1 dead, 1 held back")
	})
	d.stop()
	if err := s.operator().Pause(t.Context(), engine.Pause{Destination: "main:x", By: engine.Actor{Name: "anna", Reason: "audit"}}); err != nil {
		t.Fatal(err)
	}
	s.want(exitAttention, "status", "main:x  by anna since", "audit")
	var report struct {
		Relays []struct {
			SchemaVersion int `json:"schema_version"`
			Backlog       struct {
				Dead, Held count
				HeldKeys   count   `json:"held_keys"`
				OldestHold float64 `json:"oldest_hold_seconds"`
			}
			Pauses    []pauseAt
			Attention []string
		}
	}
	if err := json.Unmarshal([]byte(s.want(exitAttention, "status --json")), &report); err != nil {
		t.Fatal(err)
	}
	r := report.Relays[0]
	if r.Backlog.Dead.N != 1 || r.Backlog.Held.N != 1 || r.Backlog.HeldKeys.N != 1 || len(r.Pauses) != 1 || !r.Pauses[0].Operator ||
		r.SchemaVersion < 1 || len(r.Attention) != 3 || r.Backlog.OldestHold <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		text string
	}{
		{"", exitWell, "Usage:"},
		{"--help", exitWell, "Exit codes: 0 well, 1 failed, 2 wrong usage, 3 attention needed"},
		{"version", exitWell, "outward "},
		{"nosuch", exitUsage, `unknown command "nosuch"`},
		{"--nosuch", exitUsage, "unknown flag: --nosuch"},
		{"status --nosuch", exitUsage, "unknown flag: --nosuch"},
		{"status extra", exitUsage, "extra"},
		{"status --timeout soon", exitUsage, "soon"},
		{"status", exitUsage, "--config FILE"},
		{"config", exitUsage, "outward config check, outward config print"},
		{"relay --config testdata/none.yaml", exitFailed, "testdata/none.yaml"},
		{"relay --log-level loud --config x", exitUsage, "loud is not known"},
		{"relay --log-format xml --config x", exitUsage, "xml is not known"},
		{"status --config testdata/example.yaml --relay nosuch", exitUsage, "no relay is named nosuch; testdata/example.yaml has orders"},
		{"migrate print --config testdata/example.yaml --format flyway", exitUsage, "flyway is not known"},
		{"migrate print --config testdata/example.yaml", exitWell, "CREATE TABLE"},
		{"migrate print --config testdata/example.yaml --format goose", exitWell, "-- +goose Up"},
		{"config check --config testdata/example.yaml", exitWell, "well, 1 relay"},
		{"config print --config testdata/example.yaml", exitWell, "url: postgres://outward:***@db/orders"},
		{"config check --config testdata/wrong.yaml", exitFailed, "testdata/wrong.yaml:4:12: relays[0].store.url: it is missing"},
		{"config check --config testdata/wrong.yaml", exitFailed, "testdata/wrong.yaml:6:49: relays[0].routes[0].exchnge: unknown key; did you mean exchange?"},
		{"config check --config testdata/wrong.yaml", exitFailed, "the configuration has 2 faults"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Setenv("OUTWARD_CONFIG", "")
			var out bytes.Buffer
			code := run(t.Context(), strings.Fields(test.args), &out, &out)
			if code != test.code || !strings.Contains(out.String(), test.text) {
				t.Errorf("exit code %d, want %d; it says %q, want %q", code, test.code, out.String(), test.text)
			}
			if strings.Contains(out.String(), "hunter2") {
				t.Errorf("a secret was printed: %s", out.String())
			}
		})
	}
}

func TestMigratePrintWritesNoFileTwice(t *testing.T) {
	dir := t.TempDir()
	args := []string{"migrate", "print", "--config", "testdata/example.yaml", "--format", "migrate", "--dir", dir}
	var out bytes.Buffer
	if code := run(t.Context(), args, &out, &out); code != exitWell || !strings.Contains(out.String(), ".up.sql") {
		t.Errorf("%d %s", code, out.String())
	}
	if code := run(t.Context(), args, &out, &out); code != exitFailed {
		t.Errorf("it was overwritten: %d %s", code, out.String())
	}
}
