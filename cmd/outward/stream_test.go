package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
)

// A stream is where a site's messages arrive in JetStream.
type stream struct {
	s    *site
	js   jetstream.JetStream
	conf jetstream.StreamConfig
}

// stored is a message in a stream.
type stored struct {
	id, key, topic, typ, source, body string
	at                                time.Time
}

// newStreamSite makes a site with one relay from a table of the dialect to a stream
// of its own.
func newStreamSite(t *testing.T, dialect string, conf jetstream.StreamConfig) (*site, *stream) {
	t.Helper()
	s := bareSite(t)
	var store string
	switch dialect {
	case "postgres":
		store = `{dialect: postgres, url: "${ORDERS_DB}", schema: NAME}`
		dsn := testservers.DSN(t, "pg17")
		s.setenv("ORDERS_DB", dsn)
		s.secrets = append(s.secrets, dsn, ":outbox@")
		s.dropAfter()
	case "sqlite":
		store = `{dialect: sqlite, url: "file:orders.db"}`
		s.file = filepath.Join(s.dir, "orders.db")
	}
	q := s.stream(conf)
	s.setenv("NATS_URL", testservers.URL(t, "nats"))
	s.configure(strings.ReplaceAll(`
relays:
  - name: orders
    store: `+store+`
    transports:
      main: {kind: nats, url: "${NATS_URL}", source: /orders, stream: NAME}
    routes:
      - {topics: [">"], to: main, subject: NAME}
    delivery: {confirm_timeout: 1s}
http:
  probes: {listen: "127.0.0.1:0"}
`, "NAME", s.name))
	return s, q
}

// stream makes the site's stream, which is deleted when the test ends.
func (s *site) stream(conf jetstream.StreamConfig) *stream {
	s.t.Helper()
	conn, err := nats.Connect(testservers.URL(s.t, "nats"))
	if err != nil {
		s.t.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		s.t.Fatal(err)
	}
	conf.Name, conf.Subjects = s.name, []string{s.name, s.name + ".>"}
	q := &stream{s: s, js: js, conf: conf}
	q.create()
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := js.DeleteStream(ctx, s.name); err != nil {
			s.t.Errorf("the stream stays behind: %v", err)
		}
		conn.Close()
	})
	return q
}

func (q *stream) create() {
	q.s.t.Helper()
	if _, err := q.js.CreateStream(q.s.t.Context(), q.conf); err != nil {
		q.s.t.Fatal(err)
	}
}

func (q *stream) info() *jetstream.StreamInfo {
	q.s.t.Helper()
	st, err := q.js.Stream(q.s.t.Context(), q.s.name)
	if err != nil {
		q.s.t.Fatal(err)
	}
	return st.CachedInfo()
}

// wait waits until the stream has n messages.
func (q *stream) wait(n int) {
	q.s.t.Helper()
	within(q.s.t, fmt.Sprintf("the stream has %d messages", n), func() bool { return q.info().State.Msgs >= uint64(n) })
	if got := q.info().State.Msgs; got != uint64(n) {
		q.s.t.Errorf("the stream has %d messages, want %d", got, n)
	}
}

// all reads the stream, in its order.
func (q *stream) all() []stored {
	q.s.t.Helper()
	ctx := q.s.t.Context()
	st, err := q.js.Stream(ctx, q.s.name)
	if err != nil {
		q.s.t.Fatal(err)
	}
	var all []stored
	state := st.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := st.GetMsg(ctx, seq)
		if err != nil {
			q.s.t.Fatal(err)
		}
		header := func(name string) string {
			text, err := url.PathUnescape(m.Header.Get(name))
			if err != nil {
				q.s.t.Errorf("header %s: %v", name, err)
			}
			return text
		}
		all = append(all, stored{id: header("ce-id"), key: header("outward-key"), topic: header("outward-topic"), typ: header("ce-type"),
			source: header("ce-source"), body: string(m.Data), at: m.Time})
	}
	return all
}

// eachStore runs a test for every dialect, to a stream of its own.
func eachStore(t *testing.T, conf jetstream.StreamConfig, f func(t *testing.T, s *site, q *stream)) {
	for _, dialect := range []string{"postgres", "sqlite"} {
		t.Run(dialect, func(t *testing.T) {
			s, q := newStreamSite(t, dialect, conf)
			s.want(exitWell, "migrate")
			f(t, s, q)
		})
	}
}

// unharmed checks that no message was charged or died, and that all were published.
func (s *site) unharmed(published int) {
	s.t.Helper()
	within(s.t, "everything is settled", func() bool { return s.number("SELECT count(*) FROM NAME.outbox_messages") == 0 })
	if n := s.number("SELECT count(*) FROM NAME.outbox_archive WHERE outcome = 'published'"); n != published {
		s.t.Errorf("%d messages in the archive, want %d", n, published)
	}
	if n := s.number("SELECT max(attempts) FROM NAME.outbox_archive"); n != 0 {
		s.t.Errorf("a message was charged %d attempts", n)
	}
}

// waitPaused waits until status says that the stream's subject is paused, and why.
func (s *site) waitPaused(why string) {
	s.t.Helper()
	within(s.t, "status says that the subject is paused: "+why, func() bool {
		code, stdout, _ := s.run("status")
		return code == exitAttention && strings.Contains(stdout, "main:"+s.name) && strings.Contains(stdout, why)
	})
}

// A stream that is at its limit, then has more room, is removed and made again:
// nothing is lost and nobody is charged.
func TestStreamAtItsLimitThenGone(t *testing.T) {
	eachStore(t, jetstream.StreamConfig{MaxMsgs: 3, Discard: jetstream.DiscardNew}, func(t *testing.T, s *site, q *stream) {
		d := s.start()
		insert := func(from, to int) {
			for n := from; n <= to; n++ {
				s.sql(fmt.Sprintf("INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES ('a', 'a.v1', '%d', 'k%d')", n, n%2))
			}
		}
		insert(1, 8)
		q.wait(3)
		s.waitPaused("maximum messages exceeded")

		q.conf.MaxMsgs = 5
		if _, err := q.js.UpdateStream(t.Context(), q.conf); err != nil {
			t.Fatal(err)
		}
		q.wait(5)
		s.waitPaused("maximum messages exceeded")
		arrived := q.all()

		if err := q.js.DeleteStream(t.Context(), s.name); err != nil {
			t.Fatal(err)
		}
		insert(9, 10)
		s.waitPaused("") // for the reason that it was paused for; a probe finds no better one
		if code, body := d.get("/readyz"); code != 200 || !strings.Contains(body, "orders: 1 destination paused by a fault") {
			t.Errorf("readyz: %d %q", code, body)
		}
		q.conf.MaxMsgs = -1
		q.create()
		q.wait(5)
		arrived = append(arrived, q.all()...)
		s.unharmed(10)
		last := map[string]int{}
		for _, m := range arrived {
			var n int
			if _, err := fmt.Sscan(m.body, &n); err != nil || m.key != fmt.Sprint("k", n%2) || n <= last[m.key] {
				t.Errorf("%s of key %s is out of order, or there twice: %+v", m.body, m.key, arrived)
			}
			last[m.key] = n
		}
		if len(arrived) != 10 {
			t.Errorf("%d messages arrived, want 10", len(arrived))
		}
		within(t, "all is well again", func() bool { code, _, _ := s.run("status"); return code == exitWell })
		d.stop()
	})
}

// The acknowledgements are lost and the outage is longer than the stream's dedup
// window: what was stored comes again with the same id, and nobody is charged.
func TestOutageLongerThanTheDedupWindow(t *testing.T) {
	const window = 500 * time.Millisecond
	eachStore(t, jetstream.StreamConfig{Duplicates: window}, func(t *testing.T, s *site, q *stream) {
		u, err := url.Parse(testservers.URL(t, "nats"))
		if err != nil {
			t.Fatal(err)
		}
		p := faultproxy.New(t, u.Host)
		u.Host = p.Addr()
		s.setenv("NATS_URL", u.String())
		d := s.start()
		s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text) VALUES ('a', 'a.v1', '0')")
		q.wait(1)
		within(t, "it is settled", func() bool { return s.number("SELECT count(*) FROM NAME.outbox_messages") == 0 })

		p.Mute(true)
		s.sql("INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES " +
			"('a', 'a.v1', '1', 'k'), ('a', 'a.v1', '2', 'l'), ('a', 'a.v1', '3', 'm'), ('a', 'a.v1', '4', NULL), ('a', 'a.v1', '5', 'k')")
		within(t, "what can be sent without an acknowledgement is stored", func() bool { return q.info().State.Msgs >= 5 })
		p.Cut()
		s.waitPausedTransport()
		stood := q.info().State.LastTime
		within(t, "the stream has forgotten what it stored", func() bool { return time.Since(stood) > 3*window })
		p.Mute(false)
		p.Cut()
		s.unharmed(6)
		ids, times := map[string]string{}, map[string]int{}
		for _, m := range q.all() {
			if id, known := ids[m.body]; known && id != m.id {
				t.Errorf("message %s came as %s and as %s", m.body, id, m.id)
			}
			ids[m.body] = m.id
			times[m.body]++
		}
		if len(ids) != 6 || times["0"] != 1 || times["1"] < 2 {
			t.Errorf("arrived, with how often: %v", times)
		}
		within(t, "all is well again", func() bool { code, _, _ := s.run("status"); return code == exitWell })
		d.stop()
	})
}

// waitPausedTransport waits until the broker counts as out of reach.
func (s *site) waitPausedTransport() {
	s.t.Helper()
	within(s.t, "status says that the broker is out of reach", func() bool {
		code, stdout, _ := s.run("status")
		return code == exitAttention && strings.Contains(stdout, "unavailable")
	})
}
