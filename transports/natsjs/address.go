package natsjs

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// address is one server's URL, taken apart. The client library sees host and port
// only: its own parser, like the standard library's, quotes the URL with the
// password in some of its errors.
type address struct {
	tls  bool
	host string // without brackets
	port string
	// login returns user and password, or a token alone. A function is opaque to
	// fmt, so that %+v of a Transport can't print them. nil: the URL has none.
	login func() (user, password, token string)
}

// hostPort names the server in errors and logs.
func (a *address) hostPort() string { return net.JoinHostPort(a.host, a.port) }

// The texts are fixed: whatever is quoted from a URL that can't be parsed may be
// part of its password.
var (
	errScheme  = errors.New("each URL must begin with nats:// or tls:// (a comma in a password is written %2C)")
	errChars   = errors.New("a URL contains a space or a control character; write it percent-encoded")
	errEncode  = errors.New("a URL's user, password or token contains one of @ : / ? # unencoded; write it percent-encoded (%40 %3A %2F %3F %23)")
	errPercent = errors.New("a URL contains a % that begins no percent-encoding; write %25")
	errHost    = errors.New("a URL names no host")
	errPort    = errors.New("a URL's port is not a number from 1 to 65535")
	errPath    = errors.New("a URL has a path or query parameters; use Options instead (or write a / or ? in the password as %2F or %3F)")
	errTooMany = errors.New("more than 100 URLs")
)

// parseAddresses reads a list of URLs with commas between them.
func parseAddresses(raw string) ([]*address, error) {
	parts := strings.Split(raw, ",")
	if len(parts) > 100 {
		return nil, errTooMany
	}
	list := make([]*address, 0, len(parts))
	for _, part := range parts {
		a, err := parseAddress(strings.Trim(part, " "))
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// parseAddress reads nats|tls://[user:password@|token@]host[:port].
func parseAddress(raw string) (*address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, errScheme
	}
	a := &address{port: "4222"}
	switch strings.ToLower(scheme) {
	case "nats":
	case "tls":
		a.tls = true
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
	case strings.ContainsAny(path, "#@"), strings.Count(authority, "@") > 1:
		return nil, errEncode
	case path != "" && path != "/":
		return nil, errPath
	}
	login, hostport, hasLogin := strings.Cut(authority, "@")
	if !hasLogin {
		hostport = authority
	} else if err := a.setLogin(login); err != nil {
		return nil, err
	}
	return a, a.setHost(hostport)
}

// setLogin reads user:password or token.
func (a *address) setLogin(login string) error {
	u, p, isUser := strings.Cut(login, ":")
	if strings.Contains(p, ":") {
		return errEncode
	}
	user, err1 := url.PathUnescape(u)
	password, err2 := url.PathUnescape(p)
	if err1 != nil || err2 != nil {
		return errPercent
	}
	token := ""
	if !isUser {
		user, token = "", user
	}
	a.login = func() (string, string, string) { return user, password, token }
	return nil
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
	if !hostName(host) {
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

// hostName refuses what the library's own parser would choke on, and quote.
func hostName(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c >= 0x80:
		case c == '.', c == '-', c == '_', c == ':':
		default:
			return false
		}
	}
	return true
}
