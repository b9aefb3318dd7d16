package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// Probe implements [engine.Prober]: it connects and asks whether the exchange is
// there, and for the default exchange with a routing key whether the queue is.
//
// Of an empty destination it asks no more than whether the broker takes messages.
//
// Two things can't be asked without publishing: whether a named exchange routes
// the key to a queue, and whether this user may write to it. Probe answers nil
// then, and the next message is the trial.
func (t *Transport) Probe(ctx context.Context, destination string) *engine.Fault {
	var d target
	if destination != "" {
		var err error
		if d, err = parseDestination(destination); err != nil {
			return faults.Newf(engine.DestinationFailed, codeDestination, "rabbitmq: %w", err)
		}
	}
	if !t.life.Enter() {
		return faults.NewClosed("rabbitmq")
	}
	defer t.life.Leave()
	s, f := t.line(d.exchange).Session(ctx)
	if f != nil {
		return f
	}
	if f := s.ready(ctx); f != nil {
		return f
	}
	return s.look(ctx, d)
}

// look asks for a destination on a channel of its own, which a "no" closes.
func (s *session) look(ctx context.Context, d target) *engine.Fault {
	var ask func(*amqp.Channel) error
	switch {
	case d.exchange != "":
		ask = func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(d.exchange, amqp.ExchangeTopic, true, false, false, false, nil)
		}
	case d.key != "":
		ask = func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(d.key, true, false, false, false, nil)
			return err
		}
	default:
		ask = func(*amqp.Channel) error { return nil }
	}
	err := s.onChannel(ctx, ask)
	var broker *amqp.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &broker) && broker.Code == amqp.ResourceLocked:
		return nil // a queue that is another connection's alone takes messages all the same
	case errors.Is(err, context.Cause(ctx)):
		return faults.Newf(engine.Unavailable, codeTimeout, "rabbitmq: %s did not answer in time: %w", s.t.addr.HostPort(), err)
	}
	f := s.openFault(d.exchange, err)
	if d.exchange == "" && f.Class == engine.DestinationFailed {
		f.Err = fmt.Errorf("rabbitmq: queue %q: %w", d.key, err)
	}
	return f
}

// onChannel runs ask on a channel of its own. The library's calls know no
// context; one that is not answered goes on in the background until its
// connection ends.
func (s *session) onChannel(ctx context.Context, ask func(*amqp.Channel) error) error {
	answer := make(chan error, 1)
	s.t.life.Work.Go(func() {
		timer := time.AfterFunc(s.t.opts.DialTimeout, func() { s.kill(codeTimeout) })
		defer timer.Stop()
		ch, err := s.conn.Channel()
		if err == nil {
			err = ask(ch)
			s.closeChannel(ch)
		}
		answer <- err
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Check implements [engine.Checker]: the broker can be reached, is not in alarm,
// is what it should be, and has the exchanges and queues of Options.Destinations
// and Options.Declare.
func (t *Transport) Check(ctx context.Context) []engine.Finding {
	broker := t.addr.HostPort()
	find := func(level engine.Level, code, text, fix string) engine.Finding {
		return engine.Finding{Level: level, Code: code, Text: text, Fix: fix}
	}
	if !t.life.Enter() {
		return []engine.Finding{find(engine.Fatal, codeClosed, faults.NewClosed("rabbitmq").Err.Error(), "build a new transport")}
	}
	defer t.life.Leave()
	s, f := t.shared.Session(ctx)
	if f == nil {
		f = s.ready(ctx)
	}
	if f != nil {
		return []engine.Finding{find(engine.Retry, f.Code, f.Err.Error(), fixes[f.Code])}
	}
	findings := t.checkServer(s, find)
	for _, err := range s.declare(t.opts.Declare) {
		findings = append(findings, find(engine.Warning, "declare", err.Error(),
			"make the declaration and what "+broker+" has agree, or declare it elsewhere"))
	}
	for _, text := range t.opts.Destinations {
		d, err := parseDestination(text)
		if err != nil { // New has refused these
			continue
		}
		if f := s.look(ctx, d); f != nil {
			level := engine.Warning
			if f.Class != engine.DestinationFailed {
				level = engine.Retry
			}
			findings = append(findings, find(level, f.Code, fmt.Sprintf("destination %q: %v", text, f.Err),
				"declare it, or grant this user access to it; until then its messages wait"))
		}
	}
	return findings
}

// fixes are what to do about not reaching the broker, by code.
var fixes = map[string]string{
	codeAuth:    "check user and password",
	codeSASL:    "enable PLAIN or EXTERNAL on the broker",
	codeVHost:   "check the virtual host, the user's permissions on it and the connection limits",
	codeTLS:     "check the scheme, the port and the certificates",
	codeRefused: "check host and port, and that the broker runs",
	codeDNS:     "check the host name",
	codeBlocked: "free memory or disk on the broker",
}

// checkServer looks at what the broker says about itself.
func (t *Transport) checkServer(s *session, find func(engine.Level, string, string, string) engine.Finding) []engine.Finding {
	var findings []engine.Finding
	capabilities, _ := s.conn.Properties["capabilities"].(amqp.Table)
	if ok, _ := capabilities["publisher_confirms"].(bool); !ok {
		findings = append(findings, find(engine.Fatal, "no_confirms",
			"the broker at "+t.addr.HostPort()+" has no publisher confirms, so nothing could ever count as published",
			"use RabbitMQ"))
	}
	version, _ := s.conn.Properties["version"].(string)
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 3 {
		findings = append(findings, find(engine.Warning, "version",
			fmt.Sprintf("the broker at %s is %v %.40q; Outward is tested with RabbitMQ 3.10 and 4", t.addr.HostPort(), s.conn.Properties["product"], version),
			"use a supported RabbitMQ"))
	}
	return findings
}

// declare declares what was asked for. Each fault is logged and returned, and
// stops nothing: who publishes to what is missing learns it there.
func (s *session) declare(d *Topology) []error {
	if d == nil {
		return nil
	}
	var faults []error
	one := func(what, name string, declare func(*amqp.Channel) error) {
		if err := s.onChannel(s.t.life.Context(), declare); err != nil {
			err = fmt.Errorf("rabbitmq: declare %s %q: %w", what, name, err)
			faults = append(faults, err)
			s.t.log.Error("rabbitmq: could not declare", "error", err)
		}
	}
	for _, e := range d.Exchanges {
		one("exchange", e.Name, func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(e.Name, e.Kind, true, false, false, false, e.Args)
		})
	}
	for _, q := range d.Queues {
		one("queue", q.Name, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q.Name, true, false, false, false, q.Args)
			return err
		})
	}
	for _, b := range d.Bindings {
		one("binding of", b.Queue, func(ch *amqp.Channel) error {
			return ch.QueueBind(b.Queue, b.Key, b.Exchange, false, b.Args)
		})
	}
	return faults
}
