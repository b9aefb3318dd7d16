package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outward-dev/outward/engine"
)

// A dead message is looked at, mended and requeued, another is discarded, and one is
// replayed from the archive: same id each time.
func TestDeadMessages(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.want(exitWell, "migrate")
	d := s.start()
	s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key, headers) VALUES ('order.a', repeat('é', 255), E'first \\x1b[31m', 'k', '{\"traceparent\": \"00-x\"}')",
		"INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES ('order.b', 'b.v1', 'behind', 'k')",
		"INSERT INTO NAME.outbox_messages (topic, type, payload_text) VALUES ('order.c', repeat('é', 255), 'third')")
	within(t, "two are dead", func() bool { return s.number("SELECT count(*) FROM NAME.outbox_messages WHERE state = 3") == 2 })
	id := map[string]string{}
	for line := range strings.Lines(s.want(exitWell, "dead list --json")) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		id[r.Topic] = r.ID
		if r.Relay != "orders" || r.LastErrorClass != "rejected" || r.DeadAt == nil || r.HoldsKey != (r.Topic == "order.a") {
			t.Errorf("%+v", r)
		}
	}
	if len(id) != 2 {
		t.Fatalf("dead are %v", id)
	}
	s.want(exitWell, "dead list --topic order.c", id["order.c"], "rejected (malformed)")
	if out := s.want(exitWell, "dead list --topic order.c --class unknown"); out != "" {
		t.Errorf("listed: %s", out)
	}
	s.want(exitWell, "dead list --limit 1 --since 2020-01-01 --until 2999-01-01T00:00:00Z", id["order.a"], "holds its key")
	s.want(exitWell, "dead show "+id["order.a"], "header        traceparent: 00-x", "payload       11 bytes", "holds ")
	if out := s.want(exitWell, "dead show --payload "+id["order.a"]); out != "first \x1b[31m" {
		t.Errorf("payload %q", out)
	}
	s.want(exitFailed, "dead show 00000000-0000-0000-0000-000000000001", "no dead message has the id")
	s.want(exitUsage, "dead show x", "not a message id")
	s.want(exitUsage, "dead requeue --reason x", "say which")
	s.want(exitUsage, "dead requeue --all", "say why: --reason")
	s.want(exitUsage, "dead requeue --all --reason x --class odd", "--class odd is not known")
	s.want(exitUsage, "dead list --since soon", "--since soon is not a time")
	s.want(exitUsage, "dead list --since 2026-02-01 --until 2026-01-01", "--since is not before --until")
	s.want(exitWell, "dead requeue --all --dry-run", id["order.a"], id["order.c"], "requeue would change 2 messages; nothing was changed")

	s.sql("UPDATE NAME.outbox_messages SET type = 'mended.v1' WHERE topic = 'order.a'")
	s.want(exitWell, "dead requeue --id "+id["order.a"]+" --reason mended --by anna", "orders: requeued 1")
	m := q.next()
	if m.MessageId != id["order.a"] || m.Headers["outward-resends"] != "1" || string(m.Body) != "first \x1b[31m" {
		t.Errorf("requeued as %s, resends %v, body %q", m.MessageId, m.Headers["outward-resends"], m.Body)
	}
	if m := q.next(); string(m.Body) != "behind" {
		t.Errorf("what it held back came as %q", m.Body)
	}

	s.want(exitWell, "dead discard --topic order.c --reason nonsense --by anna --rate 5", "orders: discarded 1")
	if n := s.number("SELECT count(*) FROM NAME.outbox_archive WHERE outcome = 'discarded' AND settled_by = 'anna' AND reason = 'nonsense' AND message_id = '" + id["order.c"] + "'"); n != 1 {
		t.Errorf("%d discarded messages in the archive", n)
	}
	within(t, "everything is settled", func() bool { return s.number("SELECT count(*) FROM NAME.outbox_messages") == 0 })

	s.want(exitUsage, "replay --reason x", "say which")
	s.want(exitWell, "replay --topic order.a --dry-run", id["order.a"], "published", "replay would change 1 message; nothing was changed")
	s.want(exitWell, "replay --from 2020-01-01 --to 2020-01-02 --reason x --by anna", "orders: replayed 0")
	s.want(exitWell, "replay --topic order.a --reason audit --by anna --rate 100", "orders: replayed 1")
	if m := q.next(); m.MessageId != id["order.a"] || m.Headers["outward-resends"] != "2" {
		t.Errorf("replayed as %s, resends %v", m.MessageId, m.Headers["outward-resends"])
	}
	if n := s.number("SELECT count(DISTINCT action) FROM NAME.outbox_audit WHERE actor = 'anna' AND NOT by_relay AND action IN ('requeue', 'discard', 'replay')"); n != 3 {
		t.Errorf("the audit has %d of the three actions", n)
	}
	d.stop()
}

// Many messages are replayed in the order in which they went, at the rate that was
// asked for, and once each.
func TestReplayInOrder(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.want(exitWell, "migrate")
	d := s.start()
	s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) SELECT 'a', 'a.v1', n::text, 'k' FROM generate_series(1, 1200) n")
	var first []string
	for range 1200 {
		first = append(first, q.next().MessageId)
	}
	within(t, "everything is settled", func() bool { return s.number("SELECT count(*) FROM NAME.outbox_messages") == 0 })
	s.want(exitWell, "replay --key k --reason again --by anna --rate 2000", "orders: replayed 1200")
	for i := range 1200 {
		if m := q.next(); m.MessageId != first[i] {
			t.Fatalf("message %d came as %s, want %s", i, m.MessageId, first[i])
		}
	}
	q.empty()
	d.stop()
}

func TestPauseAndResume(t *testing.T) {
	s := newSite(t)
	q := s.listen()
	s.want(exitWell, "migrate")
	d := s.start()
	d.says("msg=relaying")
	s.want(exitUsage, "pause main:x", "say why: --reason")
	s.want(exitUsage, "pause main --reason x", "names no destination")
	s.want(exitUsage, "pause nosuch:x --reason x", "no transport is named nosuch; there is main")
	s.want(exitUsage, "pause", "arg")
	s.want(exitFailed, "resume main:x --reason x", "main:x is not paused; nothing is")
	s.want(exitWell, "pause topic:a --reason audit --by anna", "orders: paused topic:a")
	s.want(exitWell, "pause main:"+s.name+" --reason audit --by bert")
	within(t, "the relay knows", func() bool { return strings.Count(d.out.String(), "msg=paused") == 2 })
	s.sql("INSERT INTO NAME.outbox_messages (topic, type) VALUES ('a', 'a.v1'), ('b', 'b.v1')")
	s.want(exitAttention, "status", "by anna", "by bert", "attention: orders: paused main:"+s.name+", paused topic:a")
	s.want(exitFailed, "resume main:x --reason x", "paused is main:"+s.name+", topic:a")
	s.want(exitWell, "resume main:"+s.name+" --reason done --by bert", "orders: resumed")
	if m := q.next(); m.RoutingKey != "b" {
		t.Errorf("got %s", m.RoutingKey)
	}
	s.want(exitWell, "resume topic:a --reason done --by anna --relay orders")
	if m := q.next(); m.RoutingKey != "a" {
		t.Errorf("got %s", m.RoutingKey)
	}
	if code, body := d.get("/readyz?strict=1"); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
	d.stop()
}

func TestPaceTouchesEachOnce(t *testing.T) {
	ids := make([]engine.ID, 1203)
	for i := range ids {
		ids[i] = engine.NewID()
	}
	seen := map[engine.ID]int{}
	n, err := pace(t.Context(), ids, 0, func(chunk []engine.ID) (int, error) {
		if len(chunk) > commandChunk {
			t.Errorf("a chunk of %d", len(chunk))
		}
		for _, id := range chunk {
			seen[id]++
		}
		return len(chunk), nil
	})
	if n != 1203 || err != nil || len(seen) != 1203 {
		t.Errorf("%d, %v, %d ids", n, err, len(seen))
	}
}
