package rabbitmq

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A proxy stands between a transport and the broker and does to the connection
// what networks and brokers do. It reads frames, so it can act on single methods.
type proxy struct {
	t      testing.TB
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond
	closed   bool
	conns    map[*proxied]bool
	accepted int
	// deaf: nothing is read from clients. mute: nothing is passed on to clients.
	deaf, mute bool
	// alarm: as a broker in memory alarm, the first publish of a connection is
	// answered with connection.blocked, and the connection is read no more.
	alarm bool
	// noConfirm: channels whose confirmations are withheld.
	noConfirm func(exchange string) bool
	// onPublish sees each basic.publish before it is passed on.
	onPublish func(p *proxied)
}

// proxied is one connection through the proxy.
type proxied struct {
	p              *proxy
	client, server net.Conn
	write          sync.Mutex        // to the client, frame by frame
	exchanges      map[uint16]string // by channel: where it publishes to
	blocked        bool
}

func newProxy(t testing.TB, brokerURL string) *proxy {
	t.Helper()
	u, err := url.Parse(brokerURL)
	if err != nil {
		t.Fatal("the broker's URL can't be parsed")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, ln: ln, target: u.Host, conns: map[*proxied]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.set(func() { p.closed, p.deaf, p.mute = true, false, false })
		ln.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// url is the broker's URL, by way of the proxy.
func (p *proxy) url(brokerURL string) string {
	u, err := url.Parse(brokerURL)
	if err != nil {
		p.t.Fatal("the broker's URL can't be parsed")
	}
	u.Host = p.ln.Addr().String()
	return u.String()
}

// set changes what the proxy does.
func (p *proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// cut resets every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.cut()
	}
}

func (c *proxied) cut() {
	for _, conn := range []net.Conn{c.client, c.server} {
		_ = conn.(*net.TCPConn).SetLinger(0) // fails only on one that is closed
		conn.Close()
	}
}

// open counts the connections that are open; dials, those that ever were.
func (p *proxy) open() int  { p.mu.Lock(); defer p.mu.Unlock(); return len(p.conns) }
func (p *proxy) dials() int { p.mu.Lock(); defer p.mu.Unlock(); return p.accepted }

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
		if err != nil {
			client.Close()
			continue
		}
		c := &proxied{p: p, client: client, server: server, exchanges: map[uint16]string{}}
		p.mu.Lock()
		p.accepted++
		p.conns[c] = true
		if p.closed {
			c.cut()
		}
		p.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() { c.up(); c.cut() })
		both.Go(func() { c.down(); c.cut() })
		p.wg.Go(func() {
			both.Wait()
			p.set(func() { delete(p.conns, c) })
		})
	}
}

// waitWhile waits while f, under the lock, is true.
func (p *proxy) waitWhile(f func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f() && !p.closed {
		p.changed.Wait()
	}
}

// readFrame reads a frame and returns all of it.
func readFrame(r io.Reader) ([]byte, error) {
	var head [7]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 7+binary.BigEndian.Uint32(head[3:])+1)
	copy(frame, head[:])
	_, err := io.ReadFull(r, frame[7:])
	return frame, err
}

// method returns class and method of a method frame.
func method(frame []byte) (class, method uint16) {
	if frame[0] != 1 || len(frame) < 11 {
		return 0, 0
	}
	return binary.BigEndian.Uint16(frame[7:]), binary.BigEndian.Uint16(frame[9:])
}

// up passes on what the client says.
func (c *proxied) up() {
	p := c.p
	if _, err := io.CopyN(c.server, c.client, 8); err != nil { // the protocol header
		return
	}
	for {
		p.waitWhile(func() bool { return p.deaf || c.blocked })
		frame, err := readFrame(c.client)
		if err != nil {
			return
		}
		if class, m := method(frame); class == 60 && m == 40 {
			p.mu.Lock()
			n := int(frame[13])
			c.exchanges[binary.BigEndian.Uint16(frame[1:])] = string(frame[14 : 14+n])
			alarm, onPublish := p.alarm, p.onPublish
			p.mu.Unlock()
			if onPublish != nil {
				onPublish(c)
			}
			if alarm {
				p.set(func() { c.blocked = true })
				c.say(blockedFrame("low on memory"))
				// What this frame begins is in the broker's buffers, unread.
				p.waitWhile(func() bool { return c.blocked })
			}
		}
		if _, err := c.server.Write(frame); err != nil {
			return
		}
	}
}

// down passes on what the broker says.
func (c *proxied) down() {
	p := c.p
	for {
		frame, err := readFrame(c.server)
		if err != nil {
			return
		}
		p.waitWhile(func() bool { return p.mute })
		if class, m := method(frame); class == 60 && (m == 80 || m == 120) {
			p.mu.Lock()
			drop := p.noConfirm != nil && p.noConfirm(c.exchanges[binary.BigEndian.Uint16(frame[1:])])
			p.mu.Unlock()
			if drop {
				continue
			}
		}
		if !c.say(frame) {
			return
		}
	}
}

func (c *proxied) say(frame []byte) bool {
	c.write.Lock()
	defer c.write.Unlock()
	_, err := c.client.Write(frame)
	return err == nil
}

// endAlarm does what a broker does when its alarm is over.
func (p *proxy) endAlarm() {
	p.set(func() { p.alarm = false })
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.blocked {
			c.blocked = false
			c.say([]byte{1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 61, 0xce})
		}
	}
	p.changed.Broadcast()
}

// blockedFrame is connection.blocked.
func blockedFrame(reason string) []byte {
	frame := []byte{1, 0, 0, 0, 0, 0, byte(5 + len(reason)), 0, 10, 0, 60, byte(len(reason))}
	return append(append(frame, reason...), 0xce)
}
