package main

import (
	"context"
	"errors"

	"github.com/outward-dev/outward/engine"
)

// A bare is the client alone, fed from memory: the ceiling of any relay to this
// broker.
type bare struct {
	to     target
	window int // unconfirmed messages at most
}

func (r bare) run(ctx context.Context, b *bench, n int) (f figures, err error) {
	p, err := r.to.open(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	pub, err := p.publisher(r.window)
	if err != nil {
		return f, err
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = engine.NewID().String()
	}
	m := &meter{}
	if err := m.start(ctx); err != nil {
		return f, err
	}
	err = pub.publish(ctx, func(yield func(message) bool) {
		for _, id := range ids {
			if !yield(message{id, "bench.v1", b.payload}) {
				return
			}
		}
	})
	f, merr := m.stop(ctx, n)
	return f, errors.Join(err, merr, pub.close())
}
