package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/dialects/postgres"
	"github.com/outward-dev/outward/internal/testservers"
)

// dropAfter deletes what the test made on the servers when it has ended.
func (s *site) dropAfter() {
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		db := s.connect(ctx)
		defer db.Close(ctx)
		for _, schema := range []string{s.name, s.name + "_b"} {
			if _, err := db.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE"); err != nil {
				s.t.Error(err)
			}
		}
	})
}

func (s *site) connect(ctx context.Context) *pgx.Conn {
	s.t.Helper()
	db, err := pgx.Connect(ctx, testservers.DSN(s.t, "pg17"))
	if err != nil {
		s.t.Fatal(err)
	}
	return db
}

// sql runs statements as a program that knows nothing of Outward would. NAME stands
// for the schema.
func (s *site) sql(statements ...string) {
	s.t.Helper()
	if s.file != "" {
		s.sqlite(statements...)
		return
	}
	db := s.connect(s.t.Context())
	defer db.Close(s.t.Context())
	for _, statement := range statements {
		if _, err := db.Exec(s.t.Context(), strings.ReplaceAll(statement, "NAME", s.name), pgx.QueryExecModeSimpleProtocol); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// number asks for one number.
func (s *site) number(query string) (n int) {
	s.t.Helper()
	if s.file != "" {
		return s.sqliteNumber(query)
	}
	db := s.connect(s.t.Context())
	defer db.Close(s.t.Context())
	if err := db.QueryRow(s.t.Context(), strings.ReplaceAll(query, "NAME", s.name)).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// operator is the store of the site, for what a test does by hand.
func (s *site) operator() *postgres.Store {
	s.t.Helper()
	pool, err := pgxpool.New(s.t.Context(), testservers.DSN(s.t, "pg17"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(pool.Close)
	store, err := postgres.NewStore(pool, &postgres.Options{Schema: s.name})
	if err != nil {
		s.t.Fatal(err)
	}
	return store
}

// A queue is where the site's messages arrive.
type queue struct {
	s    *site
	ch   *amqp.Channel
	name string
	got  <-chan amqp.Delivery
}

// listen makes the site's exchange and a queue that gets everything of it.
func (s *site) listen() *queue { return s.listenTo(s.name) }

func (s *site) listenTo(exchange string) *queue {
	s.t.Helper()
	conn, err := amqp.Dial(testservers.URL(s.t, "rabbitmq4"))
	if err != nil {
		s.t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := ch.ExchangeDelete(exchange, false, false); err != nil {
			s.t.Error(err)
		}
		conn.Close()
	})
	check := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	check(ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil))
	declared, err := ch.QueueDeclare("", false, true, true, false, nil)
	check(err)
	check(ch.QueueBind(declared.Name, "#", exchange, false, nil))
	got, err := ch.Consume(declared.Name, "", true, true, false, false, nil)
	check(err)
	return &queue{s: s, ch: ch, name: declared.Name, got: got}
}

// next waits for a message.
func (q *queue) next() amqp.Delivery {
	q.s.t.Helper()
	select {
	case d, ok := <-q.got:
		if !ok {
			q.s.t.Fatal("the queue is gone")
		}
		return d
	case <-time.After(patience):
		q.s.t.Fatalf("no message within %v", patience)
	}
	panic("not reached")
}

// empty reports anything that is in the queue.
func (q *queue) empty() {
	q.s.t.Helper()
	select {
	case d := <-q.got:
		q.s.t.Errorf("another message: %s %q", d.RoutingKey, d.Body)
	default:
	}
}

// get asks the daemon for a page.
func (d *daemon) get(path string) (code int, body string) {
	d.s.t.Helper()
	ctx, cancel := context.WithTimeout(d.s.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.address()+path, nil)
	if err != nil {
		d.s.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.s.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		d.s.t.Fatal(err)
	}
	d.s.clean(string(data))
	return res.StatusCode, string(data)
}

// refusing is a PostgreSQL that accepts nobody's password. It counts those that it
// got.
func refusing(t *testing.T) (address string, passwords <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	got := make(chan string, 1000)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			go func() {
				defer conn.Close()
				b := pgproto3.NewBackend(bufio.NewReader(conn), conn)
				if _, err := b.ReceiveStartupMessage(); err != nil {
					return
				}
				b.Send(&pgproto3.AuthenticationCleartextPassword{})
				if b.Flush() != nil || b.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
					return
				}
				if m, err := b.Receive(); err == nil {
					if p, ok := m.(*pgproto3.PasswordMessage); ok {
						got <- p.Password
					}
				}
				b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: `password authentication failed for user "outward"`})
				_ = b.Flush() // the client may be gone
			}()
		}
	}()
	return listener.Addr().String(), got
}

// A proxy stands between a relay and its database, and can be cut.
type proxy struct {
	t       *testing.T
	target  string
	address string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{t: t, target: target, address: "127.0.0.1:0"}
	p.restore()
	t.Cleanup(p.cut)
	return p
}

// restore accepts connections, at the same address as before.
func (p *proxy) restore() {
	p.t.Helper()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener, p.address = listener, listener.Addr().String()
	p.mu.Unlock()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it was cut
			}
			server, err := net.Dial("tcp", p.target)
			if err != nil {
				conn.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn, server)
			p.mu.Unlock()
			for _, way := range [][2]net.Conn{{conn, server}, {server, conn}} {
				go func() {
					_, _ = io.Copy(way[0], way[1]) // ends when either side does
					way[0].Close()
				}()
			}
		}
	}()
}

// cut closes all connections and refuses others.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener.Close()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
