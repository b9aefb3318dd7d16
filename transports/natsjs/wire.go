package natsjs

import (
	"context"
	"net"
	"sync"
	"time"
)

// wire is the TCP connection under the client library (and under TLS). The library
// writes while it holds its connection's lock, so one write that blocks for ever
// would block every caller for ever, and Close as well.
type wire struct {
	net.Conn
	timeout time.Duration
}

// Write bounds every single write. After one that failed nothing more may follow:
// the library drops what it had buffered and would go on behind the gap.
func (w *wire) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		w.abort()
		return 0, err
	}
	n, err := w.Conn.Write(b)
	if err != nil {
		w.abort()
	}
	return n, err
}

// abort closes at once and throws away what the kernel has not sent yet, so that
// nothing of it can reach the server later.
func (w *wire) abort() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		// An error means that the socket is closed already; so does one of Close.
		_ = tcp.SetLinger(0)
	}
	_ = w.Close()
}

// dialer makes the library's sockets and keeps hold of them. It belongs to one
// attempt to connect, which ends with ctx.
type dialer struct {
	ctx     context.Context // the library's dialers know no context
	timeout time.Duration   // of a write

	mu   sync.Mutex
	wire *wire
	err  error // why there is no socket; the library hides a refused connection
}

// Dial is what the library calls.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	tcp, err := (&net.Dialer{}).DialContext(d.ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.err = err
		return nil, err
	}
	d.wire = &wire{Conn: tcp, timeout: d.timeout}
	return d.wire, nil
}

// abort ends what Dial has made.
func (d *dialer) abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wire != nil {
		d.wire.abort()
	}
}

func (d *dialer) result() (*wire, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wire, d.err
}
