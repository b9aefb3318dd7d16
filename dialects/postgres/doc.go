// Package postgres keeps an outbox in PostgreSQL 15 or newer, through pgx.
//
// A [Writer] puts messages into the caller's own transaction; a [Store] is what
// an engine.Relay takes them out with. The tables are made by [Migrate], or by
// any migration tool from what [Render] writes; nothing else creates anything.
//
// The table of messages is a public contract: any program enqueues with one
// INSERT of the columns it has, topic and type at the least. How a row moves from
// state to state, and which lock guards what, is told in docs/architecture.md;
// the statements here say only why they are as they are.
//
// The server must be the primary. Behind a pooler that hands a connection to
// another client after each transaction (PgBouncer's transaction mode) use
// pgx.QueryExecModeExec or a cache of descriptions, as with pgx everywhere;
// [Store.Listen] then needs an address that leads past the pooler.
package postgres
