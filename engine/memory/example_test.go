package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// One message on its way: enqueued in a transaction, claimed, settled.
func Example() {
	ctx := context.Background()
	db := memory.NewDatabase(nil)

	tx := db.Begin()
	if _, err := tx.Enqueue(ctx, engine.Message{Topic: "orders", Key: "o-1", Type: "order.submitted.v1"}); err != nil {
		fmt.Println(err)
		return
	}
	store := db.NewStore()
	request := engine.ClaimRequest{Limit: 10, Lease: 10 * time.Second}
	claimed, err := store.Claim(ctx, request)
	fmt.Println("before the commit:", len(claimed), err)
	if err := tx.Commit(ctx); err != nil {
		fmt.Println(err)
		return
	}
	claimed, err = store.Claim(ctx, request)
	fmt.Println("after it:", len(claimed), err)
	for _, c := range claimed {
		lost, err := store.Settle(ctx, engine.MarkPublished(c.Receipt))
		fmt.Println(c.Type, "lost:", len(lost), err, "now:", db.Look(c.ID).State)
	}
	// Output:
	// before the commit: 0 <nil>
	// after it: 1 <nil>
	// order.submitted.v1 lost: 0 <nil> now: published
}

// A script decides what the broker says, message by message.
func ExampleTransport_Script() {
	broker := memory.NewTransport(nil)
	broker.Script(func(destination string, m engine.Outgoing) memory.Outcome {
		if m.Key == "ill" {
			return memory.Outcome{Result: engine.Result{Fault: &engine.Fault{Class: engine.Rejected, Code: "too_large"}}}
		}
		return memory.Outcome{}
	})
	msgs := []engine.Outgoing{{Message: engine.Message{Key: "well"}}, {Message: engine.Message{Key: "ill"}}}
	broker.Publish(context.Background(), "orders", msgs, func(i int, res engine.Result) {
		if res.Fault != nil {
			fmt.Println(i, res.Fault)
		} else {
			fmt.Println(i, "confirmed")
		}
	})
	fmt.Println("delivered:", len(broker.DeliveredTo("orders")))
	// Output:
	// 0 confirmed
	// 1 rejected (too_large)
	// delivered: 1
}
