package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/transports/internal/wire"
)

// counted counts the writes on a connection.
type counted struct {
	net.Conn
	mu     sync.Mutex
	writes int
}

func (c *counted) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func gathered(t *testing.T) (g *wire.Gathered, under *counted, theirs net.Conn) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	under = &counted{Conn: ours}
	return wire.Gather(&wire.Conn{Conn: under, Timeout: time.Minute}), under, theirs
}

// Whatever is written arrives, in order, in few writes, and closing waits for it.
func TestGatheredWritesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, under, theirs := gathered(t)
		var got bytes.Buffer
		read := make(chan error)
		go func() {
			time.Sleep(time.Millisecond) // a first write hangs until all is written
			_, err := io.Copy(&got, theirs)
			read <- err
		}()
		var want bytes.Buffer
		for i := range 3000 {
			line := fmt.Appendf(nil, "message %d\n", i)
			want.Write(line)
			if i == 1 {
				synctest.Wait() // the first has been taken
			}
			if n, err := g.Write(line); n != len(line) || err != nil {
				t.Fatalf("write %d: %d, %v", i, n, err)
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if err := <-read; err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%d bytes arrived of %d, or others (%v)", got.Len(), want.Len(), err)
		}
		if under.writes != 2 {
			t.Errorf("%d writes; want one for what came first and one for the rest", under.writes)
		}
		if _, err := g.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write after Close: %v", err)
		}
	})
}

// A peer that reads nothing fails every write within the time of one, and nothing
// follows what was cut off.
func TestGatheredWritesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, theirs := gathered(t)
		start := time.Now()
		var err error
		for err == nil {
			_, err = g.Write(make([]byte, 1000))
		}
		if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took != time.Minute {
			t.Errorf("%v after %v", err, took)
		}
		if n, err := theirs.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes arrived after the failure", n)
		}
		if _, again := g.Write([]byte("y")); again == nil {
			t.Error("a write after one that failed")
		}
	})
}

func TestGatheredEndsInTime(t *testing.T) {
	for name, end := range map[string]func(*wire.Gathered){
		"closed":  func(g *wire.Gathered) { _ = g.Close() },
		"aborted": (*wire.Gathered).Abort,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _, _ := gathered(t)
				stuck := make(chan error)
				go func() {
					var err error
					for err == nil {
						_, err = g.Write(make([]byte, 1000))
					}
					stuck <- err
				}()
				synctest.Wait()
				start := time.Now()
				go end(g)
				if err := <-stuck; !errors.Is(err, net.ErrClosed) || time.Since(start) > wire.Grace {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		})
	}
}
