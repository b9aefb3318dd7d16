package rabbitmq_test

import (
	"fmt"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/rabbitmq"
)

func ExampleDestination() {
	fmt.Println(rabbitmq.Destination("orders", ""))             // by topic
	fmt.Println(rabbitmq.Destination("orders", "eu.submitted")) // one routing key
	fmt.Println(rabbitmq.Destination("", "billing"))            // straight to a queue
	fmt.Println(rabbitmq.Destination("a/b", "50%"))
	// Output:
	// orders
	// orders/eu.submitted
	// amq.default/billing
	// a%2Fb/50%25
}

// New connects to nothing: the broker is needed when the first message goes out.
func ExampleNew() {
	transport, err := rabbitmq.New("amqp://app:secret@broker.internal/orders", &rabbitmq.Options{
		Source:       "/orders",
		Destinations: []string{"orders"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	routes := []engine.Route{
		{Topics: "order.*", Transport: transport, Destination: rabbitmq.Destination("orders", "")},
		{Topics: "audit.>", Transport: transport, Destination: rabbitmq.Destination("", "audit")},
	}
	for _, r := range routes {
		fmt.Println(r.Topics, "->", r.Destination)
	}
	// Output:
	// order.* -> orders
	// audit.> -> amq.default/audit
}

// Whatever is wrong with a URL, the error has nothing of it.
func ExampleNew_badURL() {
	_, err := rabbitmq.New("amqp://app:100%secret@broker.internal/", &rabbitmq.Options{Window: -1})
	fmt.Println(err)
	// Output:
	// rabbitmq: a URL contains a % that begins no percent-encoding; write %25
	// Window is -1; it must be from 1 to 65535
}
