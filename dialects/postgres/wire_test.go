package postgres

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A wire is the network between a pool and the server, in the hands of a test.
type wire struct {
	mu   sync.Mutex
	lose string // the connection that sends this is cut
	sent bool   // after the server has done it and before its answer arrives; else before it arrives
	cuts int
}

// through makes a pool connect through w.
func (w *wire) through(c *pgxpool.Config) {
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wiredConn{Conn: conn, w: w}, nil
	}
	// Statements then carry their text each time, so that the wire can see them.
	c.ConnConfig.DefaultQueryExecMode = execMode
}

// cut makes w cut the next connection that sends text: after the server has done
// it, or before it could.
func (w *wire) cut(text string, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose, w.sent, w.cuts = text, done, 0
}

func (w *wire) wasCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts > 0
}

type wiredConn struct {
	net.Conn
	w    *wire
	mu   sync.Mutex
	dead bool // what arrives from now on is lost
}

func (c *wiredConn) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	hit := c.w.lose != "" && bytes.Contains(b, []byte(c.w.lose))
	done := c.w.sent
	if hit {
		c.w.lose, c.w.cuts = "", c.w.cuts+1
	}
	c.w.mu.Unlock()
	if hit && !done {
		c.Close()
		return 0, io.ErrClosedPipe
	}
	if hit {
		c.mu.Lock()
		c.dead = true
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c *wiredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	if dead && err == nil {
		// The answer has come this far, so the server has done its part.
		c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}
