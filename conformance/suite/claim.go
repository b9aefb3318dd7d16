package suite

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outward-dev/outward/engine"
)

func claimClauses() []Clause {
	return []Clause{
		clause("store.claim.exclusive", "However many claim at once, no two hold the same message while their leases live, and each goes exactly once.", func(b *bench) {
			ctx, cancel := context.WithTimeout(b.Context(), patience)
			defer cancel()
			want := b.loose(200)
			for k := range 20 {
				want = append(want, b.bulk(fmt.Sprint("key ", k), 10)...)
			}
			var (
				mu      sync.Mutex
				claimed = map[engine.ID]int{}
				wg      sync.WaitGroup
			)
			total := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(claimed)
			}
			var first sync.WaitGroup // nobody settles before all have claimed once
			first.Add(8)
			for range 8 {
				st := b.s.Open(b.T)
				wg.Go(func() {
					met := sync.OnceFunc(func() {
						first.Done()
						first.Wait()
					})
					defer met()
					// Another's claim may have every lane just now, so an empty one is no end.
					for ctx.Err() == nil {
						cs, err := claimWithin(b.Context(), st, 15, true)
						if err != nil {
							b.Errorf("Claim: %v", err)
							return
						}
						mu.Lock()
						for _, c := range cs {
							claimed[c.ID]++
						}
						mu.Unlock()
						met()
						if len(cs) > 15 {
							b.Errorf("a claim with limit 15 returned %d", len(cs))
						}
						if len(cs) > 0 {
							if lost, err := st.Settle(b.Context(), each(engine.MarkPublished, cs)...); err != nil || len(lost) > 0 {
								b.Errorf("Settle: %d lost, error %v", len(lost), err)
							}
						} else if total() == len(want) {
							return
						}
					}
				})
			}
			wg.Wait()
			for _, id := range want {
				if claimed[id] != 1 {
					b.Fatalf("message %v was claimed %d times", id, claimed[id])
				}
			}
			b.gone(want...)
		}),

		clause("store.claim.limit", "A claim never returns more than its limit, and messages without a key are not held up by that.", func(b *bench) {
			ids := append(b.loose(30), b.run("k", 10)...)
			w := b.worker()
			var got []engine.ID
			for len(got) < len(ids) {
				cs := w.claim(3) // checks the limit
				if len(cs) == 0 {
					b.Fatalf("%d of %d messages came, then none", len(got), len(ids))
				}
				w.publish(cs...)
				got = append(got, idsOf(cs)...)
			}
			w.none()
		}),

		clause("store.claim.sorted", "A claim returns its messages in the order of their Seq.", func(b *bench) {
			for range 5 {
				for k := range 12 {
					b.enqueue(message(fmt.Sprint("key ", k)), message(""))
				}
			}
			w := b.worker()
			for n := 0; n < 120; {
				cs := w.claim(50)
				if len(cs) == 0 {
					b.Fatalf("%d of 120 messages came, then none", n)
				}
				if !slices.IsSortedFunc(cs, func(a, b engine.Claimed) int { return int(a.Receipt.Seq - b.Receipt.Seq) }) {
					b.Fatalf("a claim came in the order %v", receipts(cs))
				}
				w.publish(cs...)
				n += len(cs)
			}
		}),

		clause("store.claim.empty", "An empty claim means that nothing may go: while something may, some comes, whatever lies in front of it.", func(b *bench) {
			w := b.worker()
			blocked := b.run("blocked", 1)
			w.settle(bury(w.take(blocked...)[0]))
			b.bulk("blocked", 60)
			m := message("")
			m.Delay = time.Hour
			b.enqueue(slices.Repeat([]engine.Message{m}, 60)...)
			b.enqueue(slices.Repeat([]engine.Message{onTopic("paused", "")}, 60)...)
			want := b.bulk("free", 20)
			for n := 0; n < len(want); {
				cs := w.ask(engine.ClaimRequest{Limit: 2, Idle: true, Paused: []string{"paused"}})
				if len(cs) == 0 {
					b.Fatalf("%d of %d messages came, then an empty claim", n, len(want))
				}
				w.same(cs, want[n:n+len(cs)])
				w.publish(cs...)
				n += len(cs)
			}
		}),

		clause("store.claim.failing", "A claim says how often a message was charged and for how long it has been failing, by the database's clock.", func(b *bench) {
			ids := b.run("k", 1)
			w := b.worker()
			uncharged := engine.RescheduleOptions{HoldKey: true}
			w.settle(engine.Reschedule(w.take(ids...)[0].Receipt, 0, refused, uncharged))
			c := w.take(ids...)[0]
			if c.Attempts != 0 || c.FailingFor != 0 {
				b.Fatalf("never charged, but %d attempts, failing for %v", c.Attempts, c.FailingFor)
			}
			w.settle(retry(c, 0))
			b.pass(time.Hour)
			c = w.take(ids...)[0]
			w.settle(retry(c, 0))
			b.pass(time.Hour)
			c = w.take(ids...)[0]
			if c.Attempts != 2 || c.FailingFor < 2*time.Hour || c.FailingFor > 2*time.Hour+lease {
				b.Fatalf("charged twice, the first time two hours ago, but %d attempts, failing for %v", c.Attempts, c.FailingFor)
			}
		}),

		clause("store.claim.frees_empty", "A claim that hands out nothing of a lane leaves it free for the next claimer.", func(b *bench) {
			ids := b.run("k", 1)
			a := b.worker()
			a.take(ids...)
			b.expire()
			// The message is a suspect now, which a busy process may look at and not have.
			if cs := a.ask(engine.ClaimRequest{}); len(cs) > 0 {
				b.Fatalf("a claim that was not idle returned %d suspects", len(cs))
			}
			b.worker().take(ids...)
		}),

		clause("store.claim.frees_cut", "Lanes whose messages the limit cut off are free for the next claimer.", func(b *bench) {
			ids := b.loose(40)
			w := b.worker()
			for n := range ids {
				cs := w.claim(1)
				if len(cs) != 1 {
					b.Fatalf("%d of %d messages came one by one, then none", n, len(ids))
				}
				w.publish(cs...)
			}
		}),

		clause("store.claim.freed", "When every message of a claim is answered, in whatever way, its lanes are free at once.", func(b *bench) {
			w := b.worker()
			for _, answer := range []func(engine.Claimed) engine.Settlement{published, retryAnHour, buryPassing, release, detach} {
				ids := b.run("k", 3)
				cs := w.claim(2)
				w.same(cs, ids[:2])
				w.settle(published(cs[0]))
				w.settle(answer(cs[1]))
				// Of the lane that was just answered for there is some among so many.
				others := b.loose(400)
				got := map[engine.ID]bool{}
				other := b.worker()
				for empty := 0; empty < 2; {
					cs := other.claim(200)
					if len(cs) == 0 {
						empty++
					}
					for _, c := range cs {
						got[c.ID] = true
					}
					other.publish(cs...)
				}
				for _, id := range others {
					if !got[id] {
						b.Fatalf("after the last answer, %s, some of 400 other messages could not be claimed", answer(cs[1]).Kind)
					}
				}
				b.expire()
				w.drain()
				b.pass(2 * time.Hour)
				w.drain()
			}
		}),

		clause("store.claim.unanswered", "As long as one message of a claim is unanswered its lanes stay taken.", func(b *bench) {
			ids := b.run("k", 4)
			a, other := b.worker(), b.worker()
			cs := a.claim(3)
			a.same(cs, ids[:3])
			a.settle(published(cs[0]))
			other.none()
			a.settle(published(cs[1]))
			other.none()
			a.settle(published(cs[2]))
			other.next(ids[3])
		}),

		clause("store.claim.snapshot", "Claims under a snapshot that somebody holds open return nothing twice.", func(b *bench) {
			ids := append(b.bulk("k", 20), b.loose(40)...)
			defer b.s.HoldSnapshot(b.T)()
			ids = append(ids, b.loose(20)...)
			a, other := b.worker(), b.worker()
			seen := map[engine.ID]bool{}
			for empty := 0; empty < 6; {
				cs := a.claim(7)
				if len(cs) == 0 {
					empty++
				}
				for _, c := range cs {
					if seen[c.ID] {
						b.Fatalf("message %v was claimed twice", c.ID)
					}
					seen[c.ID] = true
				}
				a.publish(cs...)
				a, other = other, a
			}
			if len(seen) != len(ids) {
				b.Fatalf("%d of %d messages came", len(seen), len(ids))
			}
		}, needSnapshot),

		clause("store.claim.receipts", "Every message of every claim has a receipt of its own.", func(b *bench) {
			ids := b.run("k", 5)
			w := b.worker()
			seen := map[engine.Receipt]bool{}
			for range 4 {
				cs := w.take(ids...)
				for _, c := range cs {
					if seen[c.Receipt] {
						b.Fatalf("receipt %v was given before", c.Receipt)
					}
					seen[c.Receipt] = true
				}
				w.settle(each(engine.Release, cs)...)
			}
		}),
	}
}

func retryAnHour(c engine.Claimed) engine.Settlement { return retryPassing(c, time.Hour) }
