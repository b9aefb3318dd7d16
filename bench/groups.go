package main

import (
	"fmt"
	"time"
)

const (
	keep = 72 * time.Hour // the default retention
	many = 10_000         // keys

	// Unconfirmed messages of the bare clients: more did not make either faster.
	rabbitWindow = 1000
	streamWindow = 4000
)

// groups lists what is measured.
func groups() (gs []group) {
	for _, to := range []target{toNull, toRabbitMQ, toJetStream} {
		gs = append(gs, drainGroup(to), keysGroup(to), hotKeyGroup(to), frontGroup(to), snapshotGroup(to), archiveGroup(to), steadyGroup(to))
	}
	return gs
}

// plain is Outward at its simplest: no keys, nothing in the way, nothing kept.
func plain(to target) subject { return subject{name: "Outward", run: outward{to: to}.run} }

// drainGroup compares Outward with what one would do without it.
func drainGroup(to target) group {
	g := group{name: to.name + "/drain", to: to}
	if to.name == toNull.name {
		g.about = "the database's part, against the text-book outbox A1"
		g.subjects = []subject{plain(to), {name: "A1", run: loop{design: designA1, to: to}.run}}
		g.promises = []promise{{a: "Outward", b: "A1", least: 1.5}}
		return g
	}
	g.about = "against a hand-written loop and the client alone"
	window, ofBare := rabbitWindow, [3]float64{.75, .9, .8}
	if to.name == toJetStream.name {
		window, ofBare = streamWindow, [3]float64{.4, .9, .4}
	}
	g.subjects = []subject{
		plain(to),
		{name: "loop by hand", run: loop{design: byHand, to: to}.run},
		{name: "bare client", run: bare{to, window}.run},
	}
	g.promises = []promise{
		{a: "Outward", b: "bare client", least: ofBare[0]},
		{a: "Outward", b: "loop by hand", least: ofBare[1]},
		{a: "loop by hand", b: "bare client", least: ofBare[2], rival: true},
	}
	return g
}

func keysGroup(to target) group {
	return group{name: to.name + "/keys", about: "order per key, over 10 000 keys, against none", to: to,
		subjects: []subject{plain(to), {name: "10 000 keys", run: outward{to: to, keys: many}.run}},
		promises: []promise{{a: "10 000 keys", b: "Outward", least: .8}},
	}
}

// hotKeyGroup is the worst that order per key can ask for: every message has the
// same key.
func hotKeyGroup(to target) group {
	g := group{name: to.name + "/hot-key", about: "all messages have one key", to: to}
	hot := subject{name: "one hot key", run: outward{to: to, keys: 1}.run}
	if to.name == toNull.name {
		g.subjects = []subject{plain(to), hot}
		g.promises = []promise{{a: "one hot key", b: "Outward"}}
		return g
	}
	hot.share = .1
	g.subjects = []subject{hot, {name: "bare client, one at a time", run: bare{to, 1}.run, share: .1}}
	g.promises = []promise{{a: "one hot key", b: "bare client, one at a time"}}
	g.note = func(r results) string {
		_, perCall, _ := quartiles(r.of("one hot key", func(f figures) float64 { return float64(f.n) / f.calls }))
		_, took, _ := quartiles(r.of("one hot key", func(f figures) float64 { return 1000 / f.rate() }))
		_, trip, _ := quartiles(r.of("bare client, one at a time", func(f figures) float64 { return 1000 / f.rate() }))
		return fmt.Sprintf("limited by the broker's confirmation: %.1f messages a call, %.2f ms each, of which %.2f ms are the client's own round trip; "+
			"this transport can't stop a key at its first failure (KeepsKeyOrder), so the next message waits for the one before", perCall, took, trip)
	}
	return g
}

// frontGroup has messages in front that can't go. They are moved out of the way
// once, which takes about two seconds of the database's time: the fewer messages
// are timed, the more it weighs. So this group times twice as many as the others.
func frontGroup(to target) group {
	g := group{name: to.name + "/front", to: to, times: 2,
		about: fmt.Sprintf("%d messages of a paused topic, or %d behind a blocked key, in front", front, behind),
		subjects: []subject{
			plain(to),
			{name: "paused topic", run: outward{to: to, paused: true}.run},
			{name: "blocked key", run: outward{to: to, blocked: true}.run},
		},
		promises: []promise{{a: "paused topic", b: "Outward"}, {a: "blocked key", b: "Outward"}},
	}
	// It is promised for RabbitMQ. Where nothing but the database is at work, its time
	// is all there is, and whatever it does besides shows.
	if to.name == toRabbitMQ.name {
		for i := range g.promises {
			g.promises[i].least = .75
		}
	}
	return g
}

func snapshotGroup(to target) group {
	g := group{name: to.name + "/snapshot", about: "a transaction elsewhere holds an old snapshot", to: to,
		subjects: []subject{plain(to), {name: "snapshot", run: outward{to: to, snapshot: true}.run}},
		promises: []promise{{a: "snapshot", b: "Outward"}},
	}
	if to.name == toNull.name {
		g.subjects = append(g.subjects, subject{name: "A1, snapshot", run: loop{design: designA1, to: to, snapshot: true}.run})
		g.promises = append(g.promises, promise{a: "snapshot", b: "A1, snapshot", least: .6})
	}
	return g
}

func archiveGroup(to target) group {
	return group{name: to.name + "/archive", about: "published messages are kept, whole or without payload and headers", to: to,
		subjects: []subject{
			plain(to),
			{name: "72 h", run: outward{to: to, retention: keep}.run},
			{name: "72 h, metadata", run: outward{to: to, retention: keep, metadata: true}.run},
		},
		promises: []promise{{a: "72 h", b: "Outward"}, {a: "72 h, metadata", b: "Outward"}},
	}
}

func steadyGroup(to target) group {
	return group{name: to.name + "/steady", to: to,
		about: fmt.Sprintf("%d commits a second, latency from commit to acknowledgement; WAL and CPU include the producers'", commitsPerSecond),
		subjects: []subject{
			{name: "signal in the process", run: steady{to, bySignal}.run},
			{name: "NOTIFY after the commit", run: steady{to, byNotify}.run},
			{name: "polling", run: steady{to, byPolling}.run},
		},
		promises: []promise{
			{a: "signal in the process", p50: 5 * time.Millisecond},
			{a: "NOTIFY after the commit", p50: 5 * time.Millisecond},
		},
	}
}
