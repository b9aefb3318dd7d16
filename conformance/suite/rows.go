package suite

import (
	"time"

	"github.com/outward-dev/outward/engine"
)

func rowClauses() []Clause {
	return []Clause{
		clause("store.bad_row.claimed", "A row that can't be decoded is claimed with Bad set and can be buried; no claim fails by it, and its neighbours go.", func(b *bench) {
			before := b.enqueue(onTopic("t", "k"))
			bad := b.s.Plant(b.T, "t", "k")
			after := b.enqueue(onTopic("t", "k"))
			w := b.worker()
			cs := w.take(before[0], bad, after[0])
			for i, c := range cs {
				if (c.Bad != nil) != (i == 1) {
					b.Fatalf("message %d of 3 has Bad %v; the second can't be decoded", i+1, c.Bad)
				}
			}
			if c := cs[1]; c.Topic != "t" || c.Key != "k" {
				b.Fatalf("of the bad row the topic %q and the key %q were read, want t and k", c.Topic, c.Key)
			}
			f := engine.Fault{Class: engine.Rejected, Code: engine.CodeBadRow, Err: cs[1].Bad}
			w.settle(published(cs[0]), engine.DeadLetter(cs[1].Receipt, false, f), published(cs[2]))
			b.is(Dead, bad)
			b.gone(before[0], after[0])
		}, needPlant),

		// oagudo/outbox: a session in another time zone delayed every message by hours.
		clause("store.delay.due", "A delayed message comes when the database's clock has reached its time, and not before.", func(b *bench) {
			w := b.worker()
			for _, key := range []string{"", "k"} {
				m := message(key)
				m.Delay = time.Hour
				ids := b.enqueue(m)
				w.none()
				b.pass(time.Hour - lease)
				w.none()
				b.pass(2 * lease)
				c := w.take(ids...)
				if c[0].Attempts != 0 || c[0].Company != 0 {
					b.Fatalf("a delayed message comes with %d attempts and company %d", c[0].Attempts, c[0].Company)
				}
				w.publish(c...)
			}
		}),

		clause("store.delay.holds_nothing", "A delayed message holds nothing back, and takes its place in its key when it is due.", func(b *bench) {
			m := message("k")
			m.Delay = time.Hour
			delayed := b.enqueue(m)
			now := b.run("k", 2)
			w := b.worker()
			w.publish(w.next(now...)...)
			later := b.run("k", 1)
			w.settle(retry(w.next(later...)[0], 2*time.Hour))
			b.pass(90 * time.Minute)
			w.publish(w.next(delayed...)...) // its number is lower than that of the one that failed
			b.pass(time.Hour)
			w.publish(w.next(later...)...)
		}),
	}
}
