package rabbitmq

import (
	"errors"
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/dialing"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// Codes of this transport's faults, beside the broker's own numbers.
const (
	codeNoRoute     = engine.CodeNoRoute // DestinationFailed: no queue is bound for the routing key (312)
	codeDestination = "destination"      // DestinationFailed: the destination string can't be read
	codeNack        = engine.CodeNack    // Transient: refused by a queue, which may be full
	codeNotSent     = faults.NotSent     // Transient: the time was over before it was its turn
	codeWrite       = engine.CodeWrite   // Transient: the connection failed while it was being written
	codeTimeout     = faults.Timeout     // Unknown, or Unavailable while connecting
	codeLost        = faults.Lost        // Unknown for what was sent, Unavailable otherwise
	codeMalformed   = faults.Malformed   // Rejected: AMQP has no way to write it
	codeTooLarge    = faults.TooLarge    // Rejected: more than the broker takes
	codeBlocked     = "blocked"          // Unavailable: the broker takes nothing, memory or disk alarm
	codeClosed      = faults.Closed      // Unavailable: Close was called
	codeRefused     = faults.Refused     // Unavailable: nobody listens
	codeDNS         = faults.DNS         // Unavailable: the host name is not known
	codeTLS         = faults.TLS         // Unavailable: no TLS, or a certificate that is not trusted
	codeAuth        = faults.Auth        // Unavailable: user or password is wrong
	codeSASL        = "sasl"             // Unavailable: no common login mechanism
	codeVHost       = "vhost"            // Unavailable: virtual host missing or forbidden, or a connection limit
	codeHandshake   = faults.Handshake   // Unavailable: whoever listens there speaks no AMQP 0-9-1
)

// dialFault classifies what went wrong before a connection was open: nothing was
// sent, so all of it is Unavailable. hostPort is the only part of the URL that
// may be told.
func dialFault(hostPort string, err error) *engine.Fault {
	return faults.New(engine.Unavailable, dialCode(err), fmt.Errorf("rabbitmq: connect to %s: %w", hostPort, err))
}

func dialCode(err error) string {
	code := dialing.Code(err, func(err error) string {
		// The library has its own values for what the broker did not put into words.
		switch {
		case errors.Is(err, amqp.ErrSASL):
			return codeSASL
		case errors.Is(err, amqp.ErrCredentials):
			return codeAuth
		case errors.Is(err, amqp.ErrVhost):
			return codeVHost
		}
		var broker *amqp.Error
		if !errors.As(err, &broker) {
			return ""
		}
		switch {
		case broker.Code == amqp.AccessRefused:
			return codeAuth
		case broker.Code == amqp.NotAllowed:
			return codeVHost
		case broker.Server:
			return strconv.Itoa(broker.Code)
		}
		return codeHandshake
	})
	if code == "" {
		return codeLost
	}
	return code
}

// verdict is what the end of a channel means for the messages that were sent on
// it and not confirmed.
type verdict struct {
	fault   *engine.Fault
	suspect bool // one of them may be the cause; which one is not said
}

// ending is what is known when a channel has ended.
type ending struct {
	exchange   string
	err        *amqp.Error // nil: closed by us
	reason     string      // why we cut the connection, if we did
	connection bool        // the whole connection ended, not the channel alone
	lost       int         // sent and not confirmed
	confirmed  bool        // the broker had confirmed something on this channel
	alone      bool        // the connection carried one message at a time
}

func (e ending) verdict() verdict {
	name := exchangeName(e.exchange)
	unknown := func(code string, suspect bool) verdict {
		var err error
		switch {
		case e.reason != "":
			code, err = e.reason, fmt.Errorf("rabbitmq: exchange %q: the connection was cut before the confirmation came", name)
		case e.err == nil:
			err = fmt.Errorf("rabbitmq: exchange %q: closed before the confirmation came", name)
		default:
			err = fmt.Errorf("rabbitmq: exchange %q: no confirmation: %w", name, e.err)
		}
		return verdict{faults.New(engine.Unknown, code, err), suspect}
	}
	if e.err == nil || !e.err.Server || e.reason != "" {
		return unknown(codeLost, false)
	}
	code := strconv.Itoa(e.err.Code)
	say := func(class engine.Class) verdict {
		return verdict{fault: faults.New(class, code, fmt.Errorf("rabbitmq: exchange %q: %w", name, e.err))}
	}
	only := e.lost == 1
	if e.connection {
		switch e.err.Code {
		case amqp.FrameError, amqp.SyntaxError, amqp.CommandInvalid, amqp.UnexpectedFrame:
			// The broker could not read what we wrote. On a connection that carried
			// this message and nothing else it was this message.
			if e.alone && only {
				return say(engine.Rejected)
			}
			return unknown(code, true)
		case amqp.NotImplemented:
			if e.alone && only {
				return say(engine.DestinationFailed)
			}
			return unknown(code, true)
		}
		return unknown(code, false)
	}
	switch e.err.Code {
	case amqp.NotFound:
		// The exchange was there when the channel was opened, so messages before the
		// one that tripped may be in their queues.
		if only {
			return say(engine.DestinationFailed)
		}
	case amqp.AccessRefused:
		// A channel keeps the permission that it found. Where nothing was ever
		// confirmed the first message was refused, and the broker reads nothing after
		// that.
		if only || !e.confirmed {
			return say(engine.DestinationFailed)
		}
	case amqp.PreconditionFailed, amqp.ContentTooLarge:
		if only {
			return say(engine.Rejected)
		}
		return unknown(code, true)
	}
	return unknown(code, false)
}
