package config

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/outward-dev/outward/engine"
)

// A Relay is one relay of the file.
type Relay struct {
	Name string

	line, column int
	table        table
	transports   []*transport
	routes       []route
	options      engine.Options // Name, Delivery, Batch and so on; no Logger and no Hooks
	printed      yaml.MapSlice
	fingerprint  string // of everything in effect
}

// table is a store's settings, of one dialect.
type table interface {
	// identity is the same for two relays on the same table, as far as the file
	// tells. It holds secrets, and is only compared.
	identity() string
	// open makes the way to the database. It does no I/O. log may be nil.
	open(relay string, log *slog.Logger) (Database, error)
	render(format string) ([]File, error)
}

// A transport is a named entry of transports.
type transport struct {
	name     string
	kind     *kind
	node     *node
	settings broker // nil after a fault
	used     bool
}

// broker is a transport's settings, of one kind.
type broker interface {
	// open makes the transport. It does no I/O. destinations are those that the
	// routes name.
	open(o brokerOptions) (engine.Transport, error)
}

// A route is an entry of routes, taken apart by its topics.
type route struct {
	topics      string
	transport   *transport
	destination string
	delivery    engine.Delivery
}

func (r *reader) relay(n, list *node) *Relay {
	relay := &Relay{line: n.line, column: n.column}
	m := r.mapping(n, list)
	if name, ok := m.needText("name", "give the relay a name"); ok {
		if namePattern.MatchString(name) {
			relay.Name = name
		} else {
			at := m.at("name")
			r.fault(at, "%s is not %s", at.shown(), nameWords)
		}
	}
	if n := m.get("store"); n != nil {
		store := r.mapping(n, m.n)
		relay.table = r.store(store)
		m.sub("store", store)
	} else if !m.has("store") && !m.open {
		m.fault("store", "it is missing; it says in which database the messages are")
	}
	r.transports(relay, m)
	delivery := r.mapping(m.get("delivery"), m.n)
	options := r.delivery(delivery)
	options.Name = relay.Name
	relay.options = options
	r.routes(relay, m, options.Delivery)
	m.sub("delivery", delivery)
	m.close()
	for _, t := range relay.transports {
		if !t.used && m.has("routes") {
			r.fault(t.node, "no route goes to this transport; remove it, or add a route with to: %s", t.name)
		}
	}
	relay.printed = m.printed
	relay.fingerprint = m.fingerprint()
	return relay
}

func (r *reader) store(m *mapping) table {
	name := m.text("dialect", "")
	at := m.at("dialect")
	switch {
	case !m.has("dialect"):
		if !m.open {
			m.fault("dialect", "it is missing; known are %s", words(dialectNames()))
		}
	case at.kind != isScalar || at.bad:
	case dialectOf(name) != nil:
		t := dialectOf(name).read(m)
		m.close()
		return t
	case slices.Contains(dialectsToCome, name):
		r.fault(at, "%s is not built into this version; it has %s", at.shown(), words(dialectNames()))
	default:
		r.fault(at, "%s is not a dialect; known are %s", at.shown(), words(dialectNames()))
	}
	return nil
}

func (r *reader) transports(relay *Relay, m *mapping) {
	n := m.get("transports")
	if n == nil {
		if !m.has("transports") && !m.open {
			m.fault("transports", "it is missing; it names the brokers that the routes go to")
		}
		return
	}
	all := r.mapping(n, m.n)
	if !all.open && len(n.fields) == 0 {
		r.fault(n, "it is empty; name at least one broker")
	}
	for _, f := range n.fields {
		t := &transport{name: f.key, node: f.value}
		relay.transports = append(relay.transports, t)
		if !namePattern.MatchString(f.key) || f.key == "topic" || f.key == "transport" {
			r.fault(f.value, "%q is not a transport's name: it must be %s, and neither topic nor transport", f.key, nameWords)
		}
		if all.get(f.key) == nil {
			continue
		}
		inner := r.mapping(f.value, n)
		r.transport(t, inner)
		all.sub(f.key, inner)
	}
	all.close()
	m.sub("transports", all)
}

func (r *reader) transport(t *transport, m *mapping) {
	name := m.text("kind", "")
	at := m.at("kind")
	switch {
	case !m.has("kind"):
		if !m.open {
			m.fault("kind", "it is missing; known are %s", words(kindsBuilt()))
		}
	case at.kind != isScalar || at.bad:
	case kindOf(name) != nil:
		t.kind = kindOf(name)
		t.settings = t.kind.read(m)
		m.close()
	case slices.Contains(kindsToCome, name):
		r.fault(at, "%s is not built into this version; it has %s", at.shown(), words(kindsBuilt()))
	default:
		r.fault(at, "%s is not a kind of transport; known are %s", at.shown(), words(kindsBuilt()))
	}
}

// check asks the engine whether the relay's settings are right. What is wrong with a
// single key was found by its reader; this is what the engine knows of several.
func check(name string, o engine.Options, routes ...engine.Route) []error {
	o.Name = name
	if len(routes) == 0 {
		routes = []engine.Route{{Topics: ">"}}
	}
	for i := range routes {
		routes[i].Transport = noTransport{}
	}
	_, err := engine.New(noStore{}, routes, &o)
	return split(peel(err))
}

// peel takes off what the engine puts around its faults: the relay's name and the
// number of the route, which a line says better.
func peel(err error) error {
	for err != nil {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok {
			break
		}
		err = inner.Unwrap()
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, peel(err))
	}
	if len(all) == 1 {
		return all[0]
	}
	return joinedErrors(all)
}

type joinedErrors []error

func (j joinedErrors) Error() string   { return fmt.Sprint([]error(j)) }
func (j joinedErrors) Unwrap() []error { return j }

// noStore and noTransport stand for what isn't opened yet where only settings are
// checked.
type (
	noStore     struct{ engine.Store }
	noTransport struct{ engine.Transport }
)

func (noStore) Describe() engine.StoreInfo         { return engine.StoreInfo{} }
func (noTransport) Describe() engine.TransportInfo { return engine.TransportInfo{} }
