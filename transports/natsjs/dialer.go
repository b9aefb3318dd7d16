package natsjs

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/outward-dev/outward/transports/internal/wire"
)

// dialer makes the library's sockets and keeps hold of them. It belongs to one
// attempt to connect, which ends with ctx.
type dialer struct {
	ctx     context.Context // the library's dialers know no context
	timeout time.Duration   // of a write

	mu   sync.Mutex
	wire *wire.Conn
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
	d.wire = &wire.Conn{Conn: tcp, Timeout: d.timeout}
	return d.wire, nil
}

// abort ends what Dial has made.
func (d *dialer) abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wire != nil {
		d.wire.Abort()
	}
}

func (d *dialer) result() (*wire.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wire, d.err
}
