package mysql

import (
	"context"
	"fmt"
)

// Wake signals the store's listeners: there may be new work. Give it to a writer
// of the same process as Options.Wake. It never blocks.
func (s *Store) Wake() { s.bell.Ring() }

// Listen implements [engine.Notifier]. Signals come from [Store.Wake] alone, and so
// from writers of this process; what other processes enqueue is found by polling.
func (s *Store) Listen(ctx context.Context) (<-chan struct{}, error) {
	ch, err := s.bell.Listen(ctx)
	if err != nil {
		return nil, fmt.Errorf("mysql: listen: %w", err)
	}
	return ch, nil
}
