package config

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/outward-dev/outward/engine"
)

// patternAt is a pattern with the line where it stands.
type patternAt struct {
	pattern string
	line    int
}

func (r *reader) routes(relay *Relay, m *mapping, base engine.Delivery) {
	list := m.get("routes")
	switch {
	case list == nil:
		if !m.has("routes") && !m.open {
			m.fault("routes", "it is missing; it says which topics go where, as in - {topics: [\">\"], to: NAME}")
		}
		return
	case list.kind != isList:
		r.fault(list, "it is %s; it must be a list of routes", kindNames[list.kind])
		return
	case len(list.items) == 0:
		r.fault(list, "it is empty; a topic without a route goes nowhere")
		return
	}
	var printed []yaml.MapSlice
	var sums strings.Builder
	var before []patternAt
	for _, item := range list.items {
		route := r.mapping(item, list)
		before = r.route(relay, route, base, before)
		printed = append(printed, route.printed)
		sums.WriteString(route.fingerprint())
	}
	m.note("routes", printed, sums.String())
}

func (r *reader) route(relay *Relay, m *mapping, base engine.Delivery, before []patternAt) []patternAt {
	topics, before := r.topics(m, before)
	var t *transport
	if to, ok := m.needText("to", "name one of the relay's transports"); ok {
		i := slices.IndexFunc(relay.transports, func(t *transport) bool { return t.name == to })
		if i >= 0 {
			t = relay.transports[i]
			t.used = true
		} else {
			at := m.at("to")
			var names []string
			for _, t := range relay.transports {
				names = append(names, t.name)
			}
			text := "the relay has none"
			if len(names) > 0 {
				text = "the relay has " + words(names)
			}
			r.fault(at, "%s is not a transport of this relay; %s", at.shown(), text)
		}
	}
	one := route{transport: t}
	if t != nil && t.kind != nil {
		one.destination = t.kind.route(m)
	} else {
		m.open = true // the keys of a destination are the kind's
	}
	if n := m.get("delivery"); n != nil {
		inner := r.mapping(n, m.n)
		one.delivery = r.routeDelivery(inner, base)
		m.sub("delivery", inner)
	}
	m.close()
	for _, topic := range topics {
		one.topics = topic
		relay.routes = append(relay.routes, one)
	}
	return before
}

func (r *reader) topics(m *mapping, before []patternAt) ([]string, []patternAt) {
	n := m.get("topics")
	switch {
	case n == nil:
		if !m.has("topics") && !m.open {
			m.fault("topics", "it is missing; it lists topic patterns, as in [\"order.*\"], or [\">\"] for all")
		}
		return nil, before
	case n.bad:
		return nil, before
	case n.kind != isList:
		r.fault(n, "it is %s; it must be a list of topic patterns, as in [\"order.*\"]", kindNames[n.kind])
		return nil, before
	case len(n.items) == 0:
		r.fault(n, "it is empty; list at least one topic pattern, [\">\"] for all")
		return nil, before
	}
	var patterns, raws []string
	for _, item := range n.items {
		if item.bad {
			continue
		}
		if item.kind != isScalar {
			r.fault(item, "it is %s; it must be a topic pattern", kindNames[item.kind])
			continue
		}
		if faults := check("", engine.Options{}, engine.Route{Topics: item.text}); len(faults) > 0 {
			for _, err := range faults {
				if item.expanded {
					r.fault(item, "%s is not a topic pattern", item.shown())
				} else {
					r.fault(item, "%v", err)
				}
			}
			continue
		}
		for _, b := range before {
			if covers(b.pattern, item.text) {
				r.fault(item, "%s can never match: the first match wins, and line %d takes all of its topics; put the narrower route first, or remove it",
					item.shown(), b.line)
				break
			}
		}
		before = append(before, patternAt{item.text, item.line})
		patterns = append(patterns, item.text)
		raws = append(raws, item.raw)
	}
	m.note("topics", raws, strings.Join(patterns, "\x00"))
	return patterns, before
}

// covers reports whether every topic that b matches is matched by a.
func covers(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i, part := range as {
		switch {
		case part == ">":
			return i < len(bs)
		case i >= len(bs) || bs[i] == ">":
			return false
		case part != "*" && part != bs[i]:
			return false
		}
	}
	return len(as) == len(bs)
}
