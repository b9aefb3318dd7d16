// Package wire keeps hold of the socket under a client library that knows no
// context: no write on it lasts for ever, and it can be cut so that nothing more of
// it arrives.
package wire

import (
	"context"
	"net"
	"sync"
	"time"
)

// Grace is how long a call that ran out of time waits for proof that nothing of its
// messages is on its way, before it cuts the connection.
const Grace = 500 * time.Millisecond

// Conn is the TCP connection under a client library (and under TLS). The libraries
// write while they hold the locks that their own Close and heartbeat need, so one
// write that blocks for ever blocks everything for ever: a broker in alarm stops
// reading, and that is how it happens (rabbitmq/amqp091-go#111, #178, #122).
type Conn struct {
	net.Conn
	Timeout time.Duration // of a write
}

// Write bounds every single write. After one that failed nothing more may follow:
// a library may drop what it had buffered and go on behind the gap.
func (c *Conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.Timeout)); err != nil {
		c.Abort()
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		c.Abort()
	}
	return n, err
}

// Abort closes at once and throws away what the kernel has not sent yet, so that
// nothing of it can reach the broker later. It may be called again.
func (c *Conn) Abort() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		// An error means that the socket is closed already; so does one of Close.
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Guard returns when sent is closed. When ctx has ended and a write still hangs it
// calls cut, which cuts the connection that is being written to, if there is one:
// nothing else can end a write.
func Guard(ctx context.Context, sent <-chan struct{}, cut func()) {
	select {
	case <-sent:
		return
	case <-ctx.Done():
	}
	timer := time.NewTimer(Grace)
	defer timer.Stop()
	for {
		select {
		case <-sent:
			return
		case <-timer.C:
			cut()
			timer.Reset(Grace)
		}
	}
}

// Drained reports whether the broker has read everything that was written before
// the call. It reads a connection in order, so an answer to anything that is asked
// now proves it: ask asks and reports whether it was answered. It runs in work, and
// may go on there until the connection is dead. A connection that is dead counts:
// nothing more can be sent on it.
func Drained(work *sync.WaitGroup, dead <-chan struct{}, ask func() bool) bool {
	answered := make(chan bool, 1)
	work.Go(func() { answered <- ask() })
	timer := time.NewTimer(Grace)
	defer timer.Stop()
	select {
	case ok := <-answered:
		return ok
	case <-timer.C:
		return false
	case <-dead:
		return true
	}
}
