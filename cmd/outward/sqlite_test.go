package main

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/dialects/sqlite"
)

// openFile opens the site's file as another program would.
func (s *site) openFile() *sql.DB {
	s.t.Helper()
	db, err := sql.Open("sqlite", sqlite.DSN(s.file))
	if err != nil {
		s.t.Fatal(err)
	}
	return db
}

// sqlite runs statements. There is no schema, so NAME. is left out.
func (s *site) sqlite(statements ...string) {
	s.t.Helper()
	db := s.openFile()
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(s.t.Context(), strings.ReplaceAll(statement, "NAME.", "")); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (s *site) sqliteNumber(query string) (n int) {
	s.t.Helper()
	db := s.openFile()
	defer db.Close()
	if err := db.QueryRowContext(s.t.Context(), strings.ReplaceAll(query, "NAME.", "")).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// The commands on a file: a dead message is mended and requeued, one is discarded,
// one is replayed, and the id is the same each time.
func TestDeadMessagesInSQLite(t *testing.T) {
	s, q := newStreamSite(t, "sqlite", jetstream.StreamConfig{MaxMsgSize: 1000})
	s.want(exitFailed, "status", "the database can't be opened")
	s.want(exitWell, "migrate --dry-run", "schema version 0 -> ", "would do 1 outbox")
	s.want(exitWell, "migrate", "schema version 0 -> ", "did 1 outbox")
	s.want(exitWell, "migrate", "is up to date")
	d := s.start()
	large := strings.Repeat("x", 2000)
	s.sql("INSERT INTO outbox_messages (topic, type, payload_text, ordering_key) VALUES ('a', 'a.v1', '"+large+"', 'k')",
		"INSERT INTO outbox_messages (topic, type, payload_text, ordering_key) VALUES ('b', 'b.v1', 'behind', 'k')",
		"INSERT INTO outbox_messages (topic, type, payload_text) VALUES ('c', 'c.v1', '"+large+"')")
	within(t, "two are dead", func() bool { return s.number("SELECT count(*) FROM outbox_messages WHERE state = 3") == 2 })
	s.want(exitAttention, "status", "dead", "attention: orders: 2 dead, 1 held back")
	id := map[string]string{}
	for line := range strings.Lines(s.want(exitWell, "dead list --json")) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		id[r.Topic] = r.ID
		if r.LastErrorClass != "rejected" || r.DeadAt == nil || r.HoldsKey != (r.Topic == "a") {
			t.Errorf("%+v", r)
		}
	}
	if len(id) != 2 {
		t.Fatalf("dead are %v", id)
	}
	s.want(exitWell, "dead show "+id["a"], "payload       2000 bytes")

	s.sql("UPDATE outbox_messages SET payload_text = 'mended' WHERE topic = 'a'")
	s.want(exitWell, "dead requeue --id "+id["a"]+" --reason mended --by anna", "orders: requeued 1")
	q.wait(2)
	if got := q.all(); got[0].id != id["a"] || got[0].body != "mended" || got[1].body != "behind" {
		t.Errorf("arrived: %+v", got)
	}

	s.want(exitWell, "dead discard --topic c --reason nonsense --by anna", "orders: discarded 1")
	if n := s.number("SELECT count(*) FROM outbox_archive WHERE outcome = 'discarded' AND settled_by = 'anna' AND reason = 'nonsense' AND message_id = '" + id["c"] + "'"); n != 1 {
		t.Errorf("%d discarded messages in the archive", n)
	}
	within(t, "everything is settled", func() bool { return s.number("SELECT count(*) FROM outbox_messages") == 0 })

	s.want(exitWell, "replay --topic a --reason audit --by anna", "orders: replayed 1")
	q.wait(3)
	if got := q.all(); got[2].id != id["a"] || got[2].body != "mended" {
		t.Errorf("replayed: %+v", got[2])
	}
	if n := s.number("SELECT count(DISTINCT action) FROM outbox_audit WHERE actor = 'anna' AND NOT by_relay AND action IN ('requeue', 'discard', 'replay')"); n != 3 {
		t.Errorf("the audit has %d of the three actions", n)
	}
	within(t, "all is well", func() bool { code, _, _ := s.run("status"); return code == exitWell })

	s.want(exitWell, "pause main:"+s.name+" --reason audit --by bert", "orders: paused main:"+s.name)
	s.sql("INSERT INTO outbox_messages (topic, type, payload_text) VALUES ('d', 'd.v1', 'later')")
	s.want(exitAttention, "status", "by bert", "attention: orders: paused main:"+s.name)
	s.want(exitWell, "resume main:"+s.name+" --reason done --by bert", "orders: resumed")
	q.wait(4)
	d.stop()
}

// The relay waits for a file that isn't there, and never makes it.
func TestSQLiteFileMissing(t *testing.T) {
	s, q := newStreamSite(t, "sqlite", jetstream.StreamConfig{})
	d := s.start()
	within(t, "readyz names the ill relay", func() bool {
		code, body := d.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.HasPrefix(body, "orders: ")
	})
	if code, body := d.get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d %q", code, body)
	}
	if left, err := filepath.Glob(s.file + "*"); err != nil || len(left) > 0 {
		t.Errorf("the relay made %v (%v)", left, err)
	}
	s.want(exitWell, "migrate")
	s.sql("INSERT INTO outbox_messages (topic, type, payload_text) VALUES ('a', 'a.v1', 'x')")
	q.wait(1)
	d.stop()
}
