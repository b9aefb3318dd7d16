package suite

import (
	"errors"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
)

func settleClauses() []Clause {
	return []Clause{
		clause("store.settle.published", "A message that was settled as published never comes again.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			w.publish(w.take(ids...)...)
			b.gone(ids...)
			b.expire()
			w.none()
			b.worker().none()
		}),

		// dotnetcore/CAP#1518: local time and the end of summer time broke retries.
		clause("store.settle.due", "A rescheduled message comes again when its time has come by the database's clock, and not before.", func(b *bench) {
			ids := b.run("k", 1)
			w := b.worker()
			w.settle(retry(w.take(ids...)[0], 2*time.Hour))
			if row := b.row(ids[0]); row.State != Waiting || row.Due < time.Hour || row.Due > 2*time.Hour {
				b.Fatalf("rescheduled for two hours from now, but %s and due in %v", row.State, row.Due)
			}
			b.pass(2*time.Hour - lease)
			w.none()
			b.pass(2 * lease)
			w.take(ids...)
		}),

		// An attempt that is counted in a transaction which is rolled back is never counted.
		clause("store.settle.charged", "A charged reschedule spends one attempt and records the error, its class and the first failure.", func(b *bench) {
			ids := b.run("k", 1)
			w := b.worker()
			for n := 1; n <= 3; n++ {
				f := engine.Fault{Class: engine.Unknown, Code: "timeout", Err: errors.New("no word,\nfor long \u00e9")}
				w.settle(engine.Reschedule(w.take(ids...)[0].Receipt, 0, f, engine.RescheduleOptions{Charge: true, HoldKey: true}))
				row := b.row(ids[0])
				if row.Attempts != n || row.Crashes != 0 || !row.Failing {
					b.Fatalf("charged %d times, but %d attempts, %d crashes, failing: %v", n, row.Attempts, row.Crashes, row.Failing)
				}
				if row.LastClass != "unknown" || row.LastError != f.Text() {
					b.Fatalf("recorded the error %q of class %q, want %q of class unknown", row.LastError, row.LastClass, f.Text())
				}
			}
		}),

		clause("store.settle.uncharged", "A reschedule without a charge spends no attempt and starts no failure.", func(b *bench) {
			ids := b.run("k", 1)
			w := b.worker()
			for range 3 {
				w.settle(engine.Reschedule(w.take(ids...)[0].Receipt, 0, refused, engine.RescheduleOptions{HoldKey: true}))
				if row := b.row(ids[0]); row.Attempts != 0 || row.Crashes != 0 || row.Failing {
					b.Fatalf("never charged, but %d attempts, %d crashes, failing: %v", row.Attempts, row.Crashes, row.Failing)
				}
			}
		}),

		clause("store.settle.released", "A released message is ready at once and as it was before.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			for range 3 {
				w.settle(each(engine.Release, w.take(ids...))...)
				b.untouched(ids...)
			}
			cs := b.worker().take(ids...)
			if cs[0].Attempts != 0 || cs[0].Company != 0 {
				b.Fatalf("released messages come with %d attempts and company %d", cs[0].Attempts, cs[0].Company)
			}
		}),

		clause("store.settle.dead", "A dead message stays dead, with its error, however long nobody acts.", func(b *bench) {
			ids := append(b.run("k", 1), b.loose(1)...)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(bury(cs[0]), buryPassing(cs[1]))
			w.none()
			b.pass(300 * 24 * time.Hour)
			w.none()
			for _, id := range ids {
				if row := b.row(id); row.State != Dead || row.LastClass != "rejected" || !strings.Contains(row.LastError, "413") {
					b.Fatalf("a buried message is %s with the error %q of class %q", row.State, row.LastError, row.LastClass)
				}
			}
		}),

		// cyberfabric/cyberfabric-core#908: the order of RETURNING was taken for that of the
		// claim, and one result was applied to all.
		clause("store.settle.each_its_own", "In one call every message gets its own settlement, whatever the order in which they are given.", func(b *bench) {
			ids := b.loose(6)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(bury(cs[5]), retry(cs[0], time.Hour), published(cs[3]), release(cs[2]), published(cs[1]), detach(cs[4]))
			for i, want := range []State{Waiting, Absent, Ready, Absent, Waiting, Dead} {
				if want == Absent {
					b.gone(ids[i])
				} else {
					b.is(want, ids[i])
				}
			}
			if n := b.row(ids[0]).Attempts; n != 1 {
				b.Fatalf("the retried message has %d attempts", n)
			}
			if n := b.row(ids[4]).Attempts; n != 0 {
				b.Fatalf("the detached message has %d attempts", n)
			}
		}),

		clause("store.settle.claims_mixed", "One call may settle messages of several claims.", func(b *bench) {
			ids := b.loose(30)
			w := b.worker()
			for left := len(ids); left > 0; {
				// What is beside them in their lanes comes when they are settled.
				var cs []engine.Claimed
				claims := 0
				for got := w.claim(7); len(got) > 0; got = w.claim(7) {
					cs = append(cs, got...)
					claims++
				}
				if claims == 0 || claims == 1 && left == len(ids) {
					b.Fatalf("%d of %d messages came in %d claims", len(cs), left, claims)
				}
				w.publish(cs...)
				left -= len(cs)
			}
			b.gone(ids...)
			w.none()
			w.drained(b.loose(200))
		}),
	}
}

func repeatClauses() []Clause {
	return []Clause{
		clause("store.repeat.published", "Publishing again after a lost answer is done already, and not lost.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			c := w.one()
			w.publish(c)
			w.publish(c)
			b.gone(ids[0])
			w.publish(w.next(ids[1])...)
			b.gone(ids...)
		}),

		clause("store.repeat.retried", "A reschedule that is repeated after a lost answer is charged once.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			c := w.one()
			for range 3 {
				w.settle(retry(c, time.Hour))
			}
			if row := b.row(ids[0]); row.State != Waiting || row.Attempts != 1 || row.Due > time.Hour {
				b.Fatalf("rescheduled once for an hour, three times said, but %s with %d attempts, due in %v", row.State, row.Attempts, row.Due)
			}
		}),

		clause("store.repeat.retried_ready", "A reschedule that is repeated after the message became ready again is not charged again.", func(b *bench) {
			ids := b.run("k", 2)
			a, other := b.worker(), b.worker()
			cs := a.take(ids...)
			a.settle(retryPassing(cs[0], 0)) // the other one keeps the lane
			other.none()                     // and makes it ready
			b.is(Ready, ids[0])
			a.settle(retryPassing(cs[0], 0))
			if row := b.row(ids[0]); row.State != Ready || row.Attempts != 1 {
				b.Fatalf("charged once, said twice, but %s with %d attempts", row.State, row.Attempts)
			}
		}),

		clause("store.repeat.buried", "A burial that is repeated after a lost answer changes nothing more.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			c := w.one()
			w.settle(bury(c))
			before := b.row(ids[0])
			w.settle(bury(c))
			if after := b.row(ids[0]); after.State != Dead || after.Attempts != before.Attempts {
				b.Fatalf("buried twice, it is %s with %d attempts, was %d", after.State, after.Attempts, before.Attempts)
			}
			w.none()
		}),

		clause("store.repeat.released", "A release that is repeated after a lost answer gives nothing back that another has taken since.", func(b *bench) {
			ids := b.run("k", 2)
			a, other := b.worker(), b.worker()
			c := a.one()
			a.settle(release(c))
			a.settle(release(c))
			cs := other.next(ids...)
			a.late(release(c))
			b.worker().none()
			other.publish(cs...)
			b.gone(ids...)
		}),

		clause("store.repeat.detached", "A detach that is repeated after a lost answer leaves the message in the same hands.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			c := w.one()
			w.settle(detach(c))
			w.settle(detach(c))
			w.none()
			w.settle(published(c))
			w.publish(w.next(ids[1])...)
			b.gone(ids...)
		}),

		clause("store.repeat.batch", "A whole batch of answers that is repeated after a lost answer has every effect once.", func(b *bench) {
			ids := b.run("k", 4)
			w := b.worker()
			cs := w.take(ids...)
			batch := []engine.Settlement{published(cs[0]), retry(cs[1], time.Hour), release(cs[2]), release(cs[3])}
			w.settle(batch...)
			w.settle(batch...)
			b.gone(ids[0])
			b.is(Waiting, ids[1])
			if n := b.row(ids[1]).Attempts; n != 1 {
				b.Fatalf("charged once, said twice, but %d attempts", n)
			}
			w.none()
			b.pass(2 * time.Hour)
			w.publish(w.next(ids[1])...)
			w.publish(w.next(ids[2:]...)...)
		}),

		clause("store.repeat.requeued", "The verdict that buried a message, repeated after an operator requeued it, changes nothing.", func(b *bench) {
			ids := b.run("k", 1)
			w := b.worker()
			c := w.take(ids...)[0]
			w.settle(bury(c))
			b.requeue(w, ids...)
			if lost, err := w.Settle(b.Context(), bury(c)); err != nil {
				b.Fatalf("Settle: %d lost, error %v", len(lost), err)
			}
			if row := b.row(ids[0]); row.State != Ready || row.Attempts != 0 || row.Resends != 1 {
				b.Fatalf("requeued once, it is %s with %d attempts and %d resends", row.State, row.Attempts, row.Resends)
			}
			w.publish(w.take(ids...)...)
		}, needOperator),

		clause("store.repeat.retried_taken", "A message that was answered is no suspect and counts no crash when the rest of its claim is taken over.", func(b *bench) {
			ids := b.run("k", 3)
			a, other := b.worker(), b.worker()
			cs := a.take(ids...)
			a.settle(retryPassing(cs[0], 0), release(cs[1]))
			b.expire()
			got := other.claim(1000)
			other.same(got, ids[:2])
			for i, want := range []int{1, 0} {
				if c := got[i]; c.Company != 0 || c.Crashes != 0 || c.Attempts != want {
					b.Fatalf("answered message %d comes with company %d, %d crashes and %d attempts, want 0, 0 and %d",
						i, c.Company, c.Crashes, c.Attempts, want)
				}
			}
		}),
	}
}
