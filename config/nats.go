package config

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/natsjs"
)

var natsKind = kind{name: "nats", read: readNATS, route: readNATSRoute}

// natsBroker implements broker.
type natsBroker struct {
	url                    secret
	source, stream         string
	user                   string
	password, token        secret // nil: the file has none
	creds, nkey            string // files
	inboxPrefix, apiPrefix string
	tls                    *tls.Config
}

const natsURL = "write it as in nats://HOST:4222, or tls://, with commas between the servers of a cluster"

func readNATS(m *mapping) broker {
	faults := len(m.r.faults)
	b := &natsBroker{}
	var ok bool
	b.url, ok = m.secretAddress("url", natsURL, redactNATS)
	if ok {
		if err := tryNATS(b.url(), nil); err != nil {
			m.fault("url", "%v; %s", err, natsURL)
		}
	}
	setting := func(key, def string, try func(value string) *natsjs.Options) string {
		v := m.text(key, def)
		if err := tryNATS("", try(v)); err != nil {
			if n := m.at(key); n.expanded {
				err = errors.New(n.shown() + " can't be used here")
			}
			m.fault(key, "%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "InboxPrefix: "), "APIPrefix: "))
		}
		return v
	}
	b.source = setting("source", "/outward", func(v string) *natsjs.Options { return &natsjs.Options{Source: v} })
	b.stream = setting("stream", "", func(v string) *natsjs.Options { return &natsjs.Options{Stream: v} })
	b.inboxPrefix = setting("inbox_prefix", "_INBOX", func(v string) *natsjs.Options { return &natsjs.Options{InboxPrefix: v} })
	b.apiPrefix = setting("api_prefix", "$JS.API", func(v string) *natsjs.Options { return &natsjs.Options{APIPrefix: v} })
	b.readLogin(m, ok)
	if n := m.get("tls"); n != nil {
		inner := m.r.mapping(n, m.n)
		b.tls = readTLS(inner)
		m.sub("tls", inner)
	}
	if len(m.r.faults) > faults {
		return nil
	}
	return b
}

// readLogin reads the ways to log in, of which there is at most one.
func (b *natsBroker) readLogin(m *mapping, urlOK bool) {
	b.user, b.password, b.token = m.text("user", ""), m.secretText("password"), m.secretText("token")
	b.creds, b.nkey = m.path("creds"), m.path("nkey")
	switch {
	case m.has("user") && !m.has("password"):
		m.fault("user", "user and password belong together; give both, or neither")
	case m.has("password") && !m.has("user"):
		m.fault("password", "user and password belong together; give both, or neither")
	}
	first := ""
	for _, key := range []string{"user", "token", "creds", "nkey"} {
		switch {
		case !m.has(key):
		case first != "":
			m.fault(key, "%s is a way to log in too; use one", first)
		default:
			first = key
		}
	}
	if first != "" && urlOK && strings.Contains(b.url(), "@") {
		m.fault(first, "the url has a user or a token too; use one way to log in")
	}
}

// tryNATS asks the transport whether it would take these settings. An empty url
// stands for one that is right.
func tryNATS(url string, o *natsjs.Options) error {
	if url == "" {
		url = "nats://localhost"
	}
	t, err := natsjs.New(url, o)
	if err != nil {
		return plainError(oneLine(strings.TrimPrefix(err.Error(), "natsjs: ")))
	}
	return t.Close(context.Background())
}

// readNATSRoute reads subject. Left out, it is the message's topic.
func readNATSRoute(m *mapping) string {
	subject, has := m.optional("subject")
	if !has {
		return ""
	}
	if subject == "" {
		m.fault("subject", "it is empty; leave it out to publish to the topic")
		return ""
	}
	if err := natsjs.CheckSubject(subject); err != nil {
		if n := m.at("subject"); n.expanded {
			m.fault("subject", "%s is not a subject to publish to", n.shown())
		} else {
			m.fault("subject", "%v", err)
		}
	}
	return subject
}

// redactNATS shows a list of servers without their passwords and tokens. What stands
// alone before an @ is a token, and as secret as a password.
func redactNATS(raw string) string {
	servers := strings.Split(raw, ",")
	for i, server := range servers {
		shown := redact(server)
		if scheme, rest, ok := strings.Cut(shown, "://"); ok {
			if login, host, has := strings.Cut(rest, "@"); has && !strings.Contains(login, ":") && reference.ReplaceAllString(login, "") != "" {
				shown = scheme + "://***@" + host
			}
		}
		servers[i] = shown
	}
	return strings.Join(servers, ",")
}

func (b *natsBroker) open(o brokerOptions) (engine.Transport, error) {
	options := &natsjs.Options{
		Name:           o.name,
		Source:         b.source,
		ConnectionName: "outward/" + o.relay,
		Stream:         b.stream,
		TLS:            b.tls,
		CredsFile:      b.creds,
		NKeyFile:       b.nkey,
		InboxPrefix:    b.inboxPrefix,
		APIPrefix:      b.apiPrefix,
		Destinations:   o.destinations,
		Logger:         o.logger,
	}
	if b.password != nil {
		options.Credentials = func(context.Context) (user, password string, err error) { return b.user, b.password(), nil }
	}
	if b.token != nil {
		options.Token = func(context.Context) (string, error) { return b.token(), nil }
	}
	return natsjs.New(b.url(), options)
}
