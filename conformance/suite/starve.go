package suite

import (
	"slices"
	"time"

	"github.com/outward-dev/outward/engine"
)

// soon claims and publishes what is in want, within a few claims of limit each.
func (w *worker) soon(want []engine.ID, limit, claims int, answer func(engine.Claimed) engine.Settlement) {
	w.Helper()
	open := map[engine.ID]bool{}
	for _, id := range want {
		open[id] = true
	}
	for range claims {
		var ss []engine.Settlement
		for _, c := range w.claim(limit) {
			if open[c.ID] {
				delete(open, c.ID)
				ss = append(ss, published(c))
			} else {
				ss = append(ss, answer(c))
			}
		}
		if len(ss) > 0 {
			w.settle(ss...)
		}
		if len(open) == 0 {
			return
		}
	}
	w.Fatalf("after %d claims with limit %d %d of %d messages have not come", claims, limit, len(open), len(want))
}

func starveClauses() []Clause {
	return []Clause{
		// timgit/pg-boss#756: one saturated group at the head of the queue starved the rest.
		clause("store.starve.blocked_key", "A blocked key with many messages behind it keeps nobody else waiting, and they leave the ready set.", func(b *bench) {
			head := b.run("blocked", 1)
			w := b.worker()
			w.settle(retry(w.take(head...)[0], time.Hour))
			behind := b.bulk("blocked", 600)
			others := append(b.loose(20), b.run("free", 5)...)
			w.soon(others, 10, 40, release)
			w.none()
			b.is(Held, behind[0], behind[300], behind[599])
		}),

		clause("store.starve.paused_topic", "A paused topic with many messages in front keeps nobody else waiting.", func(b *bench) {
			w := b.worker()
			b.pause(w, "sick", anna)
			ill := b.enqueue(slices.Repeat([]engine.Message{onTopic("ill", "")}, 600)...)
			ill = append(ill, b.enqueue(slices.Repeat([]engine.Message{onTopic("ill", "k")}, 100)...)...)
			well := b.loose(20)
			n := 0
			for range 100 {
				cs := w.ask(engine.ClaimRequest{Limit: 10, Idle: true, Paused: []string{"ill"}, PausedFor: map[string]string{"ill": "sick"}})
				n += len(cs)
				w.publish(cs...)
				if n == len(well) {
					break
				}
			}
			b.gone(well...)
			b.resume(w, "sick", anna, true)
			w.drained(ill)
		}, needOperator),

		// BrighterCommand/Brighter#2193: a hundred poison rows at the head stopped the sweep.
		clause("store.starve.poison", "A hundred messages at the head that fail every time keep nobody else waiting.", func(b *bench) {
			poison := b.loose(100)
			good := append(b.loose(40), b.run("k", 5)...)
			w := b.worker()
			w.soon(good, 10, 150, func(c engine.Claimed) engine.Settlement { return retry(c, time.Minute) })
			for _, id := range poison {
				if row := b.row(id); row.Attempts > 2 {
					b.Fatalf("a message that waits a minute after each failure has %d attempts at once", row.Attempts)
				}
			}
		}),

		clause("store.starve.suspects", "A hundred suspects at the head keep nobody else waiting, though they go one by one.", func(b *bench) {
			suspects := b.loose(100)
			for n := 0; n < 100; { // processes that die with one or some in hand
				cs := b.worker().claim(1000)
				if len(cs) == 0 {
					b.Fatalf("%d of 100 messages came, then none", n)
				}
				n += len(cs)
			}
			b.expire()
			good := b.loose(40)
			w := b.worker()
			seen := map[engine.ID]bool{}
			for range 60 { // a busy process: nothing is idle
				cs := w.ask(engine.ClaimRequest{Limit: 10})
				for _, c := range cs {
					seen[c.ID] = true
				}
				w.publish(cs...)
			}
			for _, id := range good {
				if !seen[id] {
					b.Fatalf("%d of 40 messages came while suspects waited", len(seen))
				}
			}
			w.drained(suspects)
		}),

		clause("store.starve.newcomers", "A message has its turn, however many new ones keep coming.", func(b *bench) {
			open := map[engine.ID]bool{}
			for _, id := range b.loose(150) {
				open[id] = true
			}
			w := b.worker()
			for range 70 {
				b.loose(8) // as many as go
				cs := w.claim(8)
				for _, c := range cs {
					delete(open, c.ID)
				}
				w.publish(cs...)
			}
			if len(open) > 0 {
				b.Fatalf("560 messages went, but not %d of the 150 that were there first", len(open))
			}
		}),
	}
}
