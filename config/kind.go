package config

import (
	"log/slog"

	"github.com/outward-dev/outward/engine"
)

// A kind reads the keys of a transport, and those of the routes that go to it.
type kind struct {
	name string
	// read reads the keys beside kind and returns nil after a fault.
	read func(m *mapping) broker
	// route reads a route's destination; empty: the topic's own.
	route func(m *mapping) string
}

// kinds are those that are built in.
var kinds = []kind{rabbitmqKind, natsKind}

// kindsToCome are named by the documentation and not built in yet.
var kindsToCome = []string{"kafka", "webhook"}

// brokerOptions are what a transport gets to know of the process.
type brokerOptions struct {
	name         string // of the transport
	relay        string
	destinations []string // that the routes name; not those that are a topic's own
	logger       *slog.Logger
}

var _ engine.Transport = noTransport{}

func kindOf(name string) *kind {
	for i := range kinds {
		if kinds[i].name == name {
			return &kinds[i]
		}
	}
	return nil
}

func kindsBuilt() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}
