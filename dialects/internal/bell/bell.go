// Package bell wakes those who listen in this process, for databases that tell nobody
// of a commit.
package bell

import (
	"context"
	"sync"
)

// A Bell has listeners. The zero value has none. It may be used concurrently.
type Bell struct {
	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
}

// Ring signals the listeners. It never blocks, and many rings count as one.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.listeners {
		select {
		case ch <- struct{}{}:
		default: // one is waiting already
		}
	}
}

// Listen returns a channel that has an element after a ring, and is closed when ctx
// ends.
func (b *Bell) Listen(ctx context.Context) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = map[chan struct{}]struct{}{}
	}
	b.listeners[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, ch)
		close(ch)
	})
	return ch, nil
}
