package suite

import (
	"time"

	"github.com/outward-dev/outward/engine"
)

// answers are the ways in which a worker can answer for a message.
var answers = []struct {
	name string
	of   func(engine.Claimed) engine.Settlement
}{
	{"published", published},
	{"retried", func(c engine.Claimed) engine.Settlement { return retry(c, 0) }},
	{"buried", bury},
	{"released", release},
	{"detached", detach},
}

// untouched checks that a message is where its new holder has it.
func (b *bench) untouched(ids ...engine.ID) {
	b.Helper()
	for _, id := range ids {
		if row := b.row(id); row.State != Ready || row.Attempts != 0 || row.Crashes != 0 || row.LastError != "" {
			b.Fatalf("a late worker left message %v %s with %d attempts, %d crashes and the error %q",
				id, row.State, row.Attempts, row.Crashes, row.LastError)
		}
	}
}

func fenceClauses() []Clause {
	var clauses []Clause
	for _, answer := range answers {
		clauses = append(clauses, clause("store.fence."+answer.name,
			"A worker whose lease was taken over is told so and changes nothing when it says "+answer.name+".", func(b *bench) {
				ids := b.run("k", 3)
				late, holder := b.worker(), b.worker()
				cs := late.take(ids[:2]...)
				b.expire()
				now := holder.next(ids[0])
				late.late(answer.of(cs[0]), answer.of(cs[1]))
				b.untouched(ids...)
				b.worker().none()
				holder.publish(now...)
				late.late(answer.of(cs[0]))
				holder.publish(holder.next(ids[1])...)
				holder.publish(holder.next(ids[2])...)
				b.gone(ids...)
			}))
	}
	return append(clauses,
		clause("store.fence.extend", "A worker whose lease was taken over is told so when it extends, and does not prolong its successor's lease.", func(b *bench) {
			ids := b.run("k", 2)
			late, holder := b.worker(), b.worker()
			cs := late.take(ids...)
			b.expire()
			holder.next(ids[0])
			lost, err := late.Extend(b.Context(), receipts(cs), time.Hour)
			if err != nil {
				b.Fatalf("Extend: %v", err)
			}
			if !sameReceipts(lost, receipts(cs)) {
				b.Fatalf("Extend of two lost leases reports %d lost", len(lost))
			}
			b.expire()
			b.worker().next(ids[0])
		}),

		// ThreeDotsLabs/watermill, SQL subscriber: after an outage longer than the lease the old
		// holder's mark still counted, and messages were lost.
		clause("store.fence.after_success", "A late worker stays fenced after its successor has published the message.", func(b *bench) {
			ids := b.run("k", 2)
			late, holder := b.worker(), b.worker()
			cs := late.take(ids[0])
			b.expire()
			holder.publish(holder.next(ids[0])...)
			next := holder.next(ids[1])
			for _, answer := range answers {
				late.late(answer.of(cs[0]))
			}
			b.gone(ids[0])
			holder.publish(next...)
		}),

		clause("store.fence.forged", "A receipt of no claim changes nothing.", func(b *bench) {
			ids := b.run("k", 1)
			w := b.worker()
			c := w.take(ids...)[0]
			for _, token := range []engine.ID{{}, engine.NewID()} {
				forged := c
				forged.Receipt.Token = token
				for _, answer := range answers {
					w.late(answer.of(forged))
				}
			}
			b.untouched(ids...)
			w.publish(c)
		}),

		clause("store.settle.mixed", "Of settlements of which some leases are lost, exactly those are reported, and the others take effect.", func(b *bench) {
			a, other := b.worker(), b.worker()
			lose, keep := a.two()
			a.extend(time.Hour, keep)
			b.expire()
			b.takenOver(other, lose)
			lost, err := a.Settle(b.Context(), published(lose), published(keep))
			if err != nil {
				b.Fatalf("Settle: %v", err)
			}
			if !sameReceipts(lost, receipts([]engine.Claimed{lose})) {
				b.Fatalf("one of two leases was lost, Settle reports %v", lost)
			}
			b.gone(keep.ID)
			b.is(Ready, lose.ID)
		}),
	)
}
