// Package faultproxy stands between a client and a server, in tests, and does to
// their connections what networks and servers do: it cuts them, stops reading,
// stops answering, becomes slow, loses one end of a connection or single answers.
//
// It knows nothing of a protocol. One that is to act on single messages is given a
// function that reads one ([Proxy.Split]) and functions that see each before it is
// passed on.
//
// Only tests import this package.
package faultproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy listens on a port of its own and passes what comes on to its target. It
// ends with its test.
type Proxy struct {
	t      testing.TB
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu       sync.Mutex
	split    func(r *bufio.Reader) ([]byte, error)
	changed  *sync.Cond
	closed   bool
	deaf     bool
	mute     bool
	slow     time.Duration
	keep     bool // the server's ends, when clients go
	up, down func(c *Conn, unit []byte) bool
	conns    map[*Conn]bool
	dials    int
}

// A Conn is one connection through a proxy.
type Conn struct {
	p              *Proxy
	client, server net.Conn
	write          sync.Mutex // to the client, unit by unit
	deaf           bool       // under the proxy's lock
	half           bool       // likewise: the server's end is gone and the client is not told
}

// New returns a proxy for the server at target, a host and a port.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0") // Close ends it
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, ln: ln, target: target, conns: map[*Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr is where the proxy listens, a host and a port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Close ends the proxy and its connections, and returns when nothing of it is left.
func (p *Proxy) Close() {
	p.set(func() { p.closed = true })
	_ = p.ln.Close() // a second Close is one too many, and harmless
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// Deaf stops reading from clients: what they write stays in the buffers on the way.
func (p *Proxy) Deaf(on bool) { p.set(func() { p.deaf = on }) }

// Mute stops passing on what the server says.
func (p *Proxy) Mute(on bool) { p.set(func() { p.mute = on }) }

// Slow makes each unit, in either direction, take so long; 0: no longer.
func (p *Proxy) Slow(d time.Duration) { p.set(func() { p.slow = d }) }

// HalfOpen ends the server's end of every connection and tells no client, as when a
// host is gone or a firewall has forgotten: what clients write goes nowhere.
// Connections that come after it are well.
func (p *Proxy) HalfOpen() {
	p.set(func() {
		for c := range p.conns {
			c.half = true
			_ = c.server.Close() // it may be closed
		}
	})
}

// Keep leaves the server's end of connections open whose client goes away from now
// on, as when the client's host is gone: the server is not told.
func (p *Proxy) Keep(on bool) { p.set(func() { p.keep = on }) }

// Split has f read one unit of the protocol at a time, in either direction, on the
// connections that come after it. Without it a unit is whatever there is.
func (p *Proxy) Split(f func(r *bufio.Reader) ([]byte, error)) { p.set(func() { p.split = f }) }

// Up has each unit that a client sends shown to f, which says whether it is passed
// on. nil: all are.
func (p *Proxy) Up(f func(c *Conn, unit []byte) bool) { p.set(func() { p.up = f }) }

// Down is Up for what the server sends.
func (p *Proxy) Down(f func(c *Conn, unit []byte) bool) { p.set(func() { p.down = f }) }

// Cut resets every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Cut()
	}
}

// Open counts the connections that are open.
func (p *Proxy) Open() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.conns) }

// Dials counts the connections that ever were.
func (p *Proxy) Dials() int { p.mu.Lock(); defer p.mu.Unlock(); return p.dials }

// Cut resets the connection. What the kernel still holds of it is thrown away.
func (c *Conn) Cut() {
	for _, conn := range []net.Conn{c.client, c.server} {
		// Errors say that it is closed already.
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// Deaf is [Proxy.Deaf] for this connection alone. A unit that is just being shown to
// Up's function waits too.
func (c *Conn) Deaf(on bool) { c.p.set(func() { c.deaf = on }) }

// Say sends something to the client as if the server had.
func (c *Conn) Say(unit []byte) bool {
	c.write.Lock()
	defer c.write.Unlock()
	_, err := c.client.Write(unit)
	return err == nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = client.Close() // there is nobody to tell
			continue
		}
		// What a client has written and nobody has read lies in here; little of it, so
		// that a test can tell it from what the client still has.
		if err := client.(*net.TCPConn).SetReadBuffer(1 << 15); err != nil {
			p.t.Errorf("faultproxy: %v", err)
		}
		c := &Conn{p: p, client: client, server: server}
		p.mu.Lock()
		p.dials++
		p.conns[c] = true
		if p.closed {
			c.Cut()
		}
		p.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() {
			p.pass(c, client, &p.deaf, &p.up, func(b []byte) bool {
				p.waitWhile(&c.deaf)
				_, err := server.Write(b)
				return err == nil
			})
		})
		both.Go(func() { p.pass(c, server, &p.mute, &p.down, c.Say) })
		p.wg.Go(func() {
			both.Wait()
			p.set(func() { delete(p.conns, c) })
		})
	}
}

// pass passes on what comes from one side.
func (p *Proxy) pass(c *Conn, from net.Conn, stopped *bool, seen *func(*Conn, []byte) bool, to func([]byte) bool) {
	defer func() {
		p.mu.Lock()
		half := !p.closed && (c.half && from == c.server || p.keep && from == c.client)
		p.mu.Unlock()
		if !half {
			c.Cut()
		}
	}()
	r := bufio.NewReaderSize(from, 1<<16)
	p.mu.Lock()
	split := p.split
	p.mu.Unlock()
	if split == nil {
		split = available
	}
	for {
		p.waitWhile(stopped)
		unit, err := split(r)
		if err != nil {
			return
		}
		p.waitWhile(stopped)
		p.mu.Lock()
		f, slow := *seen, p.slow
		p.mu.Unlock()
		if slow > 0 {
			p.sleep(slow)
		}
		if f != nil && !f(c, unit) {
			continue
		}
		if !to(unit) && !p.swallows(c, from) {
			return
		}
	}
}

// swallows reports whether what comes from that side goes nowhere, and nobody is
// told.
func (p *Proxy) swallows(c *Conn, from net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed && (c.half && from == c.client || p.keep && from == c.server)
}

// sleep waits for d or for the proxy's end.
func (p *Proxy) sleep(d time.Duration) {
	over := time.AfterFunc(d, func() { p.set(func() {}) })
	defer over.Stop()
	end := time.Now().Add(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed && time.Now().Before(end) {
		p.changed.Wait()
	}
}

func (p *Proxy) waitWhile(stopped *bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for *stopped && !p.closed {
		p.changed.Wait()
	}
}

// available reads whatever there is, at least one byte.
func available(r *bufio.Reader) ([]byte, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	unit := make([]byte, r.Buffered())
	_, err := io.ReadFull(r, unit)
	return unit, err
}
