package natsjs

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/dialing"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// A line is the way to the servers.
type line = dialing.Line[*session]

func (t *Transport) newLine() *line {
	return &line{Dial: t.dialAny, Redial: dialing.Redial, Work: &t.life.Work, Peer: "natsjs: connect to " + t.servers()}
}

// dialAny makes one attempt with each server, until one answers. It begins with the
// one after that which it had last. No two calls overlap.
func (t *Transport) dialAny() (*session, *engine.Fault) {
	var fault *engine.Fault
	for n := range t.addrs {
		i := (t.first + n) % len(t.addrs)
		s, f := t.dial(t.life.Context(), t.addrs[i])
		if f == nil {
			t.first = i + 1
			return s, nil
		}
		// What a server that is there has against us says more than one that is not.
		if fault == nil || quiet(fault.Code) && !quiet(f.Code) {
			fault = f
		}
		if t.life.Context().Err() != nil {
			break
		}
	}
	return nil, fault
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
func (t *Transport) dial(ctx context.Context, a *endpoint) (*session, *engine.Fault) {
	ctx, cancel := context.WithTimeout(ctx, t.opts.DialTimeout)
	defer cancel()
	s := newSession(t, a)
	d := &dialer{ctx: ctx, timeout: t.opts.WriteTimeout}
	stop := context.AfterFunc(ctx, d.abort)
	defer stop()

	o := nats.GetDefaultOptions()
	o.Url = "nats://" + a.HostPort()
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
		return nil, faults.Newf(engine.Unavailable, codeAuth, "natsjs: connect to %s: %w", a.HostPort(), err)
	}

	nc, err := o.Connect()
	w, noSocket := d.result()
	if err != nil {
		if w == nil && noSocket != nil {
			err = noSocket
		}
		d.abort()
		return nil, dialFault(a.HostPort(), dialing.Overdue(ctx, err))
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
		return nil, dialFault(a.HostPort(), context.Cause(ctx))
	}
	return s, nil
}

// login puts into o what we show the server. Errors may be told: they come from the
// caller's own functions, or name a file.
func (t *Transport) login(ctx context.Context, a *endpoint, o *nats.Options) error {
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
	default:
		o.User, o.Password, o.Token = a.login()
	}
	return nil
}
