package rabbitmq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outward-dev/outward/transports/internal/envelope"
)

// DefaultExchange is how the broker's default exchange, whose name is empty, is
// spelled in a destination. It routes to the queue named by the routing key.
const DefaultExchange = "amq.default"

// Destination returns the destination of an exchange and a routing key, as
// routes and [Transport.Publish] take it. An empty exchange is the default
// exchange. An empty routing key stands for the topic of each message. "/" and
// "%" in the names are escaped.
//
//	Destination("orders", "")             orders
//	Destination("orders", "eu.submitted") orders/eu.submitted
//	Destination("", "billing")            amq.default/billing, the queue billing
func Destination(exchange, routingKey string) string {
	if exchange == "" {
		exchange = DefaultExchange
	}
	if routingKey == "" {
		return escape(exchange)
	}
	return escape(exchange) + "/" + escape(routingKey)
}

var escaper = strings.NewReplacer("%", "%25", "/", "%2F")

func escape(name string) string { return escaper.Replace(name) }

// target is a parsed destination string.
type target struct {
	exchange string // as AMQP has it: empty for the default exchange
	key      string // empty: the message's topic
}

// parseDestination reads what [Destination] writes.
func parseDestination(s string) (target, error) {
	exchange, key, keyed := strings.Cut(s, "/")
	var d target
	var err error
	if d.exchange, err = unescape(exchange); err != nil {
		return target{}, fmt.Errorf("destination %.80q: %w", s, err)
	}
	if d.key, err = unescape(key); err != nil {
		return target{}, fmt.Errorf("destination %.80q: %w", s, err)
	}
	switch {
	case exchange == "":
		err = errors.New("the exchange is empty; the default exchange is spelled " + DefaultExchange)
	case keyed && key == "":
		err = errors.New("the routing key is empty; leave the \"/\" out to route by topic")
	case strings.Contains(key, "/"):
		err = errors.New("\"/\" in a name is written %2F")
	default:
		err = errors.Join(envelope.CheckShort("the exchange", d.exchange), envelope.CheckShort("the routing key", d.key))
	}
	if err != nil {
		return target{}, fmt.Errorf("destination %.80q: %w", s, err)
	}
	if d.exchange == DefaultExchange {
		d.exchange = ""
	}
	return d, nil
}

// unescape decodes %2F and %25, in either case, and nothing else: a name that
// was not escaped must not turn into another one.
func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(s, "%")
		b.WriteString(plain)
		if !found {
			return b.String(), nil
		}
		switch {
		case strings.HasPrefix(rest, "25"):
			b.WriteByte('%')
		case strings.HasPrefix(rest, "2F"), strings.HasPrefix(rest, "2f"):
			b.WriteByte('/')
		default:
			return "", errors.New("\"%\" is written %25, \"/\" is written %2F, and no other escape is known")
		}
		s = rest[2:]
	}
}

// exchangeName is how an exchange is called in errors.
func exchangeName(exchange string) string {
	if exchange == "" {
		return DefaultExchange
	}
	return exchange
}
