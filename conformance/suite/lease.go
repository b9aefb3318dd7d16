package suite

import (
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

// two makes two claims of one message each, which can't share a lane.
func (w *worker) two() (first, second engine.Claimed) {
	w.Helper()
	w.loose(20)
	return w.one(), w.one()
}

func leaseClauses() []Clause {
	return []Clause{
		// riverqueue/river#1258: rows stuck as running for months, because expiry was a leader's
		// sweep. It belongs in the claim.
		clause("store.lease.takeover", "A lease that ran out by the database's clock is taken over by the next claim, and not before.", func(b *bench) {
			ids := b.run("k", 1)
			a, other := b.worker(), b.worker()
			a.take(ids...)
			other.none()
			b.pass(lease / 2)
			other.none()
			b.pass(lease/2 + time.Second)
			cs := other.take(ids...)
			other.publish(cs...)
			b.gone(ids...)
		}),

		// pipeshub-ai/pipeshub-ai#3445: two workers took over the same lease.
		clause("store.lease.taken_once", "Of several processes that meet a lease which ran out, one takes it over.", func(b *bench) {
			ids := append(b.run("k", 1), b.loose(20)...)
			b.worker().take(ids...)
			b.expire()
			var (
				mu   sync.Mutex
				took = map[engine.ID]int{}
				wg   sync.WaitGroup
			)
			for range 6 {
				st := b.s.Open(b.T)
				wg.Go(func() {
					for range 10 { // and nobody answers, so each lane is taken once
						cs, err := claimWithin(b.Context(), st, 5, true)
						if err != nil {
							b.Errorf("Claim: %v", err)
							return
						}
						mu.Lock()
						for _, c := range cs {
							took[c.ID]++
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if len(took) == 0 {
				b.Fatalf("nobody took over any of %d messages", len(ids))
			}
			for id, n := range took {
				if n > 1 {
					b.Fatalf("message %v was taken over by %d claims", id, n)
				}
			}
		}),

		clause("store.lease.own_claims", "A process does not get again what it has in hand itself.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			w.same(w.claim(1), ids[:1])
			w.none()
		}),

		clause("store.lease.late", "A worker that is late still settles what nobody took over.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			cs := w.take(ids...)
			b.expire()
			w.settle(published(cs[0]), retry(cs[1], time.Hour))
			b.gone(ids[0])
			if row := b.row(ids[1]); row.State != Waiting || row.Attempts != 1 {
				b.Fatalf("after a late retry the message is %s with %d attempts", row.State, row.Attempts)
			}
		}),

		clause("store.lease.revived", "An extend that comes late revives a lease that ran out and that nobody took.", func(b *bench) {
			ids := b.run("k", 1)
			a, other := b.worker(), b.worker()
			cs := a.take(ids...)
			b.expire()
			a.extend(lease, cs...)
			other.none()
			a.publish(cs...)
			b.gone(ids...)
		}),

		clause("store.lease.freed_stays_free", "An extend never revives a lane that was freed, not by a receipt that was answered before.", func(b *bench) {
			ids := b.run("k", 2)
			a, other := b.worker(), b.worker()
			cs := a.take(ids...)
			a.settle(published(cs[0]), release(cs[1]))
			if _, err := a.Extend(b.Context(), receipts(cs), lease); err != nil {
				b.Fatalf("Extend: %v", err)
			}
			other.next(ids[1])
		}),

		// dotnetcore/CAP#1353: a renewal that added to the old deadline drifted years ahead.
		clause("store.extend.from_now", "Extend sets a lease to the database's now plus its length, however often it is called.", func(b *bench) {
			ids := b.run("k", 1)
			a, other := b.worker(), b.worker()
			cs := a.take(ids...)
			for range 10 {
				a.extend(lease, cs...)
			}
			b.pass(lease - 10*time.Second)
			a.extend(lease, cs...)
			b.pass(lease - 10*time.Second)
			other.none()
			b.pass(20 * time.Second)
			other.take(ids...)
		}),

		clause("store.extend.shorter", "Extend may also bring the end of a lease nearer.", func(b *bench) {
			ids := b.run("k", 1)
			a, other := b.worker(), b.worker()
			cs := a.ask(engine.ClaimRequest{Lease: time.Hour, Idle: true})
			a.same(cs, ids)
			a.extend(lease, cs...)
			b.expire()
			other.take(ids...)
		}),

		clause("store.extend.mixed", "Extend reports exactly the leases that were lost, and extends the others.", func(b *bench) {
			a, other := b.worker(), b.worker()
			lose, keep := a.two()
			a.extend(time.Hour, keep)
			b.expire()
			b.takenOver(other, lose)
			lost, err := a.Extend(b.Context(), receipts([]engine.Claimed{lose, keep}), 2*time.Hour)
			if err != nil {
				b.Fatalf("Extend: %v", err)
			}
			if !sameReceipts(lost, receipts([]engine.Claimed{lose})) {
				b.Fatalf("one of two leases was lost, Extend reports %v", lost)
			}
			b.pass(90 * time.Minute)
			for range 30 {
				for _, c := range other.claim(1) {
					if c.ID == keep.ID {
						b.Fatalf("a message whose lease was extended is claimed by another")
					}
					other.publish(c)
				}
			}
			a.publish(keep)
		}),

		clause("store.extend.none", "Extend and Settle of nothing do nothing.", func(b *bench) {
			w := b.worker()
			w.extend(lease)
			if lost, err := w.Settle(b.Context()); err != nil || len(lost) > 0 {
				b.Fatalf("Settle of nothing: %d lost, error %v", len(lost), err)
			}
		}),
	}
}

// takenOver lets other claim until it has the message behind c.
func (b *bench) takenOver(other *worker, c engine.Claimed) engine.Claimed {
	b.Helper()
	for range 100 {
		for _, got := range other.claim(1) {
			if got.ID == c.ID {
				return got
			}
			other.publish(got)
		}
	}
	b.Fatalf("message %v never came to another worker", c.ID)
	return engine.Claimed{}
}
