// Package engine is the core of Outward: it moves messages that were committed
// in a SQL database to a broker, at least once, with a stable identity, in order
// per key where order is asked for.
//
// The package holds three contracts and one engine over them. A [Store] is what
// a dialect implements (package dialects/postgres and its kin); a [Transport] is
// what a broker client implements (package transports/rabbitmq and its kin); a
// [Relay] claims messages from the one and publishes them through the other. It
// depends on the standard library alone.
//
// What is promised, and what is not, stands in docs/guarantees.md; how a row
// moves from state to state, in docs/architecture.md.
package engine
