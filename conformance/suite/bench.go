package suite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outward-dev/outward/engine"
)

// lease is what the clauses claim for: far longer than a clause runs, so that
// only Shift ends it.
const lease = time.Minute

// bench is what a clause works at: the subject, with every unexpected error
// fatal.
type bench struct {
	T
	s *StoreSubject
	// settled are the messages that were settled as published and not enqueued again
	// since. None of them may ever be claimed, whatever the clause is about.
	settled map[engine.ID]bool
	claimed map[engine.Receipt]engine.ID
}

func newBench(t T, s *StoreSubject) *bench {
	return &bench{T: t, s: s, settled: map[engine.ID]bool{}, claimed: map[engine.Receipt]engine.ID{}}
}

// message is the least that can be enqueued, under a key or without.
func message(key string) engine.Message {
	return engine.Message{Topic: "orders", Key: key, Type: "order.submitted.v1", Payload: []byte(`{"n":1}`)}
}

func onTopic(topic, key string) engine.Message {
	m := message(key)
	m.Topic = topic
	return m
}

// enqueue commits messages in one transaction and returns their ids.
func (b *bench) enqueue(msgs ...engine.Message) []engine.ID {
	b.Helper()
	tx := b.s.Begin(b.T)
	ids, err := tx.Enqueue(b.Context(), msgs...)
	if err != nil {
		b.Fatalf("Enqueue: %v", err)
	}
	if len(ids) != len(msgs) {
		b.Fatalf("Enqueue of %d messages returned %d ids", len(msgs), len(ids))
	}
	b.commit(tx)
	for _, id := range ids {
		delete(b.settled, id)
	}
	return ids
}

func (b *bench) commit(tx Tx) {
	b.Helper()
	if err := tx.Commit(b.Context()); err != nil {
		b.Fatalf("Commit: %v", err)
	}
}

// run enqueues n messages of one key, each in a transaction of its own: those
// that overlap are promised no order.
func (b *bench) run(key string, n int) []engine.ID {
	b.Helper()
	var ids []engine.ID
	for range n {
		ids = append(ids, b.enqueue(message(key))...)
	}
	return ids
}

// loose enqueues n messages without a key.
func (b *bench) loose(n int) []engine.ID { return b.bulk("", n) }

// bulk enqueues many messages of one key, a few hundred in a transaction.
func (b *bench) bulk(key string, n int) []engine.ID {
	b.Helper()
	var ids []engine.ID
	for len(ids) < n {
		ids = append(ids, b.enqueue(slices.Repeat([]engine.Message{message(key)}, min(n-len(ids), 500))...)...)
	}
	return ids
}

// pass lets time go by for the table.
func (b *bench) pass(d time.Duration) {
	b.Helper()
	b.s.Shift(b.T, d)
}

// expire lets every lease run out that was not extended meanwhile.
func (b *bench) expire() {
	b.Helper()
	b.pass(2 * lease)
}

// row looks a message up.
func (b *bench) row(id engine.ID) Row {
	b.Helper()
	return b.s.Look(b.T, id)
}

// is checks where messages stand.
func (b *bench) is(want State, ids ...engine.ID) {
	b.Helper()
	for i, id := range ids {
		if got := b.row(id).State; got != want {
			b.Fatalf("message %d of %d (%v) is %s, want %s", i+1, len(ids), id, got, want)
		}
	}
}

// gone checks that messages were settled as published.
func (b *bench) gone(ids ...engine.ID) {
	b.Helper()
	for i, id := range ids {
		if got := b.row(id).State; got != Archived && got != Absent {
			b.Fatalf("message %d of %d (%v) is %s, but was settled as published", i+1, len(ids), id, got)
		}
	}
}

// worker is one process of those that share the table.
type worker struct {
	*bench
	engine.Store
}

func (b *bench) worker() *worker {
	b.Helper()
	return &worker{b, b.s.Open(b.T)}
}

// operator is the store's optional ability; the clauses that use it need it.
func (w *worker) operator() engine.Operator { return w.Store.(engine.Operator) }

// ask claims with req, whose Limit and Lease may be left out.
func (w *worker) ask(req engine.ClaimRequest) []engine.Claimed {
	w.Helper()
	if req.Limit == 0 {
		req.Limit = 1000
	}
	if req.Lease == 0 {
		req.Lease = lease
	}
	req.Worker = "conformance"
	cs, err := w.Claim(w.Context(), req)
	if err != nil {
		w.Fatalf("Claim: %v", err)
	}
	if len(cs) > req.Limit {
		w.Fatalf("Claim with limit %d returned %d messages", req.Limit, len(cs))
	}
	for _, c := range cs {
		if w.settled[c.ID] {
			w.Fatalf("message %v was settled as published and is claimed again", c.ID)
		}
		w.claimed[c.Receipt] = c.ID
	}
	return cs
}

// claim claims at most limit messages as a process that has nothing in flight.
func (w *worker) claim(limit int) []engine.Claimed {
	w.Helper()
	return w.ask(engine.ClaimRequest{Limit: limit, Idle: true})
}

// take claims exactly these messages, in this order. A claim looks at some of the
// table's lanes only, so several may be needed.
func (w *worker) take(ids ...engine.ID) []engine.Claimed {
	w.Helper()
	var cs []engine.Claimed
	for empty := 0; len(cs) < len(ids) && empty < 3; {
		got := w.claim(len(ids) - len(cs))
		if cs = append(cs, got...); len(got) == 0 {
			empty++
		}
	}
	slices.SortFunc(cs, func(a, b engine.Claimed) int { return int(a.Receipt.Seq - b.Receipt.Seq) })
	w.same(cs, ids)
	return cs
}

// same checks that what was claimed is ids, in this order.
func (w *worker) same(cs []engine.Claimed, ids []engine.ID) {
	w.Helper()
	if got := idsOf(cs); !slices.Equal(got, ids) {
		w.Fatalf("claimed %d messages %v\nwant %d messages %v", len(got), short(got), len(ids), short(ids))
	}
}

// next claims without a limit and wants exactly ids: the claim of a head, say,
// and nothing behind it.
func (w *worker) next(ids ...engine.ID) []engine.Claimed {
	w.Helper()
	cs := w.claim(1000)
	w.same(cs, ids)
	return cs
}

// one claims one message: the head of whatever there is.
func (w *worker) one() engine.Claimed {
	w.Helper()
	cs := w.claim(1)
	if len(cs) == 0 {
		w.Fatalf("a claim of one message got none")
	}
	return cs[0]
}

// none checks that nothing may go now. It asks twice, since a claim may move rows
// out of the way.
func (w *worker) none() {
	w.Helper()
	for range 2 {
		if cs := w.claim(1000); len(cs) > 0 {
			w.Fatalf("claimed %d messages %v, but none of them may go now", len(cs), short(idsOf(cs)))
		}
	}
}

// settle settles and wants every receipt to hold.
func (w *worker) settle(ss ...engine.Settlement) {
	w.Helper()
	lost, err := w.Settle(w.Context(), ss...)
	if err != nil {
		w.Fatalf("Settle: %v", err)
	}
	if len(lost) > 0 {
		w.Fatalf("Settle of %d messages (%s first) reports %d lost: %v", len(ss), ss[0].Kind, len(lost), lost)
	}
	for _, s := range ss {
		if s.Kind == engine.Published {
			w.settled[w.claimed[s.Receipt]] = true
		}
	}
}

// late settles and wants every receipt to be lost.
func (w *worker) late(ss ...engine.Settlement) {
	w.Helper()
	lost, err := w.Settle(w.Context(), ss...)
	if err != nil {
		w.Fatalf("Settle: %v", err)
	}
	want := make([]engine.Receipt, len(ss))
	for i, s := range ss {
		want[i] = s.Receipt
	}
	if !sameReceipts(lost, want) {
		w.Fatalf("Settle by a worker that lost its lease reports %d of %d lost", len(lost), len(want))
	}
}

// publish settles messages as published.
func (w *worker) publish(cs ...engine.Claimed) {
	w.Helper()
	if len(cs) > 0 {
		w.settle(each(engine.MarkPublished, cs)...)
	}
}

// extend renews and wants every receipt to hold.
func (w *worker) extend(d time.Duration, cs ...engine.Claimed) {
	w.Helper()
	lost, err := w.Extend(w.Context(), receipts(cs), d)
	if err != nil {
		w.Fatalf("Extend: %v", err)
	}
	if len(lost) > 0 {
		w.Fatalf("Extend of %d leases reports %d lost", len(cs), len(lost))
	}
}

// drain claims and publishes until nothing may go, and returns what went.
func (w *worker) drain() []engine.Claimed {
	w.Helper()
	var out []engine.Claimed
	for empty := 0; empty < 3; {
		cs := w.claim(200)
		if len(cs) == 0 {
			empty++
			continue
		}
		empty = 0
		w.publish(cs...)
		out = append(out, cs...)
	}
	return out
}

// drained checks that exactly ids went, each once, in any order.
func (w *worker) drained(ids []engine.ID) []engine.Claimed {
	w.Helper()
	cs := w.drain()
	got, want := idsOf(cs), slices.Clone(ids)
	slices.SortFunc(got, engine.ID.Compare)
	slices.SortFunc(want, engine.ID.Compare)
	if !slices.Equal(got, want) {
		w.Fatalf("%d messages went, want %d: %s", len(got), len(want), difference(got, want))
	}
	return cs
}

// difference names what is missing, and what came too often or unasked.
func difference(got, want []engine.ID) string {
	count := map[engine.ID]int{}
	for _, id := range want {
		count[id]--
	}
	for _, id := range got {
		count[id]++
	}
	missing, extra := 0, 0
	for _, n := range count {
		missing -= min(n, 0)
		extra += max(n, 0)
	}
	return fmt.Sprintf("%d missing, %d too many", missing, extra)
}

// The settlements that need more than a receipt, with a fault as relays give it.

var refused = engine.Fault{Class: engine.Transient, Code: "503"}

func retry(c engine.Claimed, after time.Duration) engine.Settlement {
	return engine.Reschedule(c.Receipt, after, refused, engine.RescheduleOptions{Charge: true, HoldKey: true})
}

func retryPassing(c engine.Claimed, after time.Duration) engine.Settlement {
	return engine.Reschedule(c.Receipt, after, refused, engine.RescheduleOptions{Charge: true})
}

func bury(c engine.Claimed) engine.Settlement {
	return engine.DeadLetter(c.Receipt, true, engine.Fault{Class: engine.Rejected, Code: "413"})
}

func buryPassing(c engine.Claimed) engine.Settlement {
	return engine.DeadLetter(c.Receipt, false, engine.Fault{Class: engine.Rejected, Code: "413"})
}

func release(c engine.Claimed) engine.Settlement { return engine.Release(c.Receipt) }
func published(c engine.Claimed) engine.Settlement {
	return engine.MarkPublished(c.Receipt)
}
func detach(c engine.Claimed) engine.Settlement { return engine.Detach(c.Receipt, lease) }

// each makes one settlement per message.
func each(kind func(engine.Receipt) engine.Settlement, cs []engine.Claimed) []engine.Settlement {
	ss := make([]engine.Settlement, len(cs))
	for i, c := range cs {
		ss[i] = kind(c.Receipt)
	}
	return ss
}

func idsOf(cs []engine.Claimed) []engine.ID {
	ids := make([]engine.ID, len(cs))
	for i, c := range cs {
		ids[i] = c.ID
	}
	return ids
}

func receipts(cs []engine.Claimed) []engine.Receipt {
	rs := make([]engine.Receipt, len(cs))
	for i, c := range cs {
		rs[i] = c.Receipt
	}
	return rs
}

// short keeps a list of ids readable.
func short(ids []engine.ID) []engine.ID { return ids[:min(len(ids), 10)] }

// sameReceipts compares without regard to order, which no store promises.
func sameReceipts(a, b []engine.Receipt) bool {
	bySeq := func(x, y engine.Receipt) int { return int(x.Seq - y.Seq) }
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, bySeq)
	slices.SortFunc(b, bySeq)
	return slices.Equal(a, b)
}

// claimWithin is for goroutines beside the clause's own, which must not be fatal.
func claimWithin(ctx context.Context, st engine.Store, limit int, idle bool) ([]engine.Claimed, error) {
	return st.Claim(ctx, engine.ClaimRequest{Worker: "conformance", Limit: limit, Lease: lease, Idle: idle})
}
