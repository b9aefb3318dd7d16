package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/rabbitmq"
)

var toRabbitMQ = target{name: "rabbitmq4", url: brokerURL("rabbitmq4"), version: rabbitVersion, open: openRabbit}

func rabbitVersion(_ context.Context, url string) (string, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return "", err
	}
	version, _ := conn.Properties["version"].(string)
	return "RabbitMQ " + version, conn.Close()
}

// openRabbit makes a durable queue.
func openRabbit(context.Context) (*place, error) {
	conn, err := amqp.Dial(brokerURL("rabbitmq4"))
	if err != nil {
		return nil, err
	}
	queue := "bench-" + strings.ToLower(rand.Text()[:10])
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclare(queue, true, false, false, false, nil)
	}
	var tr *rabbitmq.Transport
	if err == nil {
		tr, err = rabbitmq.New(brokerURL("rabbitmq4"), &rabbitmq.Options{Window: inFlight * batch})
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &place{
		routes:    []engine.Route{{Topics: ">", Transport: tr, Destination: rabbitmq.Destination("", queue)}},
		publisher: func(window int) (publisher, error) { return newRabbitPublisher(conn, queue, window) },
		close: func() error {
			_, err := ch.QueueDelete(queue, false, false, false)
			return errors.Join(err, conn.Close(), tr.Close(context.Background()))
		},
	}, nil
}

// A rabbitPublisher is one channel in confirm mode.
type rabbitPublisher struct {
	ch      *amqp.Channel
	queue   string
	waiting chan *amqp.DeferredConfirmation // its capacity is the window
}

func newRabbitPublisher(conn *amqp.Connection, queue string, window int) (*rabbitPublisher, error) {
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	return &rabbitPublisher{ch: ch, queue: queue, waiting: make(chan *amqp.DeferredConfirmation, window)}, err
}

func (p *rabbitPublisher) publish(ctx context.Context, msgs iter.Seq[message]) error {
	confirmed := func() error {
		dc := <-p.waiting
		ok, err := dc.WaitContext(ctx)
		if err == nil && !ok {
			err = fmt.Errorf("message %d was refused", dc.DeliveryTag)
		}
		return err
	}
	for m := range msgs {
		if len(p.waiting) == cap(p.waiting) {
			if err := confirmed(); err != nil {
				return err
			}
		}
		dc, err := p.ch.PublishWithDeferredConfirmWithContext(ctx, "", p.queue, true, false, amqp.Publishing{
			MessageId: m.id, Type: m.typ, ContentType: engine.DefaultContentType, DeliveryMode: amqp.Persistent, Body: m.body,
		})
		if err != nil {
			return err
		}
		p.waiting <- dc
	}
	for len(p.waiting) > 0 {
		if err := confirmed(); err != nil {
			return err
		}
	}
	return nil
}

func (p *rabbitPublisher) close() error { return p.ch.Close() }
