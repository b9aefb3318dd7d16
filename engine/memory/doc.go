// Package memory is the reference store and transport of Outward: the contracts
// of package engine in the fewest lines, for tests and for reading.
//
// A [Database] is one outbox table in memory, with a clock of its own that tests
// can move. Several [Store] values over one Database stand for several relay
// processes. Every call is atomic under one mutex, so what lives between two SQL
// statements of a dialect does not exist here: keys are held and released at
// once, with no chunks and no marker of a release in progress. Everything that
// can be observed through the contract is the same as in a SQL dialect; where a
// dialect and this package differ, the conformance suite decides.
//
// Nothing is kept when the process ends.
package memory
