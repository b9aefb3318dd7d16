package wire

import (
	"net"
	"sync"
	"time"
)

// gatherMost is how many bytes may wait for the socket.
const gatherMost = 64 << 10

// Gathered is a Conn for a library that hands each message to the socket by a write
// of its own, which costs it, and the broker that reads them one by one, a tenth of
// what they can do. What is written while a write is under way goes out with the
// next one, and nothing waits for more to come.
//
// So a Write that succeeded says no more than one into the kernel's buffer: the
// bytes may get lost with the connection. A Write that failed has sent nothing.
type Gathered struct {
	*Conn

	mu      sync.Mutex
	changed sync.Cond
	waiting []byte
	spare   []byte
	writing bool
	err     error
}

// Gather returns c with its writes gathered.
func Gather(c *Conn) *Gathered {
	g := &Gathered{Conn: c}
	g.changed.L = &g.mu
	return g
}

// Write waits while too much waits for the socket already.
func (g *Gathered) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.err == nil && len(g.waiting) >= gatherMost {
		g.changed.Wait()
	}
	if g.err != nil {
		return 0, g.err
	}
	g.waiting = append(g.waiting, b...)
	if !g.writing {
		g.writing = true
		go g.write()
	}
	return len(b), nil
}

// write writes until nothing waits. It ends within the time of one write after the
// connection's last use.
func (g *Gathered) write() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.waiting) > 0 && g.err == nil {
		out := g.waiting
		g.waiting = g.spare[:0]
		g.changed.Broadcast()
		g.mu.Unlock()
		_, err := g.Conn.Write(out)
		g.mu.Lock()
		g.spare = out
		if g.err == nil {
			g.err = err
		}
	}
	g.writing = false
	g.changed.Broadcast()
}

// Close sends what waits, for at most [Grace], and closes.
func (g *Gathered) Close() error {
	timer := time.AfterFunc(Grace, g.Abort)
	defer timer.Stop()
	g.mu.Lock()
	for g.writing {
		g.changed.Wait()
	}
	if g.err == nil {
		g.err = net.ErrClosed
	}
	g.mu.Unlock()
	return g.Conn.Close()
}

// Abort closes at once and throws away what was not sent yet; see [Conn.Abort].
func (g *Gathered) Abort() {
	g.mu.Lock()
	if g.err == nil {
		g.err = net.ErrClosed
	}
	g.changed.Broadcast()
	g.mu.Unlock()
	g.Conn.Abort()
}
