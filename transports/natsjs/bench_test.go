package natsjs

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/envelope"
)

// BenchmarkPublish compares the transport with the client library's own
// asynchronous publishing of the same bytes, to the same stream, with as many
// messages on their way. An operation is one message of 1 KB.
func BenchmarkPublish(b *testing.B) {
	s := dialServer(b)
	body := bytes.Repeat([]byte("0123456789abcdef"), 64)
	const batch, parallel = 500, 4
	newStream := func(b *testing.B) string {
		return s.stream("bench", func(c *jetstream.StreamConfig) { c.MaxMsgs = 100_000 })
	}
	bare := func(b *testing.B, header bool) {
		name := newStream(b)
		js, err := jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(batch*parallel), jetstream.WithPublishAsyncTimeout(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
		m := message("")
		m.Key, m.AggregateType, m.AggregateID, m.AggregateVersion = "order-42", "order", "42", 7
		b.ReportAllocs()
		for b.Loop() {
			msg := &nats.Msg{Subject: name, Data: body}
			if header {
				m.ID = engine.NewID()
				n := envelope.ForNATS(&m, "/orders")
				msg.Header = n.Headers
			}
			if _, err := js.PublishMsgAsync(msg, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(time.Minute)); err != nil {
				b.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	}
	b.Run("bare", func(b *testing.B) { bare(b, false) })
	b.Run("bare with our headers", func(b *testing.B) { bare(b, true) })
	for _, c := range []struct{ batch, parallel int }{{500, 1}, {500, 4}, {2000, 2}} {
		b.Run(fmt.Sprintf("transport %dx%d", c.parallel, c.batch), func(b *testing.B) {
			name := newStream(b)
			tr := newTransport(b, serverURL(b), nil)
			wantWell(b, tr, name)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range c.parallel {
				wg.Go(func() {
					for {
						n := min(left.Add(-int64(c.batch))+int64(c.batch), int64(c.batch))
						if n <= 0 {
							return
						}
						msgs := make([]engine.Outgoing, n)
						for i := range msgs {
							msgs[i] = message("")
							msgs[i].Payload = body
							msgs[i].Key, msgs[i].AggregateType, msgs[i].AggregateID, msgs[i].AggregateVersion = "order-42", "order", "42", 7
						}
						tr.Publish(b.Context(), name, msgs, func(_ int, r engine.Result) {
							if r.Fault != nil {
								b.Error(r.Fault)
							}
						})
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
