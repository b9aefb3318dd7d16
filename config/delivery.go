package config

import (
	"math"
	"slices"
	"time"

	"github.com/outward-dev/outward/engine"
)

const (
	day     = 24 * time.Hour
	longest = 100 * 365 * day
)

// defaults are the engine's own, written out so that Print can show what is in
// effect.
var defaults = engine.Delivery{
	ConfirmTimeout: 5 * time.Second,
	DetachAfter:    time.Second,
	Window:         1000,
	MaxAttempts:    25,
	MaxCrashes:     5,
	MinAge:         15 * time.Minute,
	GiveUpAfter:    0,
	Backoff:        engine.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Minute},
	OnDead:         engine.Hold,
}

// delivery reads a relay's settings.
func (r *reader) delivery(m *mapping) engine.Options {
	o := engine.Options{
		Batch:         m.number("batch", 500, 1, 10_000),
		InFlight:      m.number("in_flight", 4, 1, 64),
		Lease:         m.duration("lease", 10*time.Second, 100*time.Millisecond, time.Hour, false),
		SettleTimeout: m.duration("settle_timeout", 3*time.Second, time.Millisecond, time.Hour, false),
	}
	o.Delivery = r.perRoute(m, defaults)
	o.Unordered = m.one("order", "key", "key", "none") == "none"
	o.Poll.Min, o.Poll.Max = r.span(m, "poll", 20*time.Millisecond, time.Second, time.Minute)
	o.Drain = m.duration("drain", 20*time.Second, time.Millisecond, time.Hour, true)
	if o.Drain == 0 {
		o.Drain = time.Nanosecond // the engine takes 0 for its default
	}
	m.close()
	for _, err := range check("", engine.Options{Lease: o.Lease, SettleTimeout: o.SettleTimeout}) {
		key := "lease"
		if !m.has(key) && m.has("settle_timeout") {
			key = "settle_timeout"
		}
		m.fault(key, "%v", err)
	}
	return o
}

// relayOnly are the keys that can't differ from route to route: a claim serves all
// of them.
var relayOnly = []string{"batch", "in_flight", "lease", "settle_timeout", "order", "poll", "drain"}

// routeDelivery reads what a route sets otherwise than its relay.
func (r *reader) routeDelivery(m *mapping, base engine.Delivery) engine.Delivery {
	for _, f := range m.n.fields {
		if slices.Contains(relayOnly, f.key) {
			m.known = append(m.known, f.key)
			r.fault(f.value, "a route can't set it: one claim serves all routes; set it in the relay's delivery")
		}
	}
	d := r.perRoute(m, base)
	m.close()
	return d
}

func (r *reader) perRoute(m *mapping, base engine.Delivery) engine.Delivery {
	d := engine.Delivery{
		ConfirmTimeout: m.duration("confirm_timeout", base.ConfirmTimeout, time.Millisecond, time.Hour, false),
		DetachAfter:    m.duration("detach_after", base.DetachAfter, time.Millisecond, time.Hour, false),
		Window:         m.number("window", base.Window, 1, 100_000),
		MaxAttempts:    m.number("max_attempts", base.MaxAttempts, 3, math.MaxInt32),
		MaxCrashes:     m.number("max_crashes", base.MaxCrashes, 1, math.MaxInt32),
		MinAge:         m.duration("min_age", max(base.MinAge, 0), time.Millisecond, longest, true),
		GiveUpAfter:    m.duration("give_up_after", never(base.GiveUpAfter), time.Second, longest, true),
	}
	if d.MinAge == 0 {
		d.MinAge = -1 // the engine takes 0 for its default
	}
	if d.GiveUpAfter == 0 {
		d.GiveUpAfter = math.MaxInt64 // 0 would take the relay's, so a route could not say never
	}
	d.Backoff.Min, d.Backoff.Max = r.span(m, "backoff", base.Backoff.Min, base.Backoff.Max, 30*day)
	word := "hold"
	if base.OnDead == engine.Pass {
		word = "pass"
	}
	d.OnDead = engine.Hold
	if m.one("on_dead", word, "hold", "pass") == "pass" {
		d.OnDead = engine.Pass
	}
	return d
}

// never turns the engine's form of "never" back into the file's.
func never(d time.Duration) time.Duration {
	if d == math.MaxInt64 {
		return 0
	}
	return d
}

// span reads {min, max}.
func (r *reader) span(m *mapping, key string, least, most, limit time.Duration) (time.Duration, time.Duration) {
	n := m.get(key)
	inner := r.mapping(n, m.n)
	low := inner.duration("min", least, time.Millisecond, limit, false)
	def := most
	if n != nil && !inner.has("max") {
		def = max(most, low) // a min above the default max raises it
	}
	high := inner.duration("max", def, time.Millisecond, limit, false)
	inner.close()
	if high < low && n != nil {
		at := "max"
		if !inner.has("max") {
			at = "min"
		}
		if at == "max" && !inner.has("min") {
			inner.fault(at, "it is less than min, which is %s; set min too", formatDuration(low))
		} else {
			inner.fault(at, "max is less than min; swap them")
		}
	}
	m.sub(key, inner)
	return low, high
}
