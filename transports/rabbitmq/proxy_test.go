package rabbitmq

import (
	"bufio"
	"encoding/binary"
	"io"
	"net/url"
	"sync"
	"testing"

	"github.com/outward-dev/outward/internal/faultproxy"
)

// A proxy stands between a transport and the broker, and knows of AMQP what a test
// may want to happen to it.
type proxy struct {
	*faultproxy.Proxy
	t testing.TB

	mu        sync.Mutex
	exchanges map[channel]string // where each publishes to
	// alarm: as a broker in memory alarm, the first publish of a connection is
	// answered with connection.blocked, and the connection is read no more.
	alarm   bool
	blocked map[*faultproxy.Conn]bool
	// noConfirm: channels whose confirmations are withheld.
	noConfirm func(exchange string) bool
	// onPublish sees each basic.publish before it is passed on.
	onPublish func(c *faultproxy.Conn)
}

// channel is a channel of a connection.
type channel struct {
	c  *faultproxy.Conn
	id uint16
}

func newProxy(t testing.TB, brokerURL string) *proxy {
	t.Helper()
	u, err := url.Parse(brokerURL)
	if err != nil {
		t.Fatal("the broker's URL can't be parsed")
	}
	p := &proxy{
		Proxy: faultproxy.New(t, u.Host), t: t,
		exchanges: map[channel]string{}, blocked: map[*faultproxy.Conn]bool{},
	}
	p.Split(readFrame)
	p.Up(p.up)
	p.Down(p.down)
	return p
}

// url is the broker's URL, by way of the proxy.
func (p *proxy) url(brokerURL string) string {
	u, err := url.Parse(brokerURL)
	if err != nil {
		p.t.Fatal("the broker's URL can't be parsed")
	}
	u.Host = p.Addr()
	return u.String()
}

// set changes what the proxy does.
func (p *proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// readFrame reads a frame and returns all of it, or the protocol header that a
// client begins with.
func readFrame(r *bufio.Reader) ([]byte, error) {
	head := make([]byte, 7, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := 8
	if head[0] != 'A' { // no type of frame
		size += int(binary.BigEndian.Uint32(head[3:]))
	}
	frame := make([]byte, size)
	copy(frame, head)
	_, err := io.ReadFull(r, frame[7:])
	return frame, err
}

// method returns class and method of a method frame, and its channel.
func method(frame []byte) (class, method, id uint16) {
	if frame[0] != 1 || len(frame) < 11 {
		return 0, 0, 0
	}
	return binary.BigEndian.Uint16(frame[7:]), binary.BigEndian.Uint16(frame[9:]), binary.BigEndian.Uint16(frame[1:])
}

// up sees what the client says.
func (p *proxy) up(c *faultproxy.Conn, frame []byte) bool {
	class, m, id := method(frame)
	if class != 60 || m != 40 {
		return true
	}
	p.mu.Lock()
	p.exchanges[channel{c, id}] = string(frame[14 : 14+int(frame[13])])
	onPublish := p.onPublish
	p.mu.Unlock()
	if onPublish != nil {
		onPublish(c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alarm {
		p.blocked[c] = true
		c.Deaf(true) // what this frame begins is in the broker's buffers, unread
		c.Say(blockedFrame("low on memory"))
	}
	return true
}

// down sees what the broker says.
func (p *proxy) down(c *faultproxy.Conn, frame []byte) bool {
	class, m, id := method(frame)
	if class != 60 || m != 80 && m != 120 { // ack, nack
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.noConfirm == nil || !p.noConfirm(p.exchanges[channel{c, id}])
}

// endAlarm does what a broker does when its alarm is over.
func (p *proxy) endAlarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alarm = false
	for c := range p.blocked {
		c.Deaf(false)
		c.Say([]byte{1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 61, 0xce})
	}
	clear(p.blocked)
}

// blockedFrame is connection.blocked.
func blockedFrame(reason string) []byte {
	frame := []byte{1, 0, 0, 0, 0, 0, byte(5 + len(reason)), 0, 10, 0, 60, byte(len(reason))}
	return append(append(frame, reason...), 0xce)
}
