package natsjs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"time"

	"github.com/outward-dev/outward/transports/internal/envelope"
	"github.com/outward-dev/outward/transports/internal/settings"
)

// Options are a Transport's settings. The zero value of each is the default that
// stands beside it.
type Options struct {
	// Name tells this transport from others of a relay. Default "nats".
	Name string
	// Source is the CloudEvents source of every message: a URI reference such as
	// "/orders". Default "/outward".
	Source string
	// ConnectionName is shown by the server beside the connection. Default "outward".
	ConnectionName string

	// Stream is the one stream that may store the messages: the server refuses them
	// if another one has the subject. Empty: whichever has it.
	Stream string

	// TLS demands TLS. Without it TLS is used for tls:// URLs and where the server
	// asks for it, with the system's roots and the URL's host name.
	TLS *tls.Config
	// TLSFirst begins with the TLS handshake, for servers with handshake_first.
	TLSFirst bool

	// Credentials is asked for user and password at every dial. Its error is
	// Unavailable, and its text is passed on.
	Credentials func(context.Context) (user, password string, err error)
	// Token is asked for a token at every dial, as Credentials is.
	Token func(context.Context) (string, error)
	// CredsFile is a file with a user's JWT and its seed, read at every dial.
	CredsFile string
	// NKeyFile is a file with an NKey's seed, read at every dial.
	NKeyFile string

	// InboxPrefix is what the subjects begin with on which acknowledgements come:
	// this user must be allowed to subscribe to InboxPrefix.>. Default "_INBOX".
	InboxPrefix string
	// APIPrefix is where JetStream is asked about streams. Default "$JS.API"; for a
	// domain "$JS.NAME.API".
	APIPrefix string

	// DialTimeout bounds connecting to one server, with TLS and login. Default 5 s.
	DialTimeout time.Duration
	// WriteTimeout bounds one write to the socket. Default 10 s.
	WriteTimeout time.Duration
	// PingInterval finds a server that is gone without a word, within three of them.
	// From 100 ms to 2 min. Default 5 s.
	PingInterval time.Duration

	// Window is how many messages may be unacknowledged for one subject. More than a
	// few thousand gains nothing. From 1 to 65535. Default 2000.
	Window int
	// RetryHorizon is for how long a message may be sent again after its outcome was
	// not known; Check compares the streams' dedup windows with it. Default 10 min.
	RetryHorizon time.Duration

	// Destinations are the subjects whose streams Check looks at, beside those that
	// were published to.
	Destinations []string

	// Logger may be nil.
	Logger *slog.Logger
}

// withDefaults checks o and fills it in. All faults are reported at once.
func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	var c settings.Checks
	c.Text(&v.Name, "nats")
	c.Source(&v.Source)
	c.Text(&v.ConnectionName, "outward")
	c.Text(&v.InboxPrefix, "_INBOX")
	c.Text(&v.APIPrefix, "$JS.API")
	if strings.ContainsAny(v.Stream, ".*>/\\") || envelope.NATSEncode(v.Stream) != v.Stream || len(v.Stream) > 255 {
		c.Addf("Stream %.80q can't be the name of a stream", v.Stream)
	}
	c.Timeout("DialTimeout", &v.DialTimeout, 5*time.Second)
	c.Timeout("WriteTimeout", &v.WriteTimeout, 10*time.Second)
	c.Duration("PingInterval", &v.PingInterval, 5*time.Second, 100*time.Millisecond, 2*time.Minute)
	c.Duration("RetryHorizon", &v.RetryHorizon, 10*time.Minute, time.Second, 365*24*time.Hour)
	c.Number("Window", &v.Window, 2000, 65535)
	if v.logins() > 1 {
		c.Addf("at most one of Credentials, Token, CredsFile and NKeyFile may be set")
	}
	for _, p := range []struct{ name, value string }{{"InboxPrefix", v.InboxPrefix}, {"APIPrefix", v.APIPrefix}} {
		if err := checkPrefix(p.value); err != nil {
			c.Addf("%s: %w", p.name, err)
		}
	}
	for _, d := range v.Destinations {
		if err := CheckSubject(d); err != nil {
			c.Addf("Destinations: %w", err)
		}
	}
	c.Logger(&v.Logger)
	return v, c.Err()
}

// checkPrefix is [CheckSubject] for what may be the server's own.
func checkPrefix(prefix string) error {
	return CheckSubject(strings.TrimPrefix(strings.TrimPrefix(prefix, "$"), "_"))
}

// logins counts the ways to log in that are set.
func (o *Options) logins() int {
	n := 0
	for _, set := range []bool{o.Credentials != nil, o.Token != nil, o.CredsFile != "", o.NKeyFile != ""} {
		if set {
			n++
		}
	}
	return n
}
