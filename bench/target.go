package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/rabbitmq"
)

// A target is where messages go.
type target struct{ kind, url string }

var (
	toNull     = target{kind: "null"}
	toRabbitMQ = target{kind: "rabbitmq4", url: os.Getenv("OUTWARD_TEST_RABBITMQ4_URL")}
)

func brokerName() string {
	if toRabbitMQ.url == "" {
		return "no broker"
	}
	conn, err := amqp.Dial(toRabbitMQ.url)
	if err != nil {
		return "no broker"
	}
	version, _ := conn.Properties["version"].(string)
	if err := conn.Close(); err != nil {
		return "no broker"
	}
	return "RabbitMQ " + version
}

// open makes a fresh place at the target. close removes it.
func (t target) open() (routes []engine.Route, done func() error, err error) {
	if t.kind == "null" {
		return engine.AllTo(null{}), func() error { return nil }, nil
	}
	conn, err := amqp.Dial(t.url)
	if err != nil {
		return nil, nil, err
	}
	queue := "bench-" + strings.ToLower(rand.Text()[:10])
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDeclare(queue, true, false, false, false, nil)
	}
	var tr *rabbitmq.Transport
	if err == nil {
		tr, err = rabbitmq.New(t.url, nil)
	}
	if err != nil {
		return nil, nil, err
	}
	done = func() error {
		_, err := ch.QueueDelete(queue, false, false, false)
		return errors.Join(err, conn.Close(), tr.Close(context.Background()))
	}
	return []engine.Route{{Topics: ">", Transport: tr, Destination: rabbitmq.Destination("", queue)}}, done, nil
}

// null confirms everything at once: what is left is the database and the engine.
type null struct{}

func (null) Publish(_ context.Context, _ string, msgs []engine.Outgoing, report func(int, engine.Result)) {
	for i := range msgs {
		report(i, engine.Result{})
	}
}
func (null) Describe() engine.TransportInfo {
	return engine.TransportInfo{Name: "null", Kind: "null", KeepsKeyOrder: true}
}
func (null) Close(context.Context) error { return nil }

// bare publishes n messages with the client alone: the ceiling of any relay to
// this broker. Window and confirms are those of a careful hand-written loop.
func bare(ctx context.Context, url string, n int, payload []byte) (err error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return err
	}
	q, err := ch.QueueDeclare("", true, false, false, false, nil)
	if err != nil {
		return err
	}
	defer func() {
		_, deleted := ch.QueueDelete(q.Name, false, false, false)
		err = errors.Join(err, deleted)
	}()
	const window = 1000
	waiting := make([]*amqp.DeferredConfirmation, 0, window)
	for i := range n {
		if len(waiting) == window {
			if _, err := waiting[0].WaitContext(ctx); err != nil {
				return err
			}
			waiting = waiting[1:]
		}
		dc, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", q.Name, true, false, amqp.Publishing{
			MessageId: engine.NewID().String(), DeliveryMode: amqp.Persistent, ContentType: "application/json", Body: payload, Type: "bench",
			Headers: amqp.Table{"n": int64(i)},
		})
		if err != nil {
			return err
		}
		waiting = append(waiting, dc)
	}
	for _, dc := range waiting {
		if _, err := dc.WaitContext(ctx); err != nil {
			return err
		}
	}
	return nil
}
