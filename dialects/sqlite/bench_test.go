package sqlite

import (
	"fmt"
	"testing"

	"github.com/outward-dev/outward/engine"
)

// fill enqueues n messages of 1 KB over so many keys; 0: without a key.
func (d *database) fill(n, keys int) {
	d.t.Helper()
	payload := make([]byte, 1024)
	for i := 0; i < n; {
		var msgs []engine.Message
		for ; i < n && len(msgs) < 1000; i++ {
			m := engine.Message{Topic: "orders", Type: "order.submitted.v1", Payload: payload}
			if keys > 0 {
				m.Key = fmt.Sprint("customer-", i%keys)
			}
			msgs = append(msgs, m)
		}
		d.enqueue(msgs...)
	}
}

// drain claims and publishes everything, limit at a time, and says how many went.
func (d *database) drain(s *Store, limit int) (n int) {
	d.t.Helper()
	for {
		c := d.claim(s, req(limit))
		if len(c) == 0 {
			return n
		}
		ss := make([]engine.Settlement, len(c))
		for i := range c {
			ss[i] = engine.MarkPublished(c[i].Receipt)
		}
		d.settle(s, 0, ss...)
		n += len(c)
	}
}

// BenchmarkClaimSettle is how fast a backlog of 100 000 messages of 1 KB goes.
func BenchmarkClaimSettle(b *testing.B) {
	for _, keys := range []int{0, 10_000, 1} {
		for _, limit := range []int{500, 1000} {
			b.Run(fmt.Sprintf("keys=%d/batch=%d", keys, limit), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					d := newDatabase(b, nil)
					d.fill(100_000, keys)
					s := d.open()
					b.StartTimer()
					if n := d.drain(s, limit); n != 100_000 {
						b.Fatalf("%d of 100000 went", n)
					}
				}
				b.ReportMetric(100_000*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

// BenchmarkEnqueue is how fast messages of 1 KB are committed.
func BenchmarkEnqueue(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			d := newDatabase(b, nil)
			msgs := make([]engine.Message, batch)
			for i := range msgs {
				msgs[i] = msg("orders", fmt.Sprint("customer-", i))
				msgs[i].Payload = make([]byte, 1024)
			}
			for b.Loop() {
				d.enqueue(msgs...)
			}
			b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
