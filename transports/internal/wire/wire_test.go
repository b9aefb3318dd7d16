package wire_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/transports/internal/wire"
)

// A write that nobody reads ends, and nothing follows it.
func TestWriteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := &wire.Conn{Conn: ours, Timeout: time.Minute}
		start := time.Now()
		if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := theirs.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is still there")
		}
		if _, err := c.Write([]byte("y")); err == nil {
			t.Error("a second write after one that failed")
		}
		c.Abort()
	})
}

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sent := make(chan struct{})
		cuts := 0
		start := time.Now()
		wire.Guard(ctx, sent, func() {
			if cuts++; cuts == 3 {
				close(sent)
			}
		})
		if cuts != 3 || time.Since(start) != time.Second+3*wire.Grace {
			t.Errorf("%d cuts in %v, want 3 of them, a grace apart, after ctx", cuts, time.Since(start))
		}
		wire.Guard(t.Context(), sent, func() { t.Error("cut what was sent") })
	})
}

func TestDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		dead, never := make(chan struct{}), make(chan struct{})
		close(dead)
		for _, answer := range []bool{true, false} {
			if got := wire.Drained(&work, never, func() bool { return answer }); got != answer {
				t.Errorf("%v, want the answer %v", got, answer)
			}
		}
		late := func() bool { time.Sleep(time.Hour); return true }
		start := time.Now()
		if wire.Drained(&work, never, late) || time.Since(start) != wire.Grace {
			t.Errorf("no answer, and it counted as one after %v", time.Since(start))
		}
		if !wire.Drained(&work, dead, late) {
			t.Error("something can be sent on a dead connection")
		}
		work.Wait()
	})
}
