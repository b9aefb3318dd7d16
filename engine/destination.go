package engine

import (
	"strings"
	"time"
)

// route is a Route that was checked and completed.
type route struct {
	topics      string
	destination string // empty: the topic
	broker      *broker
	delivery    *Delivery
}

// broker is one transport with what it can do.
type broker struct {
	transport Transport
	info      TransportInfo
	prober    Prober // nil where it lacks the ability
	checker   Checker
	pauseKey  string
}

func newBroker(t Transport) *broker {
	b := &broker{transport: t, info: t.Describe()}
	b.prober, _ = t.(Prober)
	b.checker, _ = t.(Checker)
	b.pauseKey = TransportPause(b.info.Name)
	return b
}

type destinationKey struct {
	broker *broker
	name   string
}

// A destination is where messages go, with a window of its own: one that fails or
// is slow never stops another.
type destination struct {
	broker *broker
	name   string
	key    string // names it among all transports, for pauses
	window int

	queue    [][]*item // units that go out in one call: a message, or a run of a key
	queued   int       // messages in queue
	inFlight int
	calls    int
	hung     int       // of these, those that should have returned long ago
	pumped   time.Time // the last time something went out
	timer    bool      // a pump is due

	// What tells a message's own failure from the destination's.
	sent      uint64 // messages sent so far: each gets its number
	confirmed uint64 // the highest number that was confirmed
	successes uint64 // confirmations so far
	probes    uint64 // good probes so far
	failing   ID     // a message that failed since the last confirmation
	several   bool   // and it is not the only one
	streak    int    // publishes in a row that failed without a contrast
	trial     bool   // resumed, and nothing was confirmed since: the next failure decides

	congested           bool      // what was queued waited too long
	slowSince, slowSeen time.Time // the first and the last message that was put off for that
}

// routeOf returns the first route that matches the topic, or nil.
func (r *Relay) routeOf(topic string) *route {
	for i := range r.routes {
		if matchTopic(r.routes[i].topics, topic) {
			return &r.routes[i]
		}
	}
	return nil
}

// maxTopics bounds what the relay remembers of topics it has met.
const maxTopics = 10_000

// destinationOf returns where a message of this topic goes, by its route.
func (r *Relay) destinationOf(rt *route, topic string) *destination {
	if d := r.topics[topic]; d != nil {
		return d
	}
	name := rt.destination
	if name == "" {
		name = topic
	}
	d := r.destinationNamed(rt.broker, name)
	if len(r.topics) >= maxTopics {
		clear(r.topics)
	}
	r.topics[topic] = d
	return d
}

func (r *Relay) destinationNamed(b *broker, name string) *destination {
	k := destinationKey{b, name}
	d := r.destinations[k]
	if d == nil {
		d = &destination{broker: b, name: name, key: b.info.Name + ":" + name, window: r.deliveryTo(b, name).Window}
		r.destinations[k] = d
	}
	return d
}

// deliveryTo is what the first route that leads to a destination says, or else the
// relay: for what belongs to the destination and not to a message.
func (r *Relay) deliveryTo(b *broker, name string) *Delivery {
	for i := range r.routes {
		rt := &r.routes[i]
		if rt.broker == b && (rt.destination == name || rt.destination == "" && matchTopic(rt.topics, name)) {
			return rt.delivery
		}
	}
	return &r.opts.Delivery
}

// destinationByKey finds the destination that a pause names, if a transport of
// this relay has it.
func (r *Relay) destinationByKey(key string) *destination {
	name, dest, ok := strings.Cut(key, ":")
	b := r.byName[name]
	if !ok || b == nil {
		return nil
	}
	return r.destinationNamed(b, dest)
}
