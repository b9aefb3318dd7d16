package main

import (
	"context"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/internal/testservers"
)

// oneFile is a configuration of which two lines say where messages come from, and
// two where they go.
const oneFile = `
relays:
  - name: orders
    store:
      dialect: postgres
      url: "${ORDERS_DB}"
    transports:
      main:
        kind: rabbitmq
        url: "${AMQP_URL}"
        source: /orders
    routes:
      - {topics: ["*.submitted"], to: main}
http:
  probes: {listen: "127.0.0.1:0"}
`

// toJetStream and fromSQLite change two lines each.
var (
	toJetStream = []string{
		`        kind: rabbitmq`, `        kind: nats`,
		`        url: "${AMQP_URL}"`, `        url: "${NATS_URL}"`,
	}
	fromSQLite = []string{
		`      dialect: postgres`, `      dialect: sqlite`,
		`      url: "${ORDERS_DB}"`, `      url: "file:orders.db"`,
	}
)

// The same file takes messages from PostgreSQL to RabbitMQ, with two lines changed
// to JetStream, with two more from SQLite; each fed by the database's own program.
func TestOneFileThreePairs(t *testing.T) {
	jetStream := changeLines(t, oneFile, toJetStream)
	for _, pair := range []struct {
		name, config string
		insert       func(s *site) func(statement string)
		arrived      func(s *site, topic string) func() arrival
	}{
		{"postgres to rabbitmq", oneFile, viaPsql, inQueue},
		{"postgres to jetstream", jetStream, viaPsql, inStream},
		{"sqlite to jetstream", changeLines(t, jetStream, fromSQLite), viaSqlite3, inStream},
	} {
		t.Run(pair.name, func(t *testing.T) {
			s := bareSite(t)
			s.configure(pair.config)
			topic := s.name + ".submitted"
			next := pair.arrived(s, topic)
			insert := pair.insert(s)
			s.want(exitWell, "config check", "well, 1 relay")
			s.want(exitWell, "migrate", "did 1 outbox")
			d := s.start()
			insert(`INSERT INTO outbox_messages (topic, type, ordering_key, payload_text) VALUES ('` + topic + `', 'order.submitted.v1', 'order-42', '{"order": 42, "name": "Ünal ''O"}')`)
			got := next()
			want := arrival{typ: "order.submitted.v1", key: "order-42", source: "/orders", body: `{"order": 42, "name": "Ünal 'O"}`, id: got.id}
			if got != want || len(got.id) != 36 {
				t.Errorf("arrived: %+v, want %+v", got, want)
			}
			within(t, "it is settled", func() bool {
				code, stdout, _ := s.run("status")
				return code == exitWell && strings.Contains(stdout, "oldest   none")
			})
			d.stop()
		})
	}
}

// changeLines replaces lines, and fails unless exactly these were there.
func changeLines(t *testing.T, text string, lines []string) string {
	t.Helper()
	for i := 0; i < len(lines); i += 2 {
		if strings.Count(text, "\n"+lines[i]+"\n") != 1 {
			t.Fatalf("there is not one line %q in %s", lines[i], text)
		}
		text = strings.Replace(text, "\n"+lines[i]+"\n", "\n"+lines[i+1]+"\n", 1)
	}
	return text
}

// arrival is a message as its reader gets it.
type arrival struct{ id, typ, key, source, body string }

// viaPsql gives the site a PostgreSQL database of its own, and inserts with psql.
func viaPsql(s *site) func(statement string) {
	s.t.Helper()
	s.tool("psql", "--version")
	admin := testservers.DSN(s.t, "pg17")
	u, err := url.Parse(admin)
	if err != nil {
		s.t.Fatal(err)
	}
	run := func(statement string) {
		s.t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		conn, err := pgx.Connect(ctx, admin)
		if err != nil {
			s.t.Fatal(err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, statement); err != nil {
			s.t.Fatal(err)
		}
	}
	run("CREATE DATABASE " + s.name)
	s.t.Cleanup(func() { run("DROP DATABASE " + s.name + " WITH (FORCE)") })
	u.Path = "/" + s.name
	s.setenv("ORDERS_DB", u.String())
	return func(statement string) {
		s.t.Helper()
		s.tool("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", u.String(), "-c", statement)
	}
}

// viaSqlite3 inserts into the site's file with sqlite3.
func viaSqlite3(s *site) func(statement string) {
	s.t.Helper()
	s.tool("sqlite3", "--version")
	return func(statement string) {
		s.t.Helper()
		s.tool("sqlite3", "-bail", "-cmd", ".timeout 5000", filepath.Join(s.dir, "orders.db"), statement)
	}
}

// inQueue reads from a queue behind the exchange that has the topic's name.
func inQueue(s *site, topic string) func() arrival {
	s.t.Helper()
	s.setenv("AMQP_URL", testservers.URL(s.t, "rabbitmq4"))
	q := s.listenTo(topic)
	return func() arrival {
		d := q.next()
		key, _ := d.Headers["outward-key"].(string)
		return arrival{id: d.MessageId, typ: d.Type, key: key, source: d.AppId, body: string(d.Body)}
	}
}

// inStream reads from the stream that has the topic for a subject.
func inStream(s *site, topic string) func() arrival {
	s.t.Helper()
	s.setenv("NATS_URL", testservers.URL(s.t, "nats"))
	q := s.stream(jetstream.StreamConfig{})
	return func() arrival {
		q.wait(1)
		m := q.all()[0]
		return arrival{id: m.id, typ: m.typ, key: m.key, source: m.source, body: m.body}
	}
}

// tool runs a database's own program, which may be missing.
func (s *site) tool(name string, args ...string) {
	s.t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		s.t.Skipf("NOT RUN: %s: %v", name, err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
