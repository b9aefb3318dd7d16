package suite

import (
	"fmt"
	"time"

	"github.com/outward-dev/outward/engine"
)

func orderClauses() []Clause {
	return []Clause{
		clause("store.order.run", "A claim returns a run of a key without gaps, from its head on.", func(b *bench) {
			ids := b.run("k", 10)
			w := b.worker()
			for n := 0; n < len(ids); n += 4 {
				end := min(n+4, len(ids))
				cs := w.claim(4)
				w.same(cs, ids[n:end])
				w.publish(cs...)
			}
		}),

		clause("store.order.one_claim", "No two live claims hold messages of one key.", func(b *bench) {
			ids := b.run("k", 6)
			a, other := b.worker(), b.worker()
			cs := a.claim(2)
			a.same(cs, ids[:2])
			other.none()
			a.none()
			a.publish(cs[0])
			other.none()
			a.publish(cs[1])
			other.next(ids[2:]...)
			a.none()
		}),

		// dotnetcore/CAP#1480: a key went on after its first message had failed.
		clause("store.order.head_waiting", "A message that waits for a retry keeps back the later ones of its key, and nothing else.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(retry(cs[0], time.Hour), release(cs[1]), release(cs[2]))
			w.none()
			w.drained(append(b.loose(20), b.run("other", 3)...))
			b.pass(2 * time.Hour)
			w.publish(w.next(ids[0])...) // the head by itself
			w.publish(w.next(ids[1:]...)...)
		}),

		clause("store.order.head_retried", "The head of a key may fail again and again, and keeps its place.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			w.settle(retry(w.one(), time.Hour))
			for range 3 {
				w.none()
				b.pass(2 * time.Hour)
				w.settle(retry(w.next(ids[0])[0], time.Hour))
			}
			b.pass(2 * time.Hour)
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1:]...)...)
		}),

		clause("store.order.newcomers", "Messages that are enqueued behind a waiting or dead head wait like the others.", func(b *bench) {
			waits, dies := b.run("waits", 1), b.run("dies", 1)
			w := b.worker()
			for _, c := range w.take(waits[0], dies[0]) {
				if c.Key == "waits" {
					w.settle(retry(c, time.Hour))
				} else {
					w.settle(bury(c))
				}
			}
			waits, dies = append(waits, b.run("waits", 2)...), append(dies, b.run("dies", 2)...)
			w.none()
			more := b.run("waits", 1)
			w.none()
			b.pass(2 * time.Hour)
			w.publish(w.next(waits[0])...)
			w.publish(w.next(waits[1], waits[2], more[0])...)
			w.none()
			b.is(Held, dies[1:]...)
		}),

		clause("store.order.retry_passing", "A reschedule that does not hold its key lets the later messages go on.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			w.settle(retryPassing(w.one(), time.Hour))
			w.publish(w.next(ids[1:]...)...)
			b.pass(2 * time.Hour)
			w.publish(w.next(ids[0])...)
		}),

		clause("store.order.dead_holds", "A message that died holding its key keeps back the later ones until somebody acts.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(bury(cs[0]), release(cs[1]), release(cs[2]))
			w.none()
			b.pass(300 * 24 * time.Hour)
			w.none()
			w.drained(append(b.loose(20), b.run("other", 3)...))
		}),

		clause("store.order.dead_passes", "A message that died without holding its key releases the later ones, also those that waited for it.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			w.settle(retry(w.one(), time.Hour))
			w.none()
			b.is(Held, ids[1:]...)
			b.pass(2 * time.Hour)
			w.settle(buryPassing(w.next(ids[0])[0]))
			w.publish(w.next(ids[1:]...)...)
			b.is(Dead, ids[0])
		}),

		clause("store.order.two_failures", "Two messages of one key that both wait go in their order, whichever is due first.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(retry(cs[0], 2*time.Hour))
			w.settle(retry(cs[1], time.Hour), release(cs[2]))
			b.pass(90 * time.Minute)
			w.none()
			b.pass(time.Hour)
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1])...)
			w.publish(w.next(ids[2])...)
		}),

		clause("store.order.head_before_failure", "A message is held back by an earlier one of its key only, never by a later one that failed.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(retry(cs[0], time.Hour), bury(cs[1]), release(cs[2]))
			w.none()
			b.pass(2 * time.Hour)
			w.publish(w.next(ids[0])...)
			w.none()
			b.is(Dead, ids[1])
		}),

		clause("store.order.up_to_next", "What goes on when a head is gone ends before the next message that blocks the key.", func(b *bench) {
			ids := b.run("k", 5)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(retry(cs[0], time.Hour), release(cs[1]), bury(cs[2]), release(cs[3]), release(cs[4]))
			w.none()
			b.is(Held, ids[1], ids[3], ids[4])
			b.pass(2 * time.Hour)
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1])...)
			w.none()
			b.is(Held, ids[3:]...)
		}),

		clause("store.order.lone_head", "A head that failed before comes alone of its key, since what is behind it may be blocked yet.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			w.settle(retry(w.one(), 0))
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1:]...)...)
		}),

		// ThreeDotsLabs/watermill#311: a cursor over ids skipped what committed late.
		clause("store.order.late_commit", "A message with a lower number that commits late is not lost, whatever has gone or failed meanwhile.", func(b *bench) {
			w := b.worker()
			late := map[string]engine.ID{}
			tx := b.s.Begin(b.T)
			for _, key := range []string{"", "gone", "waits", "dead", "taken"} {
				ids, err := tx.Enqueue(b.Context(), message(key))
				if err != nil {
					b.Fatalf("Enqueue: %v", err)
				}
				late[key] = ids[0]
			}
			for _, key := range []string{"", "gone"} {
				w.drained(b.enqueue(message(key)))
			}
			w.settle(retry(w.take(b.run("waits", 1)...)[0], time.Hour))
			w.settle(bury(w.take(b.run("dead", 1)...)[0]))
			taken := w.take(b.run("taken", 1)...)
			b.commit(tx)
			w.publish(taken...)
			var want []engine.ID
			for _, id := range late {
				want = append(want, id)
			}
			w.drained(want)
		}),

		clause("store.order.release_gap", "A message that was released goes before those that were behind it.", func(b *bench) {
			ids := b.run("k", 4)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(published(cs[0]), release(cs[2]), release(cs[1]), release(cs[3]))
			w.publish(w.next(ids[1:]...)...)
		}),

		clause("store.order.takeover", "A run that is taken over starts at its head again.", func(b *bench) {
			ids := b.run("k", 6)
			a := b.worker()
			cs := a.claim(4)
			a.same(cs, ids[:4])
			a.publish(cs[0])
			b.expire()
			w := b.worker()
			cs = w.next(ids[1:3]...) // half of four
			w.publish(cs...)
			w.publish(w.next(ids[3:5]...)...)
			w.publish(w.next(ids[5])...)
		}),

		clause("store.order.hot_key", "One key that holds everything comes in order, to several claimers in turn.", func(b *bench) {
			ids := b.bulk("hot", 1000)
			ws := []*worker{b.worker(), b.worker()}
			for n := 0; n < len(ids); n += 100 {
				w := ws[n/100%2]
				cs := w.claim(100)
				w.same(cs, ids[n:n+100])
				w.publish(cs...)
			}
			ws[0].none()
		}),

		clause("store.order.flood", "A blocked key holds back thousands and releases them all, in order, when its head is gone.", func(b *bench) {
			head := b.run("k", 1)
			w := b.worker()
			w.settle(retry(w.take(head...)[0], time.Hour))
			// More than a dialect will move in one statement.
			ids := b.bulk("k", 10_500)
			for range 10 {
				if cs := w.claim(1000); len(cs) > 0 {
					b.Fatalf("claimed %d messages behind a waiting head", len(cs))
				}
			}
			b.is(Held, ids[0], ids[len(ids)-1])
			b.pass(2 * time.Hour)
			w.publish(w.next(head...)...)
			for n := 0; n < len(ids); {
				cs := w.claim(2000)
				if len(cs) == 0 {
					b.Fatalf("%d of %d messages came, then none", n, len(ids))
				}
				w.same(cs, ids[n:n+len(cs)])
				w.publish(cs...)
				n += len(cs)
			}
		}),

		clause("store.order.many_keys", "Of many keys every one keeps its order, whatever fails in others.", func(b *bench) {
			const keys, each = 60, 6
			var all [keys][]engine.ID
			for range each {
				var msgs []engine.Message
				for k := range keys {
					msgs = append(msgs, message(fmt.Sprint("key ", k)))
				}
				for k, id := range b.enqueue(msgs...) {
					all[k] = append(all[k], id)
				}
			}
			previous := map[engine.ID]engine.ID{} // what has to be gone before
			for k := range all {
				for i := range each - 1 {
					previous[all[k][i+1]] = all[k][i]
				}
			}
			w := b.worker()
			out, failed := map[engine.ID]bool{}, map[engine.ID]bool{}
			for empty := 0; len(out) < keys*each; {
				cs := w.claim(100)
				if len(cs) == 0 {
					if empty++; empty > 50 {
						b.Fatalf("%d of %d messages came, then none", len(out), keys*each)
					}
					b.pass(time.Minute)
					continue
				}
				var ss []engine.Settlement
				closed := map[string]bool{}
				for i, c := range cs {
					before, some := previous[c.ID]
					switch {
					case closed[c.Key]:
						ss = append(ss, release(c))
					case some && !out[before]:
						b.Fatalf("message %v came before its predecessor was gone", c.ID)
					case i%5 == 3 && !failed[c.ID]:
						failed[c.ID], closed[c.Key] = true, true
						ss = append(ss, retry(c, time.Second))
					default:
						out[c.ID] = true
						ss = append(ss, published(c))
					}
				}
				w.settle(ss...)
			}
		}),
	}
}
