package sqlite

import (
	"context"
	"fmt"
	"sync"
)

// bell wakes those who listen in this process. SQLite itself tells nobody of a
// commit.
type bell struct {
	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
}

// Wake signals the store's listeners: there may be new work. Give it to a writer
// of the same process as Options.Wake. It never blocks.
func (s *Store) Wake() {
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	for ch := range s.bell.listeners {
		select {
		case ch <- struct{}{}:
		default: // one is waiting already
		}
	}
}

// Listen implements [engine.Notifier]. Signals come from [Store.Wake] alone, and so
// from writers of this process; what other processes enqueue is found by polling.
func (s *Store) Listen(ctx context.Context) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sqlite: listen: %w", err)
	}
	ch := make(chan struct{}, 1)
	s.bell.mu.Lock()
	defer s.bell.mu.Unlock()
	if s.bell.listeners == nil {
		s.bell.listeners = map[chan struct{}]struct{}{}
	}
	s.bell.listeners[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.bell.mu.Lock()
		defer s.bell.mu.Unlock()
		delete(s.bell.listeners, ch)
		close(ch)
	})
	return ch, nil
}
