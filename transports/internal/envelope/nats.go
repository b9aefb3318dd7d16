package envelope

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/outward-dev/outward/engine"
)

// NATSPrefix stands before CloudEvents attributes in NATS headers, as in the
// CloudEvents binding for NATS.
const NATSPrefix = "ce-"

var natsBinding = newBinding(NATSPrefix)

// Headers by which a publisher tells JetStream something.
const (
	NATSMsgID          = "Nats-Msg-Id"          // what the stream's dedup window goes by
	NATSExpectedStream = "Nats-Expected-Stream" // the stream that may store it
)

// MaxNATSHeaders is the largest block of headers, in bytes, that a stream stores:
// it keeps the length in 16 bits.
const MaxNATSHeaders = 1<<16 - 1

// NATS is a message's metadata in NATS headers. It is free of any client's types.
type NATS struct {
	// Headers has one value a name. Every value is percent-encoded, see
	// [NATSEncode].
	Headers map[string][]string
	size    int
	values  []string
	bad     string // a user's header whose name NATS can't carry
	isBad   bool
}

// natsFrame is what a header block has beside its lines: its version line and the
// empty line at its end.
const natsFrame = len("NATS/1.0\r\n") + len("\r\n")

// ForNATS writes m's metadata for NATS.
func ForNATS(m *engine.Outgoing, source string) NATS {
	n := NATS{
		Headers: make(map[string][]string, len(m.Headers)+18),
		values:  make([]string, 0, len(m.Headers)+18),
		size:    natsFrame,
	}
	for name, value := range m.Headers {
		if ReservedNATS(name) {
			continue
		}
		if !natsName(name) {
			n.bad, n.isBad = name, true
		}
		n.Set(name, value)
	}
	own(m, m.ID.String(), source, natsBinding, n.Set)
	n.Set(NATSPrefix+DataContentType, contentType(m))
	if m.CorrelationID != "" {
		n.Set(CorrelationID, m.CorrelationID)
	}
	n.Set(NATSMsgID, NATSDedupID(m))
	return n
}

// Set adds a header whose name is not there yet.
func (n *NATS) Set(name, value string) {
	value = NATSEncode(value)
	n.values = append(n.values, value)
	last := len(n.values)
	n.Headers[name] = n.values[last-1 : last : last]
	n.size += len(name) + len(": ") + len(value) + len("\r\n")
}

// Size is the size of the header block on the wire, in bytes.
func (n *NATS) Size() int { return n.size }

// Check reports a header whose name NATS can't carry. The client refuses such a
// message, and servers of another make would cut its headers in the wrong place.
func (n *NATS) Check() error {
	if n.isBad {
		return fmt.Errorf("the name of header %.40q can't be sent over NATS: it takes printable ASCII without blanks, quotes and separators", n.bad)
	}
	return nil
}

// natsName reports whether the client takes a header of this name. It is a little
// stricter than the protocol.
func natsName(name string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"()/,:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return true
}

// NATSDedupID is what a stream recognises a repeat by within its dedup window.
// It is the message's id, so that a retry is stored once. When an operator has
// asked for the message again the window must not swallow it, though it is still
// the same message: then it is the id and how often that was.
func NATSDedupID(m *engine.Outgoing) string {
	if m.Resends <= 0 {
		return m.ID.String()
	}
	return m.ID.String() + "/" + strconv.Itoa(m.Resends)
}

// ReservedNATS reports whether a header of this name is not for users on NATS.
// Beside [Reserved] these are all that begin with Nats-, which are orders to the
// server (Nats-Rollup deletes what the stream has); Status, which clients take for
// the server's own word on a message without a body; and Content-Type, by which
// the CloudEvents binding tells its two modes apart.
func ReservedNATS(name string) bool {
	if Reserved(name) {
		return true
	}
	switch {
	case len(name) >= len("nats-") && strings.EqualFold(name[:len("nats-")], "nats-"):
		return true
	default:
		return strings.EqualFold(name, "status") || strings.EqualFold(name, "content-type")
	}
}

// NATSEncode percent-encodes a header's value as the CloudEvents binding for NATS
// says: space, double quote, percent, and whatever is not printable ASCII. Clients
// and servers trim blanks at both ends of a value and replace line breaks; what is
// encoded comes out as it went in.
func NATSEncode(s string) string {
	first := 0
	for first < len(s) && natsPlain(s[first]) {
		first++
	}
	if first == len(s) {
		return s
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s) + 16)
	b.WriteString(s[:first])
	for i := first; i < len(s); i++ {
		if c := s[i]; natsPlain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

func natsPlain(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }

// NATSDecode undoes [NATSEncode], and accepts what is encoded without need.
func NATSDecode(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("a %% in a header's value begins no percent-encoding")
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("a %% in a header's value begins no percent-encoding")
		}
		b.WriteByte(byte(c))
		i += 2
	}
	if !utf8.ValidString(b.String()) {
		return "", fmt.Errorf("a header's value is not UTF-8 text")
	}
	return b.String(), nil
}
