// Package transporttest holds what the tests of every transport do alike: what they
// publish and expect, the ways not to get in, and the outages.
//
// Only tests import this package.
package transporttest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Unique returns a name that no other test uses. It has letters, digits and dashes.
func Unique(prefix string) string {
	var b [6]byte
	rand.Read(b[:]) // never fails, by its documentation
	return "outward-test-" + prefix + "-" + hex.EncodeToString(b[:])
}

// Message is an ordinary message.
func Message(body string) engine.Outgoing {
	return engine.Outgoing{
		Message: engine.Message{
			ID: engine.NewID(), Topic: "order.submitted", Type: "order.submitted.v1",
			Payload: []byte(body), OccurredAt: time.Now(),
		},
		CreatedAt: time.Now(),
	}
}

// Messages are n ordinary messages.
func Messages(n int) []engine.Outgoing {
	msgs := make([]engine.Outgoing, n)
	for i := range msgs {
		msgs[i] = Message(`{"n":1}`)
	}
	return msgs
}

// Publish publishes and returns the result of each message, after it has checked
// that each was reported exactly once and none after Publish had returned.
func Publish(t testing.TB, ctx context.Context, tr engine.Transport, destination string, msgs []engine.Outgoing) []engine.Result {
	t.Helper()
	var mu sync.Mutex
	returned := false
	results := make([]engine.Result, len(msgs))
	counts := make([]int, len(msgs))
	tr.Publish(ctx, destination, msgs, func(i int, r engine.Result) {
		mu.Lock()
		defer mu.Unlock()
		if returned {
			t.Errorf("message %d was reported after Publish had returned", i)
		}
		counts[i]++
		results[i] = r
	})
	mu.Lock()
	defer mu.Unlock()
	returned = true
	for i, n := range counts {
		if n != 1 {
			t.Errorf("message %d was reported %d times", i, n)
		}
	}
	return results
}

// Within returns a context that ends after d, and with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// CloseAfter closes tr at the end of the test.
func CloseAfter(t testing.TB, tr engine.Transport) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := tr.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// WantFault fails the test unless r has a fault of that class and code.
func WantFault(t testing.TB, r engine.Result, class engine.Class, code string) {
	t.Helper()
	if r.Fault == nil {
		t.Errorf("confirmed, want %v (%s)", class, code)
	} else if r.Fault.Class != class || r.Fault.Code != code {
		t.Errorf("%v, want %v (%s)", r.Fault, class, code)
	}
}

// WantConfirmed fails the test unless all are confirmed.
func WantConfirmed(t testing.TB, rs ...engine.Result) {
	t.Helper()
	for i, r := range rs {
		if r.Fault != nil {
			t.Errorf("message %d: %v, want confirmed", i, r.Fault)
		}
	}
}

// Eventually polls what has no event.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Goroutines waits until no more than n are left, or fails with their stacks.
func Goroutines(t testing.TB, n int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > n {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, want at most %d\n%s", runtime.NumGoroutine(), n, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(5 * time.Millisecond) // polling what has no event
	}
}
