package rabbitmq

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/envelope"
)

// benchQueue throws away what is above a few thousand messages, so that the
// broker's memory is no part of the figures. Its confirmations are real.
func benchQueue(b *testing.B) string {
	return dialBroker(b).queue("bench", amqp.Table{"x-max-length": 5000})
}

func benchMessages(n int) []engine.Outgoing {
	msgs := messages(n)
	for i := range msgs {
		msgs[i].Payload = make([]byte, 1024)
	}
	return msgs
}

// BenchmarkBare is the client library alone: one channel in confirm mode, a window
// of 1000, and no look at returns. "plain" sends id and body; "headers" sends the
// same properties and headers as the transport.
func BenchmarkBare(b *testing.B) {
	for _, name := range []string{"plain", "headers"} {
		b.Run(name, func(b *testing.B) {
			q := benchQueue(b)
			conn, err := amqp.Dial(brokerURL(b))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			ch, err := conn.Channel()
			if err != nil {
				b.Fatal(err)
			}
			if err := ch.Confirm(false); err != nil {
				b.Fatal(err)
			}
			msgs := benchMessages(1000)
			confirms := make(chan *amqp.DeferredConfirmation, 1000)
			done := make(chan bool)
			go func() {
				ok := true
				for c := range confirms {
					ok = c.Wait() && ok
				}
				done <- ok
			}()
			b.ResetTimer()
			for i := range b.N {
				m := &msgs[i%len(msgs)]
				m.ID = engine.NewID()
				pub := amqp.Publishing{MessageId: m.ID.String(), DeliveryMode: amqp.Persistent, Body: m.Payload}
				if name == "headers" {
					a := envelope.ForAMQP(m, envelope.DefaultSource)
					pub.Headers, pub.ContentType, pub.Type, pub.AppId, pub.Timestamp = a.Headers, a.ContentType, a.Type, a.AppID, a.Timestamp
				}
				c, err := ch.PublishWithDeferredConfirm("", q, true, false, pub)
				if err != nil {
					b.Fatal(err)
				}
				confirms <- c
			}
			close(confirms)
			if !<-done {
				b.Fatal("not everything was confirmed")
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// BenchmarkPublish is the same through the transport, with 1000 messages a call
// and two calls at a time, as a relay has it.
func BenchmarkPublish(b *testing.B) {
	q := benchQueue(b)
	tr := newTransport(b, brokerURL(b), nil)
	var faults atomic.Int64
	calls := make(chan int)
	done := make(chan struct{})
	const workers = 2
	for range workers {
		go func() {
			msgs := benchMessages(1000)
			for n := range calls {
				for i := range msgs[:n] {
					msgs[i].ID = engine.NewID()
				}
				tr.Publish(within(b, time.Minute), Destination("", q), msgs[:n], func(_ int, r engine.Result) {
					if r.Fault != nil {
						faults.Add(1)
					}
				})
			}
			done <- struct{}{}
		}()
	}
	b.ResetTimer()
	for left := b.N; left > 0; left -= 1000 {
		calls <- min(left, 1000)
	}
	close(calls)
	for range workers {
		<-done
	}
	b.StopTimer()
	if n := faults.Load(); n > 0 {
		b.Fatal(fmt.Errorf("%d messages were not confirmed", n))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
