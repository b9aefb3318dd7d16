// Command small commits a message with PostgreSQL and relays it to RabbitMQ. It is
// the program of the README.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/outward-dev/outward/dialects/postgres"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/rabbitmq"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db := must(pgxpool.New(ctx, os.Getenv("ORDERS_DB")))
	must(postgres.Migrate(ctx, db, nil, nil)) // or once, by `outward migrate`
	broker := must(rabbitmq.New(os.Getenv("AMQP_URL"), nil))
	relay := must(engine.New(must(postgres.NewStore(db, nil)), []engine.Route{
		{Topics: "order.*", Transport: broker, Destination: rabbitmq.Destination("", "orders")},
	}, nil))

	outbox := must(postgres.NewWriter(&postgres.Options{Wake: relay.Wake}))
	err := outbox.InTx(ctx, db, func(tx pgx.Tx) error {
		// … save the order in tx; the message is saved with it, or not at all.
		_, err := outbox.Enqueue(ctx, tx, engine.Message{
			Topic: "order.submitted", Type: "order.submitted.v1", Key: "order-42", Payload: []byte(`{"order":42}`),
		})
		return err
	})
	if err == nil {
		err = relay.Run(ctx) // until Ctrl-C, and then it drains
	}
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
