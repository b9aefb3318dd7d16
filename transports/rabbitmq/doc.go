// Package rabbitmq publishes to RabbitMQ over AMQP 0-9-1.
//
// A message counts as published when the broker confirmed it on a channel in
// confirm mode, it was sent persistent and mandatory, and it was not returned:
// the exchange took it and at least one queue has it. Messages are pipelined, a
// window of them at a time, and each has its own outcome.
//
// A destination is written EXCHANGE or EXCHANGE/ROUTING_KEY; see [Destination].
// Each exchange has a channel of its own, so that a missing or forbidden one
// stops no other. How a message looks on the wire is written in
// docs/wire-format.md.
//
// What the broker does with a message after it has confirmed it is decided there:
// a queue with a length limit and drop-head, or a message TTL, throws confirmed
// messages away. AMQP can't see such policies, so [Transport.Check] doesn't
// either.
package rabbitmq
