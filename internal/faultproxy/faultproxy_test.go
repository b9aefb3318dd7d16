package faultproxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/internal/faultproxy"
)

// echo is a server that says every line back.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { _, _ = io.Copy(c, c); c.Close() })
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, p *faultproxy.Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) within(d time.Duration) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) hear(want string) {
	c.t.Helper()
	c.within(5 * time.Second)
	if line, err := c.r.ReadString('\n'); err != nil || line != want {
		c.t.Fatalf("heard %q, %v; want %q", line, err, want)
	}
}

func (c *client) hearNothing() {
	c.t.Helper()
	c.within(50 * time.Millisecond)
	if _, err := c.r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("heard something, or the end: %v", err)
	}
}

func TestPassesOn(t *testing.T) {
	p := faultproxy.New(t, echo(t))
	a, b := dial(t, p), dial(t, p)
	a.say("one\n")
	b.say("two\n")
	a.hear("one\n")
	b.hear("two\n")
	if p.Open() != 2 || p.Dials() != 2 {
		t.Errorf("%d open of %d, want 2 of 2", p.Open(), p.Dials())
	}
}

func TestDeafAndMute(t *testing.T) {
	p := faultproxy.New(t, echo(t))
	c := dial(t, p)
	for _, stop := range []func(bool){p.Deaf, p.Mute} {
		c.say("before\n")
		c.hear("before\n")
		stop(true)
		c.say("now\n")
		c.hearNothing()
		stop(false)
		c.hear("now\n")
	}
}

func TestOneConnectionDeaf(t *testing.T) {
	p := faultproxy.New(t, echo(t))
	first := make(chan *faultproxy.Conn, 1)
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if string(unit) == "stop\n" {
			c.Deaf(true)
			first <- c
		}
		return true
	})
	a, b := dial(t, p), dial(t, p)
	a.say("stop\n")
	stopped := <-first
	a.hearNothing()
	b.say("other\n")
	b.hear("other\n")
	stopped.Deaf(false)
	a.hear("stop\n")
}

func TestCut(t *testing.T) {
	p := faultproxy.New(t, echo(t))
	c := dial(t, p)
	c.say("x\n")
	c.hear("x\n")
	p.Cut()
	c.within(5 * time.Second)
	if _, err := c.r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection is still there: %v", err)
	}
}

func TestUnits(t *testing.T) {
	p := faultproxy.New(t, echo(t))
	p.Split(func(r *bufio.Reader) ([]byte, error) { return r.ReadBytes('\n') })
	p.Up(func(c *faultproxy.Conn, unit []byte) bool {
		if string(unit) == "ask\n" {
			c.Say([]byte("said\n"))
			return false
		}
		return string(unit) != "lost\n"
	})
	p.Down(func(_ *faultproxy.Conn, unit []byte) bool { return string(unit) != "unheard\n" })
	c := dial(t, p)
	c.say("one\nlost\ntwo\nask\n")
	got := map[string]bool{}
	for range 3 {
		line, err := c.r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		got[line] = true
	}
	if !got["one\n"] || !got["two\n"] || !got["said\n"] {
		t.Errorf("heard %v", got)
	}
	c.say("unheard\nlast\n")
	c.hear("last\n")
}

func TestSlow(t *testing.T) {
	p := faultproxy.New(t, echo(t))
	p.Slow(200 * time.Millisecond)
	c := dial(t, p)
	began := time.Now()
	c.say("x\n")
	c.hear("x\n")
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("there and back took %v, and each way takes 200 ms", took)
	}
	p.Slow(0)
	c.say("y\n")
	c.hear("y\n")
}

// The server is gone and the client is not told: it writes, and nothing comes.
func TestHalfOpen(t *testing.T) {
	p := faultproxy.New(t, echo(t))
	c := dial(t, p)
	c.say("x\n")
	c.hear("x\n")
	p.HalfOpen()
	for range 100 {
		c.say("swallowed\n")
	}
	c.hearNothing()
	other := dial(t, p)
	other.say("y\n")
	other.hear("y\n")
}

// The client is gone and the server is not told.
func TestKeep(t *testing.T) {
	p := faultproxy.New(t, echo(t))
	p.Keep(true)
	c := dial(t, p)
	c.say("x\n")
	c.hear("x\n")
	c.Close()
	other := dial(t, p)
	other.say("y\n")
	other.hear("y\n")
	if n := p.Open(); n != 2 {
		t.Errorf("%d connections are open, want that of the client that is gone as well", n)
	}
}
