package sqlite

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// TestForeign: one INSERT of the columns that somebody has is enough, and everything
// else has its default.
func TestForeign(t *testing.T) {
	d := newDatabase(t, nil)
	s := d.open()
	d.exec(`INSERT INTO {messages} (topic, type) VALUES ('orders', 'order.submitted.v1')`)
	d.exec(`INSERT INTO {messages} (topic, type, ordering_key, payload_text, headers) VALUES ('orders', 'order.submitted.v1', 'k', '{"n": 1}', '{"a": "b"}')`)
	d.exec(`INSERT INTO {messages} (topic, type, ordering_key, payload) VALUES ('orders', 'order.submitted.v1', '', '{"n": 2}')`) // text, as by the sqlite3 program
	d.exec(`INSERT INTO {messages} (topic, type, payload) VALUES ('orders', 'order.submitted.v1', x'00ff')`)
	c := d.claim(s, req(10))
	if len(c) != 4 {
		t.Fatalf("%d of 4 came", len(c))
	}
	for i, want := range []string{"", `{"n": 1}`, `{"n": 2}`, "\x00\xff"} {
		if c[i].Bad != nil || string(c[i].Payload) != want || c[i].ID.IsZero() || c[i].ID[6]>>4 != 4 || c[i].ID[8]>>6 != 2 {
			t.Errorf("row %d is %+v", i+1, c[i])
		}
		if age := time.Since(c[i].CreatedAt); age < -time.Second || age > time.Minute || !c[i].OccurredAt.Equal(c[i].CreatedAt) {
			t.Errorf("row %d was created at %v and occurred at %v", i+1, c[i].CreatedAt, c[i].OccurredAt)
		}
	}
	if c[1].Headers["a"] != "b" || c[2].Key != "" || c[0].ContentType != "application/json" {
		t.Errorf("%+v", c)
	}
}

// TestForeignRefused: what the table can check, the author of the INSERT sees.
func TestForeignRefused(t *testing.T) {
	d := newDatabase(t, nil)
	for _, values := range []string{
		`(topic, type) VALUES ('', 'a')`, `(topic, type) VALUES ('a', '')`, `(type) VALUES ('a')`, `(topic) VALUES ('a')`,
		`(topic, type) VALUES (x'61', 'a')`,
		`(topic, type, headers) VALUES ('a', 'a', '[]')`, `(topic, type, headers) VALUES ('a', 'a', 'nonsense')`, `(topic, type, headers) VALUES ('a', 'a', NULL)`,
		`(topic, type, payload, payload_text) VALUES ('a', 'a', x'00', '')`, `(topic, type, payload) VALUES ('a', 'a', 1)`,
		`(topic, type, message_id) VALUES ('a', 'a', '1')`, `(topic, type, message_id) VALUES ('a', 'a', x'00112233445566778899aabbccddeeff')`,
		`(topic, type, message_id) VALUES ('a', 'a', '0199B7A0-0000-7000-8000-000000000001')`,
		`(topic, type, message_id) VALUES ('a', 'a', '-199b7a0-0000-7000-8000-000000000001')`,
		`(topic, type, occurred_at) VALUES ('a', 'a', '2026-12-01')`, `(topic, type, occurred_at) VALUES ('a', 'a', 1e300)`,
		`(topic, type, available_at) VALUES ('a', 'a', 'tomorrow')`, `(topic, type, aggregate_version) VALUES ('a', 'a', 'x')`,
		`(topic, type, ordering_key) VALUES ('a', 'a', x'00')`, `(topic, type, lane) VALUES ('a', 'a', 1)`,
		`(topic, type) VALUES (hex(zeroblob(128)), 'a')`, `(topic, type, correlation_id) VALUES ('a', 'a', hex(zeroblob(128)))`,
	} {
		if _, err := d.db.ExecContext(t.Context(), d.n.sql(`INSERT INTO {messages} `+values)); err == nil {
			t.Errorf("accepted: %s", values)
		}
	}
}

// TestForeignBad: with the CHECKs switched off a writer can leave anything, and no
// claim fails by it.
func TestForeignBad(t *testing.T) {
	d := newDatabase(t, nil)
	s := d.open()
	conn, err := d.db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	for _, values := range []string{
		`(topic, type, headers) VALUES ('a', 'a', '{"a": 1}')`, `(topic, type, headers) VALUES ('a', 'a', x'ff')`,
		`(topic, type, message_id) VALUES ('a', 'a', 'x')`, `(topic, type, occurred_at) VALUES ('a', 'a', 'x')`,
		`(topic, type, payload, payload_text) VALUES ('a', 'a', 'x', 'y')`, `(topic, type) VALUES ('', '')`,
		`(topic, type, aggregate_version, occurred_at) VALUES ('a', 'a', 'x', 9e18)`,
	} {
		for _, query := range []string{`PRAGMA ignore_check_constraints = ON`, d.n.sql(`INSERT INTO {messages} ` + values)} {
			_, err := conn.ExecContext(t.Context(), query)
			must(t, err)
		}
		c := d.claim(s, req(10))
		if len(c) != 1 || c[0].Bad == nil {
			t.Errorf("%s: claimed %+v", values, c)
			continue
		}
		d.settle(s, 0, engine.DeadLetter(c[0].Receipt, true, engine.Fault{Class: engine.Rejected, Code: engine.CodeBadRow, Err: c[0].Bad}))
		for r, err := range s.Dead(t.Context(), engine.Filter{}) {
			if err != nil || !strings.Contains(r.LastError, "decoded") {
				t.Errorf("%s: %+v, %v", values, r, err)
			}
		}
		d.exec(`DELETE FROM {messages}`)
	}
}

// TestSQLite3Program: the plain program can enqueue, and knows everything that the
// schema uses.
func TestSQLite3Program(t *testing.T) {
	program, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("NOT RUN: sqlite3: the program is not installed")
	}
	d := newDatabase(t, nil)
	out, err := exec.CommandContext(t.Context(), program, d.path,
		`INSERT INTO outbox_messages (topic, ordering_key, type, payload) VALUES ('orders', 'customer 7', 'order.submitted.v1', '{"n": 1}');
		 SELECT message_id, status FROM outbox_all;`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := d.claim(d.open(), req(10))
	if len(c) != 1 || c[0].Bad != nil || c[0].Key != "customer 7" || string(c[0].Payload) != `{"n": 1}` {
		t.Fatalf("claimed %+v", c)
	}
	if want := c[0].ID.String() + "|ready\n"; string(out) != want {
		t.Errorf("the program printed %q, want %q", out, want)
	}
	if again := one[int](d, `SELECT lane FROM {messages}`); again != int(uint16(c[0].Receipt.Scope)) {
		t.Errorf("lane %d, the program's was %d", again, uint16(c[0].Receipt.Scope))
	}
}

// TestClockSetBack: a row that was left to the defaults is due at once, also when the
// clock was set back since; else the next row of its key would overtake it.
func TestClockSetBack(t *testing.T) {
	d := newDatabase(t, nil)
	s := d.open()
	ids := d.enqueue(msg("t", "k"))
	d.shift(-time.Minute) // everything stored lies a minute ahead now
	ids = append(ids, d.enqueue(msg("t", "k"))...)
	late := msg("t", "k")
	late.Delay = time.Hour
	d.enqueue(late)
	c, err := s.Claim(context.Background(), req(10))
	if err != nil || len(c) != 2 || c[0].ID != ids[0] || c[1].ID != ids[1] {
		t.Fatalf("claimed %+v, %v", c, err)
	}
}
