package engine_test

import (
	"context"
	"fmt"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// A relay takes what was committed to the broker. Here the table and the broker
// are in memory; a dialect and a transport take their places in a program.
func Example() {
	ctx := context.Background()
	db, broker := memory.NewDatabase(nil), memory.NewTransport(nil)

	tx := db.Begin() // with the order, in one transaction
	if _, err := tx.Enqueue(ctx, engine.Message{Topic: "order.submitted", Key: "order-7", Type: "order.submitted.v1", Payload: []byte(`{"id":7}`)}); err != nil {
		panic(err)
	}
	if err := tx.Commit(ctx); err != nil {
		panic(err)
	}

	relay, err := engine.New(db.NewStore(), engine.AllTo(broker), nil)
	if err != nil {
		panic(err)
	}
	n, err := relay.Step(ctx) // a daemon calls Run instead
	fmt.Println(n, err)
	for _, d := range broker.Delivered() {
		fmt.Println(d.Destination, d.Type, string(d.Payload))
	}
	// Output:
	// 1 <nil>
	// order.submitted order.submitted.v1 {"id":7}
}
