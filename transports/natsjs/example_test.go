package natsjs_test

import (
	"fmt"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/natsjs"
)

// New connects to nothing: a server is needed when the first message goes out.
func ExampleNew() {
	transport, err := natsjs.New("nats://n1.internal,nats://n2.internal", &natsjs.Options{
		Source:    "/orders",
		Stream:    "ORDERS",
		CredsFile: "/run/secrets/orders.creds",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	routes := []engine.Route{
		{Topics: "order.>", Transport: transport},                             // the subject is the topic
		{Topics: "audit.>", Transport: transport, Destination: "audit.order"}, // one subject for all
	}
	for _, r := range routes {
		fmt.Printf("%s -> %q\n", r.Topics, r.Destination)
	}
	// Output:
	// order.> -> ""
	// audit.> -> "audit.order"
}

// Whatever is wrong with a URL, the error has nothing of it.
func ExampleNew_badURL() {
	_, err := natsjs.New("nats://app:100%secret@n1.internal", &natsjs.Options{Window: -1})
	fmt.Println(err)
	// Output:
	// natsjs: a URL contains a % that begins no percent-encoding; write %25
	// Window is -1; it must be from 1 to 65535
}

func ExampleCheckSubject() {
	fmt.Println(natsjs.CheckSubject("order.submitted"))
	fmt.Println(natsjs.CheckSubject("order.*"))
	// Output:
	// <nil>
	// the subject "order.*" has a wildcard, which only subscriptions may
}
