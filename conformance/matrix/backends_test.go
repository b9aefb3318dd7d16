package matrix

import (
	"context"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// A dialect joins the matrix by one line here and a file of its own.
var dialects = []dialect{postgresDialect, sqliteDialect}

// A transport joins the matrix by one line here and a file of its own.
var transports = []transport{rabbitmqTransport, natsjsTransport}

// A dialect is how the matrix reaches one kind of database.
type dialect struct {
	name    string
	servers []string // by the names of scripts/services
	less    int      // so many times fewer messages where a race detector slows the database itself down; 0: 1
	typical string   // the one that faults befall where there is no time for all; empty: all of them
	local   bool     // there is no server: nothing to kill, to pause or to cut
	// session returns an address whose sessions have a setting; nil: there are none.
	session func(address, name, value string) string
	// login returns an address with an account of its own, which can be made to be
	// refused; nil: there are no accounts.
	login func(t *testing.T, address string) *login
	// refused tells the server's word that a transaction was rolled back.
	refused func(err error) bool
	// undecodable is what makes a row that no relay can read; {id} stands for its id.
	undecodable []string
	text        func(n int) string // an SQL expression for a text of n bytes
	// connections counts those that relays still have, when they should have none.
	connections func(ctx context.Context, o *outbox) (int, error)
	// create makes an empty outbox on a server, which goes when the test ends, and
	// says how to reach it.
	create func(t *testing.T, server string) (address string)
	// open reaches it, from any process.
	open func(address string) (*outbox, error)
}

// An outbox is an open outbox.
type outbox struct {
	address string
	store   engine.Store
	// enqueue does it in a transaction of its own. commit is called before COMMIT, and
	// its error rolls back.
	enqueue func(ctx context.Context, commit func(context.Context) error, msgs ...engine.Message) ([]engine.ID, error)
	exec    func(ctx context.Context, sql string) error // {p} stands for schema and prefix
	query   func(ctx context.Context, sql string, row func(scan func(...any) error) error) error
	// hold opens a transaction that sees the tables as they are, until it is released.
	hold  func(ctx context.Context) (release func(), err error)
	close func()
}

// A transport is how the matrix reaches one kind of broker.
type transport struct {
	name    string
	servers []string
	// create makes a place for messages that goes when the test ends: routes sends
	// every topic there.
	create func(t *testing.T, server string) (address string)
	open   func(address string) (engine.Transport, []engine.Route, error)
	// What can be done to the place, and undone; nil: it can't.
	full  func(t *testing.T, address string) (undo func()) // takes no more
	gone  func(t *testing.T, address string) (there []delivery, undo func())
	alarm func(t *testing.T, server *testservers.Server) (undo func()) // the whole server takes no messages
	queue func(t *testing.T, address string) (there []delivery, undo func())
	// login is a place whose relays have an account of their own.
	login    func(t *testing.T, address string) (at string, l *login)
	oversize int            // bytes that it never takes
	poison   engine.Message // what it never takes either
	// take removes and returns all that is there, in order.
	take func(ctx context.Context, address string) ([]delivery, error)
}

// A login is an account that is refused while it is wrong.
type login struct {
	address      string
	wrong, right func()
}

// A delivery is a message as a consumer gets it.
type delivery struct {
	id, key, topic, kind string
	payload              []byte
	headers              map[string]string // all of them, the producer's among them
	redelivered          bool
}

// pairs runs a test for every dialect with every transport, on each of their servers.
func pairs(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	for _, d := range dialects {
		for _, tr := range transports {
			for _, ds := range d.servers {
				for _, ts := range tr.servers {
					t.Run(ds+"/"+ts, func(t *testing.T) {
						p := &pair{t: t, dialect: d, transport: tr}
						p.storeAt = d.create(t, ds)
						p.brokerAt = tr.create(t, ts)
						var err error
						if p.outbox, err = d.open(p.storeAt); err != nil {
							t.Fatal(err)
						}
						t.Cleanup(p.outbox.close)
						test(t, p)
					})
				}
			}
		}
	}
}

// A pair is an outbox and a broker under test.
type pair struct {
	t        *testing.T
	dialect  dialect
	storeAt  string
	brokerAt string
	outbox   *outbox
	transport
	relayProgram string   // see program
	relayEnv     []string // beside this process's
}

// settled waits until nothing is left to be sent.
func (p *pair) settled(limit time.Duration) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	var b engine.Backlog
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var err error
		if b, err = p.outbox.store.(engine.Monitor).Backlog(ctx); err == nil && b.Ready.N+b.Waiting.N+b.Held.N == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("not settled within %v: %+v", limit, b)
		}
	}
}

// taken returns everything that is at the broker.
func (p *pair) taken() []delivery {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	ds, err := p.take(ctx, p.brokerAt)
	if err != nil {
		p.t.Fatal(err)
	}
	return ds
}
