package main

import (
	"context"
	"iter"
	"os"
	"strings"

	"github.com/outward-dev/outward/engine"
)

// A target is where messages go.
type target struct {
	name    string // a broker's as scripts/services has it
	url     string
	version func(ctx context.Context, url string) (string, error)
	open    func(ctx context.Context) (*place, error)
}

// lacks is the name of the server that is not there, or nothing.
func (t target) lacks() string {
	if t.name == toNull.name || t.url != "" {
		return ""
	}
	return t.name
}

func brokerURL(name string) string {
	return os.Getenv("OUTWARD_TEST_" + strings.ToUpper(name) + "_URL")
}

// A place is a fresh queue or stream at a target, and the two ways to it.
type place struct {
	routes []engine.Route // Outward's
	// publisher is the client's own way, with so many unconfirmed messages at most. One
	// goroutine uses it.
	publisher func(window int) (publisher, error)
	close     func() error // deletes the place
}

// A publisher is a broker's client library, used as a careful programmer would who
// knows it well: pipelined, with every confirmation waited for.
type publisher interface {
	// publish sends msgs and returns when all of them are confirmed.
	publish(ctx context.Context, msgs iter.Seq[message]) error
	close() error
}

// A message is what a careful hand-written loop publishes: an id by which a
// consumer can tell repeats, a type, and the body.
type message struct {
	id, typ string
	body    []byte
}
