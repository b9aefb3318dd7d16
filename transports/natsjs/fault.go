package natsjs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/dialing"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// Codes of this transport's faults, beside JetStream's own numbers.
const (
	codeSubject      = "subject"        // Rejected where it is the topic, DestinationFailed where it is the route's
	codeMalformed    = faults.Malformed // Rejected: NATS has no way to write it
	codeTooLarge     = faults.TooLarge  // Rejected: more than the server or the stream takes
	codeNoStream     = "no_stream"      // DestinationFailed: no stream has the subject
	codeWrongStream  = "wrong_stream"   // DestinationFailed: another stream than the expected one has it
	codeNoAck        = "no_ack"         // DestinationFailed: the stream never acknowledges
	codeFull         = "full"           // DestinationFailed: the stream, or its account, is at its limit
	codeSealed       = "sealed"         // DestinationFailed: the stream takes nothing any more
	codePermission   = "permission"     // DestinationFailed: this user may not publish there; Unavailable: may not hear the answer
	codeNoResponders = "no_responders"  // Transient: there is a stream, and nobody answers for it now
	codeNotSent      = faults.NotSent   // Transient: the time was over before it was its turn
	codeTimeout      = faults.Timeout   // Unknown, or Unavailable while connecting
	codeBadAck       = "bad_ack"        // Unknown: something that is not a stream answered
	codeLost         = faults.Lost      // Unknown for what was sent, Unavailable otherwise
	codeNoJetStream  = "no_jetstream"   // Unavailable: the server or the account has no JetStream
	codeNoHeaders    = "no_headers"     // Unavailable: the server is too old to take headers
	codeClosed       = faults.Closed    // Unavailable: Close was called
	codeRefused      = faults.Refused   // Unavailable: nobody listens
	codeDNS          = faults.DNS       // Unavailable: the host name is not known
	codeTLS          = faults.TLS       // Unavailable: no TLS, or a certificate that is not trusted
	codeAuth         = faults.Auth      // Unavailable: the server does not know us
	codeLimit        = "connections"    // Unavailable: the server or the account takes no more connections
	codeHandshake    = faults.Handshake // Unavailable: whoever listens there speaks no NATS
)

// dialFault classifies what went wrong before a connection was open: nothing was
// sent, so all of it is Unavailable. hostPort is the only part of the URL that may
// be told.
func dialFault(hostPort string, err error) *engine.Fault {
	return faults.New(engine.Unavailable, dialCode(err), fmt.Errorf("natsjs: connect to %s: %w", hostPort, err))
}

func dialCode(err error) string {
	code := dialing.Code(err, func(err error) string {
		switch {
		case authError(err):
			return codeAuth
		case strings.HasSuffix(err.Error(), "connections exceeded"): // the library has values for these, which it does not use here
			return codeLimit
		case errors.Is(err, nats.ErrTLS), errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrSecureConnRequired):
			return codeTLS
		}
		return ""
	})
	switch {
	case code != "":
		return code
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return codeLost
	case errors.Is(err, nats.ErrNoInfoReceived), errors.Is(err, io.EOF), strings.HasPrefix(err.Error(), "nats: "):
		return codeHandshake
	}
	return codeLost
}

// authError reports whether the server refused to know us. The protocol has no
// codes for that; the library has values for the four texts that servers use.
func authError(err error) bool {
	for _, known := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrNkeysNotSupported,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// JetStream's error numbers.
const (
	jsAccountResources = 10002 // resource limits of the account exceeded
	jsInsufficient     = 10023 // the server has no resources left
	jsMemoryExceeded   = 10028
	jsNoAccount        = 10035
	jsNotForAccount    = 10039 // JetStream is not enabled for the account
	jsStorageExceeded  = 10047
	jsTooLarge         = 10054 // the stream's max_msg_size
	jsStreamNotFound   = 10059
	jsWrongStream      = 10060 // another stream than the expected one
	jsNotEnabled       = 10076
	jsStoreFailed      = 10077 // the store said no; the text says why
	jsHeadersTooLarge  = 10097
	jsSealed           = 10109
	jsIDInProcess      = 10158 // the same dedup id is being stored right now
	jsTooManyRequests  = 10167
)

// refusal classifies a stream's refusal of a message: it is not stored. What is
// not known here is Transient, as everything unclassified is: among it 10008
// (JetStream unavailable), 10009 (not the leader), 10118 (stream offline).
func refusal(subject string, code int, text string) *engine.Fault {
	f := faults.Newf(engine.Transient, strconv.Itoa(code), "natsjs: subject %q: refused by the stream: %.200s (%d)", subject, text, code)
	switch code {
	case jsTooLarge, jsHeadersTooLarge:
		f.Class = engine.Rejected
	case jsStreamNotFound, jsWrongStream, jsSealed:
		f.Class = engine.DestinationFailed
	case jsNotForAccount, jsNotEnabled, jsNoAccount:
		f.Class = engine.Unavailable
	case jsAccountResources, jsInsufficient, jsMemoryExceeded, jsStorageExceeded:
		// Full is an outage of the destination, not a verdict on the message. As
		// Transient it would be charged by contrast wherever a stream at its limit is
		// being emptied and takes one message out of five.
		f.Class = engine.DestinationFailed
	case jsStoreFailed:
		// One number for everything that a store can say. The three limits are known by
		// their text; where it is another one the fault stays what it would be anyway.
		switch text {
		case "maximum messages exceeded", "maximum bytes exceeded", "maximum messages per subject exceeded":
			f.Class = engine.DestinationFailed
		case "message too large":
			f.Class = engine.Rejected
		}
	case jsIDInProcess, jsTooManyRequests:
		f.RetryAfter = 500 * time.Millisecond
	}
	return f
}
