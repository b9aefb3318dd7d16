package suite

import (
	"time"

	"github.com/outward-dev/outward/engine"
)

func detachClauses() []Clause {
	return []Clause{
		// gruelbox/transaction-outbox#788: one slow ordered key held up every flush.
		clause("store.detach.frees_lane", "A detached message leaves its lane to others and stays in the same hands, under the same receipt.", func(b *bench) {
			ids := b.run("k", 1)
			a, other := b.worker(), b.worker()
			c := a.take(ids...)[0]
			a.settle(detach(c))
			b.is(Waiting, ids...)
			other.drained(b.loose(300)) // some of them in its lane
			other.none()
			a.settle(published(c))
			b.gone(ids...)
			other.none()
		}),

		clause("store.detach.holds_key", "Later messages of a detached one's key wait for it, and nothing else does.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			c := w.one()
			w.settle(detach(c))
			w.none()
			ids = append(ids, b.run("k", 1)...)
			w.none()
			w.drained(b.run("other", 3))
			w.settle(published(c))
			w.publish(w.next(ids[1:]...)...)
		}),

		clause("store.detach.run", "A run of a key that is detached as a whole goes in order, and the rest waits for the last of it.", func(b *bench) {
			ids := b.run("k", 5)
			a, other := b.worker(), b.worker()
			cs := a.claim(3)
			a.same(cs, ids[:3])
			a.settle(detach(cs[0]), detach(cs[1]), detach(cs[2]))
			other.none()
			a.settle(published(cs[0]))
			other.none()
			a.settle(published(cs[1]))
			other.none()
			a.settle(published(cs[2]))
			other.next(ids[3:]...)
		}),

		clause("store.detach.part_of_run", "While one of a run is detached and another is not, the lane is not free for the key.", func(b *bench) {
			ids := b.run("k", 3)
			a, other := b.worker(), b.worker()
			cs := a.claim(2)
			a.same(cs, ids[:2])
			a.settle(detach(cs[0]))
			other.none()
			a.settle(published(cs[0]))
			other.none()
			a.settle(published(cs[1]))
			other.next(ids[2])
		}),

		clause("store.detach.answers", "A detached message can be answered in every way.", func(b *bench) {
			w := b.worker()
			for i, answer := range answers {
				ids := b.run(answer.name, 2)
				c := w.one()
				w.settle(detach(c))
				w.settle(answer.of(c))
				row := b.row(ids[0])
				want := []State{Absent, Waiting, Dead, Ready, Waiting}[i]
				if row.State != want && (want != Absent || row.State != Archived) {
					b.Fatalf("a detached message is %s after %s, want %s", row.State, answer.name, want)
				}
				if attempts := []int{0, 1, 0, 0, 0}[i]; row.Attempts != attempts && want != Absent {
					b.Fatalf("a detached message has %d attempts after %s, want %d", row.Attempts, answer.name, attempts)
				}
				switch answer.name {
				case "published":
					w.publish(w.next(ids[1])...)
				case "retried", "released":
					if c := w.next(ids[0])[0]; c.Company != 0 {
						b.Fatalf("a detached message that was %s comes as a suspect", answer.name)
					} else {
						w.publish(c)
					}
					w.publish(w.next(ids[1])...)
				case "buried":
					w.none()
					b.is(Held, ids[1])
				case "detached":
					w.none()
					w.settle(published(c))
					w.publish(w.next(ids[1])...)
				}
			}
		}),

		clause("store.detach.extend", "Extend renews a detached message from the database's now.", func(b *bench) {
			ids := b.run("k", 1)
			a, other := b.worker(), b.worker()
			c := a.take(ids...)[0]
			a.settle(detach(c))
			for range 5 {
				a.extend(lease, c)
			}
			b.pass(lease - 10*time.Second)
			a.extend(lease, c)
			b.pass(lease - 10*time.Second)
			other.none()
			b.pass(20 * time.Second)
			other.next(ids...)
		}),

		clause("store.detach.lease", "The lease of a detached message is its own, and runs from the detach.", func(b *bench) {
			ids := b.run("k", 1)
			a, other := b.worker(), b.worker()
			c := a.take(ids...)[0]
			b.pass(lease / 2)
			a.settle(engine.Detach(c.Receipt, time.Hour))
			b.expire()
			other.none()
			b.pass(time.Hour)
			other.next(ids...)
		}),

		clause("store.detach.expired", "A detached message whose lease ran out is a suspect that goes alone, with no crash counted.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			w.settle(each(func(r engine.Receipt) engine.Settlement { return engine.Detach(r, lease) }, w.take(ids...))...)
			b.expire()
			other := b.worker()
			if cs := other.ask(engine.ClaimRequest{}); len(cs) > 0 {
				b.Fatalf("a claim that was not idle returned %d messages of a dead process", len(cs))
			}
			for i := range ids {
				cs := other.next(ids[i])
				if c := cs[0]; c.Company != 1 || c.Crashes != 0 || c.Attempts != 0 {
					b.Fatalf("company %d, %d crashes, %d attempts; want company 1 and none", c.Company, c.Crashes, c.Attempts)
				}
				other.publish(cs...)
			}
		}),

		clause("store.detach.fence", "The old holder of a detached message whose lease ran out changes nothing once another has it.", func(b *bench) {
			ids := b.run("k", 2)
			late, holder := b.worker(), b.worker()
			c := late.one()
			late.settle(detach(c))
			b.expire()
			now := holder.next(ids[0])
			for _, answer := range answers {
				late.late(answer.of(c))
			}
			if lost, err := late.Extend(b.Context(), []engine.Receipt{c.Receipt}, time.Hour); err != nil || len(lost) != 1 {
				b.Fatalf("Extend of a lost message: %d lost, error %v", len(lost), err)
			}
			b.untouched(ids[0])
			holder.publish(now...)
			holder.publish(holder.next(ids[1])...)
			b.gone(ids...)
		}),

		clause("store.detach.promoted", "A message whose lease as a detached one ran out is charged by no late verdict, even before another has it.", func(b *bench) {
			ids := b.run("k", 2)
			a, other := b.worker(), b.worker()
			c := a.one()
			a.settle(detach(c))
			b.expire()
			if cs := other.ask(engine.ClaimRequest{}); len(cs) > 0 { // makes it ready, as a suspect
				b.Fatalf("a claim that was not idle returned %d messages of a dead process", len(cs))
			}
			for _, late := range []engine.Settlement{retry(c, time.Hour), bury(c)} {
				if _, err := a.Settle(b.Context(), late); err != nil {
					b.Fatalf("Settle: %v", err)
				}
			}
			b.untouched(ids[0])
			other.publish(other.next(ids[0])...)
			other.publish(other.next(ids[1])...)
		}),

		clause("store.detach.late", "A detached message whose lease ran out and that nobody took is settled by its holder.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			c := w.one()
			w.settle(detach(c))
			b.expire()
			w.settle(published(c))
			w.publish(w.next(ids[1])...)
			b.gone(ids...)
		}),

		clause("store.detach.lane_taken", "A detached message is settled while another process holds its lane, and disturbs nothing there.", func(b *bench) {
			ids := b.run("k", 3)
			a, other := b.worker(), b.worker()
			c := a.one()
			a.settle(detach(c))
			b.loose(300)
			var held []engine.Claimed
			for empty := 0; empty < 3; {
				cs := other.claim(200)
				if len(cs) == 0 {
					empty++
				}
				held = append(held, cs...)
			}
			a.settle(published(c))
			b.gone(ids[0])
			other.publish(held...)
			other.publish(other.next(ids[1:]...)...)
		}),

		clause("store.detach.order", "A detached message that fails keeps its place before the later ones of its key.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			cs := w.claim(2)
			w.same(cs, ids[:2])
			w.settle(detach(cs[0]), detach(cs[1]))
			w.settle(retry(cs[0], 2*time.Hour))
			w.settle(retry(cs[1], time.Hour))
			b.pass(90 * time.Minute)
			w.none()
			b.pass(time.Hour)
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1])...)
			w.publish(w.next(ids[2])...)
		}),
	}
}
