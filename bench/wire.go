package main

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// traffic counts what a pool sends to the server. It reads the protocol itself, so
// nothing that the code under test does with its driver escapes it.
type traffic struct {
	statements atomic.Int64 // Execute and Query messages, BEGIN and COMMIT among them
	// trips are the times that something was executed after an answer was read. What a
	// new connection asks for once, to log in and to prepare, is none.
	trips atomic.Int64
}

// count makes the connections of config be counted.
func (t *traffic) count(config *pgxpool.Config) {
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c, traffic: t, header: make([]byte, 0, 5)}, nil
	}
}

// A countedConn follows the messages of a PostgreSQL client without TLS.
type countedConn struct {
	net.Conn
	traffic *traffic
	started bool   // the startup message, which has no type, is over
	header  []byte // of the current message, as far as it was seen
	skip    int    // bytes of its body to come
	asked   atomic.Bool
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.asked.Store(false)
	}
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.follow(p)
	return c.Conn.Write(p)
}

func (c *countedConn) follow(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			c.skip, p = c.skip-n, p[n:]
			continue
		}
		size := 5 // a type and a length, which counts itself
		if !c.started {
			size = 4
		}
		n := min(size-len(c.header), len(p))
		c.header, p = append(c.header, p[:n]...), p[n:]
		if len(c.header) < size {
			return
		}
		c.skip = int(binary.BigEndian.Uint32(c.header[size-4:])) - 4
		if c.started && (c.header[0] == 'E' || c.header[0] == 'Q') {
			c.traffic.statements.Add(1)
			if !c.asked.Swap(true) {
				c.traffic.trips.Add(1)
			}
		}
		c.started, c.header = true, c.header[:0]
	}
}
