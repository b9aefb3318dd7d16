package matrix

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
	"github.com/outward-dev/outward/transports/rabbitmq"
)

var rabbitmqTransport = transport{
	name:    "rabbitmq",
	servers: []string{"rabbitmq4"},
	create: func(t *testing.T, server string) string {
		url := testservers.URL(t, server)
		name := "matrix-" + strings.ToLower(rand.Text()[:10])
		err := withChannel(url, func(ch *amqp.Channel) error {
			if err := ch.ExchangeDeclare(name, "topic", true, false, false, false, nil); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind(name, "#", name, false, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			err := withChannel(url, func(ch *amqp.Channel) error {
				if _, err := ch.QueueDelete(name, false, false, false); err != nil {
					return err
				}
				return ch.ExchangeDelete(name, false, false)
			})
			if err != nil {
				t.Errorf("queue and exchange stay behind: %v", err)
			}
		})
		return url + "#" + name
	},
	open: func(address string) (engine.Transport, []engine.Route, error) {
		url, name, _ := strings.Cut(address, "#")
		tr, err := rabbitmq.New(url, &rabbitmq.Options{Source: "/matrix"})
		if err != nil {
			return nil, nil, err
		}
		return tr, []engine.Route{{Topics: ">", Transport: tr, Destination: rabbitmq.Destination(name, "")}}, nil
	},
	take: func(ctx context.Context, address string) (ds []delivery, err error) {
		url, name, _ := strings.Cut(address, "#")
		err = withChannel(url, func(ch *amqp.Channel) error {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil {
				return err
			}
			if err := ch.Qos(1000, 0, false); err != nil {
				return err
			}
			in, err := ch.ConsumeWithContext(ctx, name, "", false, false, false, false, nil)
			if err != nil {
				return err
			}
			for len(ds) < q.Messages {
				select {
				case <-ctx.Done():
					return fmt.Errorf("%d of %d messages: %w", len(ds), q.Messages, ctx.Err())
				case d := <-in:
					key, _ := d.Headers["outward-key"].(string)
					ds = append(ds, delivery{id: d.MessageId, key: key, topic: d.RoutingKey, kind: d.Type, payload: d.Body, redelivered: d.Redelivered})
					if len(ds)%500 == 0 || len(ds) == q.Messages {
						if err := d.Ack(true); err != nil {
							return err
						}
					}
				}
			}
			return nil
		})
		return ds, err
	},
}

func withChannel(url string, do func(ch *amqp.Channel) error) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}
