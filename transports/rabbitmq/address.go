package rabbitmq

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// address is a broker URL, taken apart. The client library never sees the URL:
// its own parser, like the standard library's, quotes the URL with the password
// in some of its errors.
type address struct {
	tls   bool
	host  string // for TLS, without brackets
	port  string
	vhost string
	// login returns user and password. A function is opaque to fmt, so that %+v of
	// a Transport can't print them.
	login func() (user, password string)
}

// hostPort names the broker in errors and logs.
func (a *address) hostPort() string { return net.JoinHostPort(a.host, a.port) }

// The texts are fixed: whatever is quoted from a URL that can't be parsed may be
// part of its password.
var (
	errScheme  = errors.New("the URL must begin with amqp:// or amqps://")
	errChars   = errors.New("the URL contains a space or a control character; write it percent-encoded")
	errEncode  = errors.New("the URL's user, password or virtual host contains one of @ : / ? # unencoded; write it percent-encoded (%40 %3A %2F %3F %23)")
	errPercent = errors.New("the URL contains a % that begins no percent-encoding; write %25")
	errHost    = errors.New("the URL names no host")
	errPort    = errors.New("the URL's port is not a number from 1 to 65535")
	errQuery   = errors.New("the URL has query parameters; use Options instead (or write a ? in the password as %3F)")
	errTooLong = errors.New("the URL's user, password or virtual host is longer than AMQP allows")
)

// parseAddress reads amqp[s]://[user[:password]@]host[:port][/vhost].
func parseAddress(raw string) (*address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, errScheme
	}
	a := &address{port: "5672", vhost: "/"}
	switch strings.ToLower(scheme) {
	case "amqp":
	case "amqps":
		a.tls, a.port = true, "5671"
	default:
		return nil, errScheme
	}
	if strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errChars
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	switch {
	case strings.Contains(path, "#"), strings.Contains(path, "@"), strings.Count(authority, "@") > 1:
		return nil, errEncode
	case strings.Contains(path, "?"):
		return nil, errQuery
	}
	user, password := "guest", "guest"
	login, hostport, hasLogin := strings.Cut(authority, "@")
	if !hasLogin {
		hostport = authority
	} else {
		u, p, _ := strings.Cut(login, ":")
		if strings.Contains(p, ":") {
			return nil, errEncode
		}
		var err1, err2 error
		user, err1 = url.PathUnescape(u)
		password, err2 = url.PathUnescape(p)
		if err1 != nil || err2 != nil {
			return nil, errPercent
		}
	}
	if err := a.setHost(hostport); err != nil {
		return nil, err
	}
	if path = strings.TrimPrefix(path, "/"); path != "" {
		vhost, err := url.PathUnescape(path)
		if err != nil {
			return nil, errPercent
		}
		a.vhost = vhost
	}
	const short = 255
	if len(a.vhost) > short || len(user) > 4096 || len(password) > 1<<16 {
		return nil, errTooLong
	}
	a.login = func() (string, string) { return user, password }
	return a, nil
}

// setHost reads host, host:port, [v6] and [v6]:port.
func (a *address) setHost(s string) error {
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return errHost
		}
		host, port = s[1:end], s[end+1:]
		if net.ParseIP(host) == nil || port != "" && port[0] != ':' {
			return errHost
		}
		if port != "" {
			if port = port[1:]; port == "" {
				return errPort
			}
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		if host, port = s[:i], s[i+1:]; port == "" {
			return errPort
		}
	}
	if host == "" || strings.Contains(host, "%") {
		return errHost
	}
	a.host = host
	if port == "" {
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return errPort
	}
	a.port = strconv.FormatUint(n, 10)
	return nil
}
