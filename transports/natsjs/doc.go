// Package natsjs publishes to NATS JetStream.
//
// A message counts as published when the stream that has its subject said so: a
// PubAck, from the expected stream where one is named. A duplicate counts too: the
// stream has it. Messages are pipelined, a window of them at a time, and each has
// its own outcome; nothing is ever sent twice without the caller's asking.
//
// A destination is a subject. How a message looks on the wire is written in
// docs/wire-format.md.
//
// What a stream does with a message after it has acknowledged it is decided there:
// one in memory forgets it at a restart, one that discards old messages at its
// limit throws it away, and by default a server acknowledges before the disk has
// it. [Transport.Check] looks at the streams and says so.
package natsjs
