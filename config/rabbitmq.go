package config

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/rabbitmq"
)

var rabbitmqKind = kind{name: "rabbitmq", read: readRabbitMQ, route: readRabbitMQRoute}

// rabbitmqBroker implements broker.
type rabbitmqBroker struct {
	url       secret
	source    string
	heartbeat time.Duration
	tls       *tls.Config
}

const rabbitmqURL = "write it as in amqp://USER:PASSWORD@HOST:5672/VHOST, or amqps:// for TLS"

func readRabbitMQ(m *mapping) broker {
	faults := len(m.r.faults)
	b := &rabbitmqBroker{}
	var ok bool
	b.url, ok = m.secretURL("url", rabbitmqURL)
	if ok {
		if err := tryRabbitMQ(b.url(), nil); err != nil {
			m.fault("url", "%v; %s", err, rabbitmqURL)
		}
	}
	b.source = m.text("source", "/outward")
	if err := tryRabbitMQ("", &rabbitmq.Options{Source: b.source}); err != nil {
		n := m.at("source")
		if n.expanded {
			m.fault("source", "%s can't be a source: it must be a URI reference of at most 255 bytes", n.shown())
		} else {
			m.fault("source", "%v", err)
		}
	}
	b.heartbeat = m.duration("heartbeat", 10*time.Second, time.Second, time.Minute, false)
	if n := m.get("tls"); n != nil {
		inner := m.r.mapping(n, m.n)
		b.tls = readTLS(inner)
		m.sub("tls", inner)
		if strings.HasPrefix(strings.ToLower(b.url()), "amqp://") {
			m.fault("tls", "the url begins with amqp://, which uses no TLS; write amqps://, or remove tls")
		}
	}
	if len(m.r.faults) > faults {
		return nil
	}
	return b
}

// tryRabbitMQ asks the transport whether it would take these settings. An empty url
// stands for one that is right.
func tryRabbitMQ(url string, o *rabbitmq.Options) error {
	if url == "" {
		url = "amqp://localhost"
	}
	t, err := rabbitmq.New(url, o)
	if err != nil {
		for _, prefix := range []string{"rabbitmq: new: ", "rabbitmq: "} {
			if text, ok := strings.CutPrefix(err.Error(), prefix); ok {
				return plainError(text)
			}
		}
		return err
	}
	return t.Close(context.Background())
}

type plainError string

func (e plainError) Error() string { return string(e) }

// readRabbitMQRoute reads exchange and routing_key. Both left out, they are the
// message's topic.
func readRabbitMQRoute(m *mapping) string {
	exchange, hasExchange := m.optional("exchange")
	key, hasKey := m.optional("routing_key")
	switch {
	case hasKey && key == "":
		m.fault("routing_key", "it is empty; leave it out to route by the topic")
		return ""
	case hasKey && !hasExchange:
		m.fault("routing_key", "it stands without exchange; name the exchange, or write exchange: \"\" for the default exchange, whose keys are queues")
		return ""
	case !hasExchange:
		return ""
	}
	destination := rabbitmq.Destination(exchange, key)
	if err := tryRabbitMQ("", &rabbitmq.Options{Destinations: []string{destination}}); err != nil {
		if m.at("exchange").expanded || m.at("routing_key").expanded {
			err = plainError("exchange and routing_key can't be used; each is at most 255 bytes of text")
		}
		m.fault("exchange", "%v", err)
	}
	return destination
}

// optional is text that may be empty, and whether it is there.
func (m *mapping) optional(key string) (string, bool) {
	n := m.scalar(key)
	if n == nil {
		return "", false
	}
	m.note(key, n.raw, n.text)
	return n.text, true
}

func (b *rabbitmqBroker) open(o brokerOptions) (engine.Transport, error) {
	return rabbitmq.New(b.url(), &rabbitmq.Options{
		Name:           o.name,
		Source:         b.source,
		ConnectionName: "outward/" + o.relay,
		TLS:            b.tls,
		Heartbeat:      b.heartbeat,
		Destinations:   o.destinations,
		Logger:         o.logger,
	})
}
