package suite

import (
	"slices"
	"time"

	"github.com/outward-dev/outward/engine"
)

// requeue requeues dead messages by their ids and wants all of them.
func (b *bench) requeue(w *worker, ids ...engine.ID) {
	b.Helper()
	n, err := w.operator().Requeue(b.Context(), engine.Filter{IDs: ids}, anna)
	if err != nil {
		b.Fatalf("Requeue: %v", err)
	}
	if n != len(ids) {
		b.Fatalf("Requeue of %d dead messages says %d", len(ids), n)
	}
}

func (b *bench) discard(w *worker, want int, f engine.Filter) {
	b.Helper()
	n, err := w.operator().Discard(b.Context(), f, anna)
	if err != nil {
		b.Fatalf("Discard: %v", err)
	}
	if n != want {
		b.Fatalf("Discard says %d, want %d", n, want)
	}
}

func (b *bench) replay(w *worker, want int, f engine.Filter) {
	b.Helper()
	n, err := w.operator().Replay(b.Context(), f, anna)
	if err != nil {
		b.Fatalf("Replay: %v", err)
	}
	if n != want {
		b.Fatalf("Replay says %d, want %d", n, want)
	}
	clear(b.settled)
}

func (b *bench) dead(w *worker, f engine.Filter) []engine.Record {
	b.Helper()
	var recs []engine.Record
	for rec, err := range w.operator().Dead(b.Context(), f) {
		if err != nil {
			b.Fatalf("Dead: %v", err)
		}
		recs = append(recs, rec)
	}
	return recs
}

func operatorClauses() []Clause {
	return []Clause{
		clause("store.operator.requeue", "A requeued message goes again with the same id, its counters at zero, resends one more, at the place that it had in its key.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(retry(cs[0], 0), release(cs[1]), release(cs[2]))
			for range 3 { // one that is not charged a crash, two that are
				w.next(ids[0])
				b.expire()
			}
			w.settle(bury(w.next(ids[0])[0]))
			w.none()
			for n := 1; n <= 2; n++ {
				b.requeue(w, ids[0])
				c := w.next(ids[0])[0]
				if c.Attempts != 0 || c.Crashes != 0 || c.FailingFor != 0 || c.Company != 0 || c.Resends != n {
					b.Fatalf("requeued %d times, it comes with %d attempts, %d crashes, failing for %v, company %d, resends %d",
						n, c.Attempts, c.Crashes, c.FailingFor, c.Company, c.Resends)
				}
				w.settle(bury(c))
				w.none()
			}
			b.requeue(w, ids[0])
			w.publish(w.next(ids[0])...)
			w.publish(w.next(ids[1:]...)...)
		}, needOperator),

		clause("store.operator.requeue_passed", "A message that died without holding its key goes again when it is requeued.", func(b *bench) {
			ids := b.run("k", 3)
			w := b.worker()
			w.settle(buryPassing(w.one()))
			w.publish(w.claim(1)...)
			b.requeue(w, ids[0])
			w.publish(w.next(ids[0], ids[2])...)
		}, needOperator),

		clause("store.operator.discard", "A discarded message is kept in the archive as discarded, never goes, and what it held back goes on.", func(b *bench) {
			ids := b.run("k", 5)
			w := b.worker()
			cs := w.take(ids...)
			w.settle(bury(cs[0]), release(cs[1]), bury(cs[2]), release(cs[3]), release(cs[4]))
			w.none()
			b.discard(w, 1, engine.Filter{IDs: ids[:1]})
			b.is(Discarded, ids[0])
			w.publish(w.next(ids[1])...)
			w.none()
			b.discard(w, 1, engine.Filter{IDs: ids[2:3]})
			w.publish(w.next(ids[3:]...)...)
			b.is(Discarded, ids[0], ids[2])
		}, needOperator),

		clause("store.operator.dead_only", "Requeue and discard touch dead messages only, whatever the filter says.", func(b *bench) {
			w := b.worker()
			waits := b.run("waits", 2)
			w.settle(retry(w.one(), time.Hour))
			w.none()
			taken := b.run("taken", 1)
			cs := w.take(taken...)
			fresh := b.loose(1)
			for _, f := range []engine.Filter{{}, {IDs: append(slices.Concat(waits, taken, fresh), engine.NewID())}, {Key: "waits"}} {
				b.discard(w, 0, f)
				if n, err := w.operator().Requeue(b.Context(), f, anna); n != 0 || err != nil {
					b.Fatalf("Requeue with nothing dead says %d, error %v", n, err)
				}
			}
			b.is(Waiting, waits[0])
			b.is(Held, waits[1])
			b.is(Ready, taken[0], fresh[0])
			w.publish(cs...)
			w.drained(fresh)
		}, needOperator),

		clause("store.operator.replay", "A replayed message is enqueued again with the same id, resends one more, as the last of its key; the archive keeps the old one.", func(b *bench) {
			w := b.worker()
			m := message("k")
			m.Headers, m.CorrelationID = map[string]string{"h": "v"}, "c"
			ids := b.enqueue(m)
			w.drained(ids)
			ids = append(ids, b.run("k", 1)...)
			b.replay(w, 1, engine.Filter{IDs: ids[:1]})
			b.replay(w, 0, engine.Filter{IDs: ids}) // they are waiting
			cs := w.take(ids[1], ids[0])
			b.carries(cs[1], engine.Message{Topic: m.Topic, Key: m.Key, Type: m.Type,
				Headers: m.Headers, CorrelationID: m.CorrelationID, Payload: m.Payload})
			if cs[1].Resends != 1 || cs[1].Attempts != 0 {
				b.Fatalf("a replayed message comes with resends %d and %d attempts", cs[1].Resends, cs[1].Attempts)
			}
			w.publish(cs...)
			b.replay(w, 2, engine.Filter{Key: "k"})
			if cs := w.drained(ids); cs[0].Resends+cs[1].Resends != 3 {
				b.Fatalf("replayed once and twice, they come with resends %d and %d", cs[0].Resends, cs[1].Resends)
			}
		}, needOperator),

		clause("store.operator.list", "Dead lists what is dead, in order, with everything an operator needs, and says what holds back its key.", func(b *bench) {
			w := b.worker()
			m := message("k")
			m.Headers, m.CorrelationID, m.AggregateID = map[string]string{"h": "v"}, "c", "a"
			ids := b.enqueue(m)
			ids = append(ids, b.loose(1)...)
			b.run("k", 1)
			cs := w.take(ids...)
			w.settle(retry(cs[0], 0), buryPassing(cs[1]))
			w.settle(bury(w.next(ids[0])[0]))
			recs := b.dead(b.worker(), engine.Filter{})
			if len(recs) != 2 || recs[0].ID != ids[0] || recs[1].ID != ids[1] || recs[0].Seq >= recs[1].Seq {
				b.Fatalf("two messages are dead, Dead lists %d, or in another order", len(recs))
			}
			rec := recs[0]
			b.carries(engine.Claimed{Message: rec.Message}, engine.Message{Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload,
				Headers: m.Headers, CorrelationID: m.CorrelationID, AggregateID: m.AggregateID})
			if rec.LastErrorClass != "rejected" || rec.LastError != "rejected (413)" || rec.Crashes != 0 || rec.Attempts < 1 {
				b.Errorf("the record says %q of class %q, %d crashes, %d attempts", rec.LastError, rec.LastErrorClass, rec.Crashes, rec.Attempts)
			}
			if rec.CreatedAt.IsZero() || rec.DeadAt.Before(rec.CreatedAt) {
				b.Errorf("the record says created at %v, dead at %v", rec.CreatedAt, rec.DeadAt)
			}
			if !recs[0].HoldsKey || recs[1].HoldsKey {
				b.Errorf("HoldsKey is %v and %v, want true and false", recs[0].HoldsKey, recs[1].HoldsKey)
			}
		}, needOperator),

		clause("store.operator.filter", "A filter selects by id, topic, key, type, class of error and time of creation, all of them together, and no more than its limit.", func(b *bench) {
			w := b.worker()
			m1 := engine.Message{Topic: "t1", Key: "k", Type: "a.v1"}
			m2 := engine.Message{Topic: "t1", Key: "K", Type: "b.v1"}
			m3 := engine.Message{Topic: "t2", Type: "a.v1"}
			var ids []engine.ID
			for _, m := range []engine.Message{m1, m2, m3} {
				ids = append(ids, b.enqueue(m)...)
				b.pass(time.Minute)
			}
			for i, c := range w.take(ids...) {
				class := []engine.Class{engine.Rejected, engine.Transient, engine.Rejected}[i]
				w.settle(engine.DeadLetter(c.Receipt, true, engine.Fault{Class: class}))
			}
			created := b.dead(w, engine.Filter{})[1].CreatedAt
			for i, c := range []struct {
				f    engine.Filter
				want []int
			}{
				{engine.Filter{}, []int{0, 1, 2}},
				{engine.Filter{Topic: "t1"}, []int{0, 1}},
				{engine.Filter{Topic: "T1"}, nil},
				{engine.Filter{Key: "k"}, []int{0}},
				{engine.Filter{Type: "a.v1"}, []int{0, 2}},
				{engine.Filter{ErrorClass: "rejected"}, []int{0, 2}},
				{engine.Filter{Topic: "t1", ErrorClass: "rejected"}, []int{0}},
				{engine.Filter{IDs: []engine.ID{ids[2], ids[0], engine.NewID()}}, []int{0, 2}},
				{engine.Filter{IDs: []engine.ID{ids[2]}, Topic: "t1"}, nil},
				{engine.Filter{Limit: 2}, []int{0, 1}},
				{engine.Filter{Type: "a.v1", Limit: 1}, []int{0}},
				{engine.Filter{To: created}, []int{0}},
				{engine.Filter{From: created}, []int{1, 2}},
				{engine.Filter{From: created.Add(time.Hour)}, nil},
			} {
				var got []int
				for _, rec := range b.dead(w, c.f) {
					got = append(got, slices.Index(ids, rec.ID))
				}
				if !slices.Equal(got, c.want) {
					b.Errorf("filter %d selects %v, want %v", i, got, c.want)
				}
			}
			b.discard(w, 1, engine.Filter{Type: "a.v1", Limit: 1})
			b.is(Discarded, ids[0])
			b.is(Dead, ids[1:]...)
		}, needOperator),

		clause("store.operator.archived", "Archived lists what was settled, in that order, each message once as it was settled last, and says what an operator discarded.", func(b *bench) {
			w := b.worker()
			archived := func(f engine.Filter, want ...engine.ID) []engine.Record {
				b.Helper()
				var recs []engine.Record
				var got []engine.ID
				for rec, err := range w.Store.(engine.Archive).Archived(b.Context(), f) {
					if err != nil {
						b.Fatalf("Archived: %v", err)
					}
					recs, got = append(recs, rec), append(got, rec.ID)
				}
				if !slices.Equal(got, want) {
					b.Fatalf("Archived with %+v lists %v, want %v", f, got, want)
				}
				return recs
			}
			archived(engine.Filter{})
			m := message("a")
			m.Headers, m.CorrelationID = map[string]string{"h": "v"}, "c"
			ids := b.enqueue(m)
			w.drained(ids)
			b.pass(time.Minute)
			ids = append(ids, b.run("b", 1)...)
			w.drained(ids[1:])
			b.pass(time.Minute)
			ids = append(ids, b.run("c", 1)...)
			w.settle(bury(w.take(ids[2])[0]))
			b.discard(w, 1, engine.Filter{})
			b.pass(time.Minute)
			archived(engine.Filter{}, ids...)
			b.replay(w, 1, engine.Filter{IDs: ids[:1]})
			w.drained(ids[:1])
			recs := archived(engine.Filter{}, ids[1], ids[2], ids[0])
			for i, rec := range recs {
				if rec.Discarded != (i == 1) || rec.SettledAt.IsZero() || i > 0 && rec.SettledAt.Before(recs[i-1].SettledAt) {
					b.Errorf("record %d is discarded: %v, settled at %v", i, rec.Discarded, rec.SettledAt)
				}
			}
			if rec := recs[2]; rec.Resends != 1 {
				b.Errorf("a message that was replayed once is listed with resends %d", rec.Resends)
			} else if !rec.MetadataOnly {
				b.carries(engine.Claimed{Message: rec.Message}, m)
			}
			archived(engine.Filter{Key: "b"}, ids[1])
			archived(engine.Filter{Limit: 2}, ids[1], ids[2])
			archived(engine.Filter{From: recs[1].SettledAt}, ids[2], ids[0])
			archived(engine.Filter{From: recs[1].SettledAt, To: recs[2].SettledAt}, ids[2])
			archived(engine.Filter{Topic: "none"})
		}, needArchive, needOperator),

		clause("store.operator.dead_stops", "Dead ends when the caller stops, and yields the error when the context is over.", func(b *bench) {
			w := b.worker()
			ids := b.loose(3)
			w.settle(each(func(r engine.Receipt) engine.Settlement {
				return engine.DeadLetter(r, false, engine.Fault{Class: engine.Rejected})
			}, w.take(ids...))...)
			n := 0
			for _, err := range w.operator().Dead(b.Context(), engine.Filter{}) {
				if err != nil {
					b.Fatalf("Dead: %v", err)
				}
				if n++; n == 2 {
					break
				}
			}
			failed := false
			for _, err := range w.operator().Dead(over(b.Context()), engine.Filter{}) {
				failed = failed || err != nil
			}
			if n != 2 || !failed {
				b.Fatalf("%d records before the caller stopped; error after the context was over: %v", n, failed)
			}
		}, needOperator),
	}
}
