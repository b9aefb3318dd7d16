package natsjs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outward-dev/outward/engine"
)

// A line is the way to the servers: one connection at a time, made when it is
// needed and made again when it is lost.
type line struct {
	t *Transport

	mu      sync.Mutex
	current *session
	dialing chan struct{} // closed when the attempt under way has ended
	fault   *engine.Fault // how the last attempt ended
	notYet  time.Time     // no attempt before this
	first   int           // the server that the next attempt begins with
}

// session returns the line's connection. Callers share an attempt; for a while
// after one has failed they all get its fault, so that a server that comes back
// meets no stampede.
func (l *line) session(ctx context.Context) (*session, *engine.Fault) {
	for {
		l.mu.Lock()
		if l.current != nil && l.current.usable() {
			s := l.current
			l.mu.Unlock()
			return s, nil
		}
		if l.current != nil {
			if l.current.vain() && time.Since(l.current.opened) < l.t.redial {
				// It died young and had done nothing: treated like a failed attempt.
				l.fault, l.notYet = l.current.fault(), time.Now().Add(l.t.redial)
			}
			l.current = nil
			l.first++ // another server first, where there is one
		}
		if l.dialing == nil {
			if time.Now().Before(l.notYet) {
				f := *l.fault
				l.mu.Unlock()
				return nil, &f
			}
			l.dialing = make(chan struct{})
			l.t.wg.Go(l.dial)
		}
		done := l.dialing
		l.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, faultf(engine.Unavailable, codeTimeout, "natsjs: connect to %s: no connection in time: %w", l.t.servers(), context.Cause(ctx))
		}
		l.mu.Lock()
		s, f := l.current, l.fault
		l.mu.Unlock()
		if s == nil && f != nil {
			copied := *f
			return nil, &copied
		}
	}
}

// dial makes one attempt with each server, until one answers.
func (l *line) dial() {
	l.mu.Lock()
	first := l.first
	l.mu.Unlock()
	var s *session
	var f *engine.Fault
	for n := range l.t.addrs {
		i := (first + n) % len(l.t.addrs)
		var this *engine.Fault
		if s, this = l.t.dial(l.t.cut, l.t.addrs[i]); s != nil {
			first = i
			break
		}
		// What a server that is there has against us says more than one that is not.
		if f == nil || quiet(f.Code) && !quiet(this.Code) {
			f = this
		}
		if l.t.cut.Err() != nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.fault, l.first = s, f, first
	if s == nil {
		l.notYet = time.Now().Add(l.t.redial)
	} else {
		l.fault = nil
	}
	close(l.dialing)
	l.dialing = nil
}

// quiet reports whether a fault of connecting only says that nobody answered.
func quiet(code string) bool {
	return code == codeRefused || code == codeTimeout || code == codeDNS || code == codeLost
}

// dial opens a connection to one server.
//
// The library's own reconnecting stays off, and with it its buffer for the time in
// between: what it holds goes out later, behind the back of a caller that was told
// otherwise. A connection here ends once and for all, every message on it then has
// its outcome, and the next one is made without end whenever there is something to
// send.
func (t *Transport) dial(ctx context.Context, a *address) (*session, *engine.Fault) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.DialTimeout)
	defer cancel()
	s := newSession(t, a)
	d := &dialer{ctx: ctx, timeout: t.opts.WriteTimeout}
	stop := context.AfterFunc(ctx, d.abort)
	defer stop()

	o := nats.GetDefaultOptions()
	o.Url = "nats://" + a.hostPort()
	o.Name = t.opts.ConnectionName
	o.Timeout = t.opts.DialTimeout
	o.AllowReconnect = false
	o.ReconnectBufSize = -1
	o.ReconnectOnFlusherError = true // and so, since it may not reconnect, the end
	o.IgnoreDiscoveredServers = true // credentials go where the configuration says, and nowhere else
	o.SkipHostLookup = true          // the dialer does it, within ctx
	o.CustomDialer = d
	o.InboxPrefix = t.opts.InboxPrefix
	o.PingInterval, o.MaxPingsOut = t.opts.PingInterval, 2
	o.Secure = a.tls || t.opts.TLS != nil || t.opts.TLSFirst
	o.TLSHandshakeFirst = t.opts.TLSFirst
	if o.TLSConfig = t.opts.TLS.Clone(); o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	o.AsyncErrorCB = s.onError
	o.ClosedCB = s.onClosed
	o.LameDuckModeHandler = func(*nats.Conn) { s.leave() }
	if err := t.login(ctx, a, &o); err != nil {
		return nil, faultf(engine.Unavailable, codeAuth, "natsjs: connect to %s: %w", a.hostPort(), err)
	}

	nc, err := o.Connect()
	w, noSocket := d.result()
	if err != nil {
		if w == nil && noSocket != nil {
			err = noSocket
		}
		d.abort()
		return nil, dialFault(a.hostPort(), overdue(ctx, err))
	}
	s.nc, s.wire = nc, w
	close(s.open)
	if f := s.prepare(ctx); f != nil {
		s.kill(codeClosed)
		<-s.dead
		return nil, f
	}
	if !stop() {
		// The time ran out at the last moment and the connection is being cut.
		<-s.dead
		return nil, dialFault(a.hostPort(), context.Cause(ctx))
	}
	return s, nil
}

// login puts into o what we show the server. Errors may be told: they come from the
// caller's own functions, or name a file.
func (t *Transport) login(ctx context.Context, a *address, o *nats.Options) error {
	var err error
	switch {
	case t.opts.Credentials != nil:
		if o.User, o.Password, err = t.opts.Credentials(ctx); err != nil {
			return fmt.Errorf("credentials: %w", err)
		}
	case t.opts.Token != nil:
		if o.Token, err = t.opts.Token(ctx); err != nil {
			return fmt.Errorf("token: %w", err)
		}
	case t.opts.CredsFile != "":
		return nats.UserCredentials(t.opts.CredsFile)(o)
	case t.opts.NKeyFile != "":
		option, err := nats.NkeyOptionFromSeed(t.opts.NKeyFile)
		if err != nil {
			return fmt.Errorf("nkey: %w", err)
		}
		return option(o)
	case a.login != nil:
		o.User, o.Password, o.Token = a.login()
	}
	return nil
}

// overdue says that the time was over, where err is only what that looked like from
// inside.
func overdue(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}
