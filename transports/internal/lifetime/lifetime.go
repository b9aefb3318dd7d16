// Package lifetime counts the calls of a transport, so that Close can let them
// finish and cut off those that don't.
package lifetime

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A Lifetime is a transport's, from New to Close.
type Lifetime struct {
	// Work has every goroutine of the transport.
	Work sync.WaitGroup

	cut    context.Context // ends when Close cuts off what still runs
	cutOff context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// New begins one.
func New() *Lifetime {
	l := &Lifetime{}
	l.cut, l.cutOff = context.WithCancel(context.Background())
	return l
}

// Context ends when Close cuts off what still runs, and when everything is closed.
func (l *Lifetime) Context() context.Context { return l.cut }

// Enter counts a call in, unless the transport is closed. One that was counted in
// ends with Leave.
func (l *Lifetime) Enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls.Add(1)
	return true
}

// Leave counts a call out.
func (l *Lifetime) Leave() { l.calls.Done() }

// Bind returns a context for a call's work, which ends with ctx and when Close cuts
// it off. done must be called.
func (l *Lifetime) Bind(ctx context.Context) (bound context.Context, done func()) {
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.cut, func() { cancel(errors.New("the transport was closed")) })
	return bound, func() { stop(); cancel(nil) }
}

// Close lets the calls that run finish until ctx ends, then cuts them off, which is
// its error. Then it calls goodbye, which ends the connections; no call is running.
// It returns when nothing in Work is left. Closing again does nothing. kind begins
// the error's text.
func (l *Lifetime) Close(ctx context.Context, kind string, goodbye func()) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()

	idle := make(chan struct{})
	go func() { // ends with the last call, which the cut below brings about
		l.calls.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("%s: close: cut off what was being published: %w", kind, context.Cause(ctx))
		l.cutOff()
		<-idle
	}
	l.cutOff()
	goodbye()
	l.Work.Wait()
	return err
}
