package suite

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outward-dev/outward/engine"
)

var (
	anna  = engine.Actor{Name: "anna", Reason: "a test of the suite"}
	relay = engine.Actor{Name: "relay 1", Reason: "a test of the suite", Relay: true}
)

// pause pauses a destination.
func (b *bench) pause(w *worker, destination string, by engine.Actor) {
	b.Helper()
	p := engine.Pause{Destination: destination, By: by, Class: engine.DestinationFailed, ProbeAfter: time.Minute}
	if err := w.operator().Pause(b.Context(), p); err != nil {
		b.Fatalf("Pause: %v", err)
	}
}

// resume ends a pause, or must not.
func (b *bench) resume(w *worker, destination string, by engine.Actor, want bool) {
	b.Helper()
	did, err := w.operator().Resume(b.Context(), destination, by)
	if err != nil {
		b.Fatalf("Resume: %v", err)
	}
	if did != want {
		b.Fatalf("Resume of %q by %q says %v, want %v", destination, by.Name, did, want)
	}
}

// pauses returns the pauses in force.
func (b *bench) pauses(w *worker) []engine.Pause {
	b.Helper()
	ps, err := w.operator().Pauses(b.Context())
	if err != nil {
		b.Fatalf("Pauses: %v", err)
	}
	return ps
}

// clear claims with topic "ill" paused for destination "sick" until nothing comes,
// publishes what does, and returns it.
func (w *worker) clear() []engine.Claimed {
	w.Helper()
	var out []engine.Claimed
	for empty := 0; empty < 3; {
		cs := w.ask(engine.ClaimRequest{Idle: true, Paused: []string{"ill"}, PausedFor: map[string]string{"ill": "sick"}})
		if len(cs) == 0 {
			empty++
		}
		w.publish(cs...)
		out = append(out, cs...)
	}
	return out
}

func pauseClauses() []Clause {
	return []Clause{
		clause("store.pause.parked", "Messages of a paused topic are parked for the pause, with or without a key, and the others go.", func(b *bench) {
			w := b.worker()
			b.pause(w, "sick", relay)
			ill := b.enqueue(onTopic("ill", ""), onTopic("ill", "k"), onTopic("ill", "k"), onTopic("ill", ""))
			well := b.enqueue(onTopic("well", ""), onTopic("well", "j"))
			got := idsOf(w.clear())
			slices.SortFunc(got, engine.ID.Compare)
			slices.SortFunc(well, engine.ID.Compare)
			if !slices.Equal(got, well) {
				b.Fatalf("%d messages went while a topic was paused, want %d", len(got), len(well))
			}
			for _, id := range []engine.ID{ill[0], ill[1], ill[3]} { // the other is behind its key
				if row := b.row(id); row.State != Waiting || row.PausedFor != "sick" || row.Attempts != 0 {
					b.Fatalf("a message of a paused topic is %s, paused for %q, with %d attempts", row.State, row.PausedFor, row.Attempts)
				}
			}
			b.pass(300 * 24 * time.Hour)
			w.none()
		}, needOperator),

		clause("store.pause.own_name", "A paused topic without a named pause is paused under its own name.", func(b *bench) {
			w := b.worker()
			b.pause(w, "ill", relay)
			ids := b.enqueue(onTopic("ill", ""))
			if cs := w.ask(engine.ClaimRequest{Idle: true, Paused: []string{"ill"}}); len(cs) > 0 {
				b.Fatalf("claimed %d messages of a paused topic", len(cs))
			}
			if row := b.row(ids[0]); row.State != Waiting || row.PausedFor != "ill" {
				b.Fatalf("a message of a paused topic is %s, paused for %q", row.State, row.PausedFor)
			}
			b.resume(w, "ill", relay, true)
			w.drained(ids)
		}, needOperator),

		clause("store.pause.resumed", "When a pause ends everything that was parked for it goes, each key in its order.", func(b *bench) {
			w := b.worker()
			b.pause(w, "sick", anna)
			var want []engine.ID
			before := map[engine.ID]engine.ID{}
			for k := range 5 {
				key := fmt.Sprint("key ", k)
				for i := range 6 {
					id := b.enqueue(onTopic("ill", key))[0]
					if want = append(want, id); i > 0 {
						before[id] = want[len(want)-2]
					}
				}
			}
			want = append(want, b.enqueue(slices.Repeat([]engine.Message{onTopic("ill", "")}, 30)...)...)
			if cs := w.clear(); len(cs) > 0 {
				b.Fatalf("%d messages of a paused topic went", len(cs))
			}
			b.resume(w, "sick", anna, true)
			seen := map[engine.ID]bool{}
			for _, c := range w.drained(want) {
				if p, some := before[c.ID]; some && !seen[p] {
					b.Fatalf("message %v of key %q went before its predecessor", c.ID, c.Key)
				}
				seen[c.ID] = true
				if c.Company > 0 || c.Attempts > 0 {
					b.Fatalf("a message that was parked comes with company %d and %d attempts", c.Company, c.Attempts)
				}
			}
		}, needOperator),

		clause("store.pause.two_topics", "A key over two topics of which one is paused keeps its order.", func(b *bench) {
			w := b.worker()
			b.pause(w, "sick", anna)
			ids := b.enqueue(onTopic("well", "k"))
			ids = append(ids, b.enqueue(onTopic("ill", "k"))...)
			ids = append(ids, b.enqueue(onTopic("well", "k"))...)
			ids = append(ids, b.enqueue(onTopic("ill", "k"))...)
			ids = append(ids, b.enqueue(onTopic("well", "k"))...)
			w.same(w.clear(), ids[:1])
			more := b.enqueue(onTopic("well", "k"))
			w.same(w.clear(), nil)
			b.resume(w, "sick", anna, true)
			w.same(w.drain(), append(ids[1:], more...))
		}, needOperator),

		clause("store.pause.reschedule", "A message rescheduled for the end of a pause goes then, at no earlier time and uncharged, and keeps its place.", func(b *bench) {
			w := b.worker()
			b.pause(w, "sick", relay)
			ids := b.run("k", 3)
			cs := w.take(ids...)
			f := engine.Fault{Class: engine.DestinationFailed, Code: "404"}
			w.settle(engine.Reschedule(cs[0].Receipt, 0, f, engine.RescheduleOptions{HoldKey: true, PausedFor: "sick"}),
				release(cs[1]), release(cs[2]))
			if row := b.row(ids[0]); row.State != Waiting || row.PausedFor != "sick" || row.Attempts != 0 || row.Failing {
				b.Fatalf("parked, it is %s, paused for %q, with %d attempts", row.State, row.PausedFor, row.Attempts)
			}
			b.pass(300 * 24 * time.Hour)
			w.none()
			b.resume(w, "sick", relay, true)
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1:]...)...)
		}, needOperator),

		clause("store.pause.ended_before", "A message that is parked for a pause that has ended meanwhile goes all the same.", func(b *bench) {
			w := b.worker()
			b.pause(w, "sick", relay)
			ids := b.run("k", 1)
			cs := w.take(ids...)
			b.resume(w, "sick", relay, true)
			w.settle(engine.Reschedule(cs[0].Receipt, 0, refused, engine.RescheduleOptions{HoldKey: true, PausedFor: "sick"}))
			w.drained(ids)
		}, needOperator),

		clause("store.pause.only_its_own", "The end of one pause releases nothing that another keeps.", func(b *bench) {
			w := b.worker()
			b.pause(w, "sick", anna)
			b.pause(w, "other", anna)
			ids := b.enqueue(onTopic("ill", ""), onTopic("bad", ""))
			ask := engine.ClaimRequest{Idle: true, Paused: []string{"ill", "bad"}, PausedFor: map[string]string{"ill": "sick", "bad": "other"}}
			for range 2 {
				if cs := w.ask(ask); len(cs) > 0 {
					b.Fatalf("claimed %d messages of paused topics", len(cs))
				}
			}
			b.resume(w, "sick", anna, true)
			w.drained(ids[:1])
			b.is(Waiting, ids[1])
		}, needOperator),

		clause("store.pause.precedence", "An operator's pause replaces a relay's; a relay neither replaces nor lifts an operator's.", func(b *bench) {
			w := b.worker()
			by := func(want engine.Actor) {
				b.Helper()
				if ps := b.pauses(w); len(ps) != 1 || ps[0].By != want || ps[0].Destination != "sick" {
					b.Fatalf("pauses in force: %+v; want one of sick by %+v", ps, want)
				}
			}
			b.resume(w, "sick", anna, false)
			b.pause(w, "sick", relay)
			by(relay)
			b.pause(w, "sick", anna)
			by(anna)
			b.pause(w, "sick", relay)
			by(anna)
			b.resume(w, "sick", relay, false)
			by(anna)
			b.resume(w, "sick", anna, true)
			if ps := b.pauses(w); len(ps) != 0 {
				b.Fatalf("pauses in force after the last ended: %+v", ps)
			}
			b.pause(w, "sick", relay)
			b.resume(w, "sick", anna, true)
		}, needOperator),

		clause("store.pause.listed", "Pauses lists who paused what, why, for how long, and when a relay's pause is probed.", func(b *bench) {
			a, other := b.worker(), b.worker()
			b.pause(a, "sick", relay)
			b.pause(a, "by hand", anna)
			b.pass(time.Hour)
			ps := b.pauses(other)
			if len(ps) != 2 {
				b.Fatalf("%d pauses are listed, want 2", len(ps))
			}
			for _, p := range ps {
				want := map[string]engine.Actor{"sick": relay, "by hand": anna}[p.Destination]
				if p.By != want {
					b.Errorf("the pause of %q is by %+v, want %+v", p.Destination, p.By, want)
				}
				if p.For < time.Hour || p.For > time.Hour+lease {
					b.Errorf("the pause of %q lasts %v, want an hour", p.Destination, p.For)
				}
				if p.By.Relay && (p.Class != engine.DestinationFailed || p.ProbeIn > -50*time.Minute || p.ProbeIn < -time.Hour) {
					b.Errorf("the relay's pause has class %v and is probed in %v, want destination_failed and -59m", p.Class, p.ProbeIn)
				}
			}
		}, needOperator),

		clause("store.pause.probe", "Of all that ask when a probe is due exactly one is told to probe, and nobody before or after.", func(b *bench) {
			w := b.worker()
			take := func() int {
				var took atomic.Int64
				var wg sync.WaitGroup
				for range 6 {
					op := b.s.Open(b.T).(engine.Operator)
					wg.Go(func() {
						ok, err := op.TakeProbe(b.Context(), "sick", 10*time.Minute)
						if err != nil {
							b.Errorf("TakeProbe: %v", err)
						}
						if ok {
							took.Add(1)
						}
					})
				}
				wg.Wait()
				return int(took.Load())
			}
			want := func(n int, when string) {
				b.Helper()
				if got := take(); got != n {
					b.Fatalf("%d were told to probe %s, want %d", got, when, n)
				}
			}
			want(0, "without a pause")
			b.pause(w, "sick", relay) // first probe after a minute
			want(0, "before the probe was due")
			b.pass(2 * time.Minute)
			want(1, "when the probe was due")
			b.pass(5 * time.Minute)
			want(0, "before the next probe was due")
			b.pass(6 * time.Minute)
			want(1, "when the next probe was due")
			b.pause(w, "sick", anna)
			b.pass(time.Hour)
			want(0, "while an operator's pause was in force")
		}, needOperator),
	}
}
