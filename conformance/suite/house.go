package suite

import (
	"context"
	"errors"
	"time"

	"github.com/outward-dev/outward/engine"
)

// over returns a context that was cancelled.
func over(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func (b *bench) purge(w *worker, limit, want int) {
	b.Helper()
	n, err := w.Store.(engine.Purger).Purge(b.Context(), limit)
	if err != nil {
		b.Fatalf("Purge: %v", err)
	}
	if n != want {
		b.Fatalf("Purge with limit %d says %d, want %d", limit, n, want)
	}
}

func (b *bench) backlog(w *worker) engine.Backlog {
	b.Helper()
	got, err := w.Store.(engine.Monitor).Backlog(b.Context())
	if err != nil {
		b.Fatalf("Backlog: %v", err)
	}
	return got
}

// about reports whether d is want, or a little more for the time that a clause runs.
func about(d, want time.Duration) bool { return d >= want && d <= want+lease }

func houseClauses() []Clause {
	return []Clause{
		// Particular/NServiceBus.Persistence.Sql#8: one DELETE without a bound.
		clause("store.purge.archive", "Purge deletes archived messages that are older than the retention, no more than its limit, and no younger ones.", func(b *bench) {
			w := b.worker()
			old := b.loose(5)
			w.drained(old)
			b.is(Archived, old...)
			b.purge(w, 10, 0)
			b.pass(200 * 24 * time.Hour)
			young := b.loose(2)
			w.drained(young)
			for _, n := range []int{2, 2, 1, 0} {
				b.purge(w, 2, n)
			}
			b.is(Absent, old...)
			b.is(Archived, young...)
		}, needPurger),

		clause("store.purge.unsettled", "Purge never touches a message that is not settled, however old, dead ones included.", func(b *bench) {
			w := b.worker()
			k := b.run("k", 1)
			w.settle(retry(w.take(k...)[0], 1000*24*time.Hour))
			k = append(k, b.run("k", 1)...)
			dead := b.loose(1)
			w.settle(buryPassing(w.take(dead...)[0]))
			w.none()
			ready := b.loose(1)[0]
			b.pass(500 * 24 * time.Hour)
			b.purge(w, 100, 0)
			b.is(Waiting, k[0])
			b.is(Held, k[1])
			b.is(Dead, dead[0])
			b.is(Ready, ready)
		}, needPurger),

		clause("store.backlog.counts", "Backlog counts what is ready, waiting, parked, held and dead, the keys that are held back, and what is leased.", func(b *bench) {
			w := b.worker()
			if got := b.backlog(w); got != (engine.Backlog{}) {
				b.Fatalf("of an empty table: %+v", got)
			}
			b.pause(w, "sick", anna)
			k := b.run("k", 3)
			w.settle(retry(w.one(), time.Hour))
			w.none()
			b.run("d", 4)
			w.settle(bury(w.one()))
			w.none()
			loose := b.loose(1)
			c := w.take(loose...)[0]
			w.settle(engine.Reschedule(c.Receipt, 0, refused, engine.RescheduleOptions{PausedFor: "sick"}))
			b.run("e", 2)
			leased := w.one()
			got := b.backlog(b.worker())
			want := engine.Backlog{Ready: engine.Count{N: 2}, Waiting: engine.Count{N: 2}, Parked: engine.Count{N: 1},
				Held: engine.Count{N: 5}, Dead: engine.Count{N: 1}, HeldKeys: engine.Count{N: 2}, Leased: 1}
			got.Oldest, got.OldestHold = 0, 0
			if got != want {
				b.Fatalf("Backlog is %+v, want %+v", got, want)
			}
			w.settle(detach(leased))
			if got := b.backlog(w); got.Leased != 1 || got.Waiting.N != 3 {
				b.Fatalf("with one message detached and no lane leased: %+v", got)
			}
			w.settle(published(leased))
			if got := b.backlog(w); got.Leased != 0 || got.Waiting.N != 2 || got.Ready.N != 1 {
				b.Fatalf("with one message published and nothing leased: %+v", got)
			}
			b.is(Waiting, k[0])
		}, needMonitor, needOperator),

		clause("store.backlog.ages", "Backlog says how old the oldest message is that has to go, and the oldest that holds back a key.", func(b *bench) {
			w := b.worker()
			b.run("d", 1)
			w.settle(bury(w.one()))
			b.pass(10 * time.Hour)
			w.settle(retry(w.take(b.run("k", 1)...)[0], 100*time.Hour))
			b.pass(time.Hour)
			b.loose(1)
			b.pass(time.Hour)
			if got := b.backlog(w); !about(got.Oldest, 2*time.Hour) || !about(got.OldestHold, 12*time.Hour) {
				b.Fatalf("the oldest message is %v old, want 2h; the oldest that holds back a key %v, want 12h", got.Oldest, got.OldestHold)
			}
		}, needMonitor),

		clause("store.notify.signal", "After a commit that enqueued something a listener is signalled.", func(b *bench) {
			signals, err := b.worker().Store.(engine.Notifier).Listen(b.Context())
			if err != nil {
				b.Fatalf("Listen: %v", err)
			}
			for range 2 {
				b.loose(3)
				select {
				case _, open := <-signals:
					if !open {
						b.Fatalf("the channel was closed while its context lived")
					}
				case <-time.After(10 * time.Second):
					b.Fatalf("no signal within 10 s of a commit")
				case <-b.Context().Done():
					b.Fatalf("no signal: %v", b.Context().Err())
				}
			}
		}, needNotifier),

		clause("store.notify.closed", "A listener's channel is closed when its context ends.", func(b *bench) {
			ctx, cancel := context.WithCancel(b.Context())
			signals, err := b.worker().Store.(engine.Notifier).Listen(ctx)
			if err != nil {
				cancel()
				b.Fatalf("Listen: %v", err)
			}
			b.loose(1)
			cancel()
			limit := time.After(10 * time.Second)
			for open := true; open; {
				select {
				case _, open = <-signals:
				case <-limit:
					b.Fatalf("the channel is open 10 s after its context ended")
				case <-b.Context().Done():
					b.Fatalf("the channel is open: %v", b.Context().Err())
				}
			}
		}, needNotifier),

		clause("store.context", "Under a context that is over every call fails with its error and changes nothing.", func(b *bench) {
			ids := b.run("k", 2)
			w := b.worker()
			cs := w.claim(1)
			w.same(cs, ids[:1])
			ctx := over(b.Context())
			check := func(what string, err error) {
				b.Helper()
				if !errors.Is(err, context.Canceled) {
					b.Errorf("%s under a context that was cancelled: error %v", what, err)
				}
			}
			_, err := w.Claim(ctx, engine.ClaimRequest{Limit: 10, Lease: lease, Idle: true})
			check("Claim", err)
			for _, answer := range answers {
				lost, err := w.Settle(ctx, answer.of(cs[0]))
				check("Settle", err)
				if len(lost) > 0 {
					b.Errorf("Settle failed and reports messages lost")
				}
			}
			lost, err := w.Extend(ctx, receipts(cs), time.Hour)
			check("Extend", err)
			if len(lost) > 0 {
				b.Errorf("Extend failed and reports messages lost")
			}
			b.untouched(ids...)
			b.expire()
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1])...)
		}),

		clause("store.describe", "Describe names the dialect and the table.", func(b *bench) {
			if info := b.worker().Describe(); info.Dialect == "" || info.Table == "" {
				b.Fatalf("Describe is %+v", info)
			}
		}),
	}
}
