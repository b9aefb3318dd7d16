package suite

import (
	"time"

	"github.com/outward-dev/outward/engine"
)

// crash claims ids as a process that dies with them in hand, and lets the lease
// run out.
func (b *bench) crash(ids ...engine.ID) {
	b.Helper()
	b.worker().take(ids...)
	b.expire()
}

// uncharged checks that nothing was counted against messages.
func (b *bench) uncharged(ids ...engine.ID) {
	b.Helper()
	for _, id := range ids {
		if row := b.row(id); row.Attempts != 0 || row.Crashes != 0 || row.State == Dead {
			b.Fatalf("a bystander of a crash (%v) is %s with %d attempts and %d crashes", id, row.State, row.Attempts, row.Crashes)
		}
	}
}

func suspectClauses() []Clause {
	return []Clause{
		clause("store.suspect.company", "What a dead process had in hand goes again with half of its company, then half of that, and none is charged.", func(b *bench) {
			ids := b.run("k", 9)
			b.crash(ids...)
			for _, company := range []int{4, 2, 1} {
				w := b.worker()
				cs := w.claim(1000)
				w.same(cs, ids[:company])
				for _, c := range cs {
					if c.Company != company || c.Crashes != 0 || c.Attempts != 0 {
						b.Fatalf("company %d, %d crashes, %d attempts; want company %d and none", c.Company, c.Crashes, c.Attempts, company)
					}
				}
				b.expire()
			}
			b.uncharged(ids[1:]...)
		}),

		clause("store.suspect.whole_claim", "Company is half of what the whole claim had, in all its lanes.", func(b *bench) {
			b.loose(40)
			w := b.worker()
			had := w.claim(1000)
			if len(had) == 0 {
				b.Fatalf("of 40 messages none came")
			}
			b.expire()
			lost := map[engine.ID]bool{}
			for _, c := range had {
				lost[c.ID] = true
			}
			want := max(1, len(had)/2)
			for n := 0; n < len(had); {
				cs := w.claim(1000)
				if len(cs) == 0 {
					b.Fatalf("%d of %d suspects came again, then none", n, len(had))
				}
				for _, c := range cs {
					if lost[c.ID] {
						n++
						if c.Company != want || len(cs) > want {
							b.Fatalf("a suspect of a claim of %d comes with company %d in a claim of %d, want company %d", len(had), c.Company, len(cs), want)
						}
					}
				}
				w.publish(cs...)
			}
		}),

		// JasperFx/wolverine#3111: one message crashed its host again and again.
		clause("store.suspect.alone", "A crash is counted, apart from attempts, only for a message that was alone already.", func(b *bench) {
			ids := b.run("k", 2)
			b.crash(ids...)
			for crashes := range 4 {
				w := b.worker()
				cs := w.claim(1000)
				w.same(cs, ids[:1])
				if c := cs[0]; c.Company != 1 || c.Crashes != crashes || c.Attempts != 0 {
					b.Fatalf("company %d, %d crashes, %d attempts; want company 1, %d crashes, no attempts", c.Company, c.Crashes, c.Attempts, crashes)
				}
				b.expire()
			}
			b.uncharged(ids[1:]...)
		}),

		clause("store.suspect.alone_in_claim", "A suspect that must be alone is alone in its whole claim: no other suspect and no fresh message comes with it.", func(b *bench) {
			ids := b.loose(40)
			for range 6 { // six claims of one message each, so in six lanes
				if cs := b.worker().claim(1); len(cs) != 1 {
					b.Fatalf("a claim of one of 40 messages got %d", len(cs))
				}
			}
			b.expire()
			w := b.worker()
			suspects := 0
			for n := 0; n < len(ids); {
				cs := w.claim(1000)
				if len(cs) == 0 {
					b.Fatalf("%d of %d messages came, then none", n, len(ids))
				}
				for _, c := range cs {
					suspects += c.Company
					if c.Company > 0 && len(cs) > c.Company {
						b.Fatalf("a suspect with company %d comes in a claim of %d", c.Company, len(cs))
					}
				}
				w.publish(cs...)
				n += len(cs)
			}
			if suspects != 6 {
				b.Fatalf("six messages were in the hands of dead processes, %d came as suspects", suspects)
			}
			b.gone(ids...)
		}),

		clause("store.suspect.idle", "Suspects come only to an idle claim, and hold up nobody meanwhile.", func(b *bench) {
			ids := b.run("k", 2)
			b.crash(ids...)
			fresh := b.loose(100)
			w := b.worker()
			seen := map[engine.ID]bool{}
			for empty := 0; empty < 3; {
				cs := w.ask(engine.ClaimRequest{})
				if len(cs) == 0 {
					empty++
				}
				for _, c := range cs {
					if seen[c.ID] = true; c.Company > 0 || c.ID == ids[0] || c.ID == ids[1] {
						b.Fatalf("a claim that was not idle returned a suspect")
					}
				}
				w.publish(cs...)
			}
			if len(seen) != len(fresh) {
				b.Fatalf("%d of %d messages came while two suspects waited", len(seen), len(fresh))
			}
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1])...)
		}),

		clause("store.suspect.key", "A suspect that waits for an idle claim keeps back the later messages of its key.", func(b *bench) {
			ids := b.run("k", 1)
			b.crash(ids...)
			ids = append(ids, b.run("k", 2)...)
			w := b.worker()
			for range 2 {
				if cs := w.ask(engine.ClaimRequest{}); len(cs) > 0 {
					b.Fatalf("claimed %d messages behind a suspect of their key", len(cs))
				}
			}
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1:]...)...)
		}),

		clause("store.suspect.reported", "Suspects says whether a claim since the last idle one met a suspect that it could not hand out.", func(b *bench) {
			w := b.worker()
			says := func(want bool) {
				b.Helper()
				if got := w.Store.(engine.Suspicious).Suspects(); got != want {
					b.Fatalf("Suspects is %v, want %v", got, want)
				}
			}
			ids := b.run("k", 2)
			says(false)
			b.crash(ids...)
			w.ask(engine.ClaimRequest{})
			says(true)
			cs := w.next(ids[0])
			says(false)
			w.publish(cs...)
			w.ask(engine.ClaimRequest{})
			says(true)
			w.publish(w.next(ids[1])...)
			w.ask(engine.ClaimRequest{})
			says(false)
		}, needSuspects),

		clause("store.suspect.cleared", "A suspect that was answered with a reschedule is one no longer.", func(b *bench) {
			ids := b.run("k", 4)
			b.crash(ids...)
			w := b.worker()
			cs := w.next(ids[:2]...)
			w.settle(retry(cs[0], 0), release(cs[1]))
			if c := w.next(ids[0])[0]; c.Company != 0 {
				b.Fatalf("a suspect that was rescheduled still has company %d", c.Company)
			}
		}),

		clause("store.suspect.released", "A suspect that was released without being sent is still one.", func(b *bench) {
			ids := b.run("k", 1)
			b.crash(ids...)
			w := b.worker()
			w.settle(release(w.take(ids...)[0]))
			if cs := w.ask(engine.ClaimRequest{}); len(cs) > 0 {
				b.Fatalf("a released suspect came to a claim that was not idle")
			}
			if c := w.take(ids...)[0]; c.Company != 1 || c.Crashes != 0 {
				b.Fatalf("a released suspect comes with company %d and %d crashes, want 1 and 0", c.Company, c.Crashes)
			}
		}),

		clause("store.suspect.unhanded", "A crash makes no suspects of messages that were not in hand.", func(b *bench) {
			ids := b.run("k", 4)
			w := b.worker()
			w.same(w.claim(2), ids[:2])
			b.expire()
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1])...)
			cs := w.next(ids[2:]...)
			if cs[0].Company != 0 || cs[1].Company != 0 {
				b.Fatalf("messages that were never handed out have company %d and %d", cs[0].Company, cs[1].Company)
			}
		}),

		clause("store.suspect.buried", "A claim buries nothing by itself, however many crashes or attempts were counted.", func(b *bench) {
			ids := b.run("k", 1)
			w := b.worker()
			for range 30 {
				w.settle(retry(w.take(ids...)[0], 0))
			}
			for range 10 {
				w.take(ids...)
				b.expire()
			}
			c := w.take(ids...)[0]
			if c.Attempts != 30 || c.Crashes != 9 {
				b.Fatalf("charged 30 times, and taken over 10 times of which 9 alone, but %d attempts and %d crashes", c.Attempts, c.Crashes)
			}
			b.pass(time.Second)
			w.publish(c)
		}),
	}
}
