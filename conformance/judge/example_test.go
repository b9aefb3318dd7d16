package judge_test

import (
	"fmt"

	"github.com/outward-dev/outward/conformance/judge"
	"github.com/outward-dev/outward/engine"
)

func ExampleJudge() {
	var ledger judge.Ledger
	ids := []engine.ID{{15: 1}, {15: 2}}
	msgs := []engine.Message{
		{Topic: "orders", Type: "order.submitted.v1", Key: "order-7", Payload: []byte("{}")},
		{Topic: "orders", Type: "order.paid.v1", Key: "order-7", Payload: []byte("{}")},
	}
	ledger.Log(judge.Committed, ids, msgs)

	// A relay was killed with the first in flight, and the broker has it twice.
	var e judge.Evidence
	for _, i := range []int{0, 0} {
		e.Deliveries = append(e.Deliveries, judge.Delivery{ID: ids[i].String(), Topic: "orders", Key: "order-7", Type: msgs[i].Type, Payload: []byte("{}")})
	}
	e.Incidents = []judge.Incident{{What: "relay killed", InFlight: 1}}

	v := judge.Judge(&ledger, e)
	fmt.Println(v.Committed, "committed,", v.Delivered, "delivered,", v.Repeats, "came again,", v.Explained, "of them explained")
	for _, f := range v.Findings {
		fmt.Println(f)
	}
	// Output:
	// 2 committed, 1 delivered, 1 came again, 1 of them explained
	// lost: message 00000000-0000-0000-0000-000000000002 was committed, was never delivered, and is not in the table
}
