package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/outward-dev/outward/engine"
)

// TransportOptions of a Transport; nil and the zero value are the defaults.
type TransportOptions struct {
	Name          string // default "memory"
	KeepsKeyOrder bool   // see [engine.TransportInfo]
}

// An Outcome is what a script makes of one message.
type Outcome struct {
	engine.Result
	// Stored says that the broker has the message although Fault is set, as after a
	// lost confirmation. A message without a Fault is always stored.
	Stored bool
	// Wait keeps the report back until it is closed, or until the context of the
	// publish ends: then the outcome is Unknown. Messages behind it go on.
	Wait <-chan struct{}
}

// A Delivery is a message that the broker took.
type Delivery struct {
	Destination string
	engine.Outgoing
}

// Transport is a broker in memory. It takes every message, in the order in which
// they are sent, unless a script or a fault of the destination says otherwise.
type Transport struct {
	opts TransportOptions

	mu        sync.Mutex
	script    func(destination string, m engine.Outgoing) Outcome
	faults    map[string]*engine.Fault
	delivered []Delivery
	running   map[int]context.CancelFunc
	calls     int
	closed    bool
	idle      chan struct{} // closed when the last running Publish has returned after Close
}

var (
	_ engine.Transport = (*Transport)(nil)
	_ engine.Prober    = (*Transport)(nil)
)

// NewTransport returns an empty broker.
func NewTransport(opts *TransportOptions) *Transport {
	t := &Transport{faults: map[string]*engine.Fault{}, running: map[int]context.CancelFunc{}, idle: make(chan struct{})}
	if opts != nil {
		t.opts = *opts
	}
	t.opts.Name = cmp.Or(t.opts.Name, "memory")
	return t
}

// Describe implements [engine.Transport].
func (t *Transport) Describe() engine.TransportInfo {
	return engine.TransportInfo{Name: t.opts.Name, Kind: "memory", KeepsKeyOrder: t.opts.KeepsKeyOrder}
}

// Script sets what becomes of each message from now on; nil: all are confirmed.
// It is called once for every message that is sent, in order, with no lock held;
// it may block, which stalls the whole call of Publish.
func (t *Transport) Script(script func(destination string, m engine.Outgoing) Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.script = script
}

// Fail makes a destination fail with f, for messages and for probes, until it is
// called with nil.
func (t *Transport) Fail(destination string, f *engine.Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[destination] = f
}

// Delivered returns what the broker took, of all destinations, in order.
func (t *Transport) Delivered() []Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.delivered)
}

// DeliveredTo returns what the broker took for one destination, in order.
func (t *Transport) DeliveredTo(destination string) []engine.Outgoing {
	var out []engine.Outgoing
	for _, d := range t.Delivered() {
		if d.Destination == destination {
			out = append(out, d.Outgoing)
		}
	}
	return out
}

// Probe implements [engine.Prober]: it finds what [Transport.Fail] set.
func (t *Transport) Probe(ctx context.Context, destination string) *engine.Fault {
	if err := ctx.Err(); err != nil {
		return &engine.Fault{Class: engine.Unavailable, Err: err}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.faults[destination]
}

// Publish implements [engine.Transport].
func (t *Transport) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(i int, res engine.Result)) {
	ctx, done, open := t.enter(ctx)
	if !open {
		for i := range msgs {
			report(i, faulty(engine.Unavailable, "closed", "the transport is closed"))
		}
		return
	}
	defer done()
	var waits sync.WaitGroup
	defer waits.Wait() // before done: a call ends after its last report
	stopped := map[string]bool{}
	for i, m := range msgs {
		if t.opts.KeepsKeyOrder && stopped[m.Key] {
			report(i, faulty(engine.Transient, "key_stopped", "an earlier message of the key failed"))
			continue
		}
		if ctx.Err() != nil {
			report(i, faulty(engine.Unknown, engine.CodeTimeout, "the publish was cut off"))
			stopped[m.Key] = m.Key != ""
			continue
		}
		o := t.send(destination, m)
		if o.Fault != nil {
			stopped[m.Key] = m.Key != ""
		}
		if o.Wait == nil {
			report(i, o.Result)
			continue
		}
		waits.Go(func() {
			select {
			case <-o.Wait:
				report(i, o.Result)
			case <-ctx.Done():
				report(i, faulty(engine.Unknown, engine.CodeTimeout, "no confirmation came"))
			}
		})
	}
}

// send puts one message on the wire and stores it if the broker takes it.
func (t *Transport) send(destination string, m engine.Outgoing) Outcome {
	t.mu.Lock()
	script, fault := t.script, t.faults[destination]
	t.mu.Unlock()
	var o Outcome
	switch {
	case fault != nil:
		o.Fault = fault
	case script != nil:
		o = script(destination, m)
	}
	if o.Fault == nil || o.Stored {
		m.Headers, m.Payload = maps.Clone(m.Headers), bytes.Clone(m.Payload)
		t.mu.Lock()
		t.delivered = append(t.delivered, Delivery{Destination: destination, Outgoing: m})
		t.mu.Unlock()
	}
	return o
}

func faulty(class engine.Class, code, text string) engine.Result {
	return engine.Result{Fault: &engine.Fault{Class: class, Code: code, Err: errors.New(text)}}
}

// enter registers a call of Publish, so that Close can wait for it or cut it off.
func (t *Transport) enter(ctx context.Context) (context.Context, func(), bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ctx, nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	t.calls++
	call := t.calls
	t.running[call] = cancel
	return ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		cancel()
		delete(t.running, call)
		if t.closed && len(t.running) == 0 {
			close(t.idle)
		}
	}, true
}

// Close implements [engine.Transport].
func (t *Transport) Close(ctx context.Context) error {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		if len(t.running) == 0 {
			close(t.idle)
		}
	}
	t.mu.Unlock()
	select {
	case <-t.idle:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	for _, cancel := range t.running {
		cancel()
	}
	t.mu.Unlock()
	<-t.idle
	return ctx.Err()
}
