package natsjs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outward-dev/outward/engine"
)

// Codes of this transport's faults, beside JetStream's own numbers.
const (
	codeSubject      = "subject"          // Rejected where it is the topic, DestinationFailed where it is the route's
	codeMalformed    = "malformed"        // Rejected: NATS has no way to write it
	codeTooLarge     = "too_large"        // Rejected: more than the server or the stream takes
	codeNoStream     = "no_stream"        // DestinationFailed: no stream has the subject
	codeWrongStream  = "wrong_stream"     // DestinationFailed: another stream than the expected one has it
	codeNoAck        = "no_ack"           // DestinationFailed: the stream never acknowledges
	codeFull         = "full"             // DestinationFailed: the stream, or its account, is at its limit
	codeSealed       = "sealed"           // DestinationFailed: the stream takes nothing any more
	codePermission   = "permission"       // DestinationFailed: this user may not publish there; Unavailable: may not hear the answer
	codeNoResponders = "no_responders"    // Transient: there is a stream, and nobody answers for it now
	codeNotSent      = "not_sent"         // Transient: the time was over before it was its turn
	codeTimeout      = engine.CodeTimeout // Unknown, or Unavailable while connecting
	codeBadAck       = "bad_ack"          // Unknown: something that is not a stream answered
	codeLost         = "connection_lost"  // Unknown for what was sent, Unavailable otherwise
	codeNoJetStream  = "no_jetstream"     // Unavailable: the server or the account has no JetStream
	codeNoHeaders    = "no_headers"       // Unavailable: the server is too old to take headers
	codeClosed       = "closed"           // Unavailable: Close was called
	codeRefused      = "refused"          // Unavailable: nobody listens
	codeDNS          = "dns"              // Unavailable: the host name is not known
	codeTLS          = "tls"              // Unavailable: no TLS, or a certificate that is not trusted
	codeAuth         = "auth"             // Unavailable: the server does not know us
	codeLimit        = "connections"      // Unavailable: the server or the account takes no more connections
	codeHandshake    = "handshake"        // Unavailable: whoever listens there speaks no NATS
)

func fault(class engine.Class, code string, err error) *engine.Fault {
	return &engine.Fault{Class: class, Code: code, Err: err}
}

func faultf(class engine.Class, code, format string, args ...any) *engine.Fault {
	return fault(class, code, fmt.Errorf(format, args...))
}

// dialFault classifies what went wrong before a connection was open: nothing was
// sent, so all of it is Unavailable. hostPort is the only part of the URL that may
// be told.
func dialFault(hostPort string, err error) *engine.Fault {
	return fault(engine.Unavailable, dialCode(err), fmt.Errorf("natsjs: connect to %s: %w", hostPort, err))
}

func dialCode(err error) string {
	var (
		dns       *net.DNSError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		remote    *net.OpError
		timeout   interface{ Timeout() bool }
	)
	switch {
	// When the time was over the rest is only what that looked like from inside.
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return codeTimeout
	case authError(err):
		return codeAuth
	case strings.HasSuffix(err.Error(), "connections exceeded"): // the library has values for these, which it does not use here
		return codeLimit
	case errors.As(err, &dns):
		return codeDNS
	case errors.Is(err, nats.ErrTLS), errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrSecureConnRequired),
		errors.As(err, &record), errors.As(err, &alert), errors.As(err, &verify),
		errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid),
		errors.As(err, &remote) && remote.Op == "remote error": // how crypto/tls tells the other side's alert
		return codeTLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return codeRefused
	case errors.As(err, &timeout) && timeout.Timeout():
		return codeTimeout
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
	f := faultf(engine.Transient, strconv.Itoa(code), "natsjs: subject %q: refused by the stream: %.200s (%d)", subject, text, code)
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
