// Package address takes apart the URLs of brokers without ever telling their
// passwords. The parsers of the standard library and of the clients quote the URL
// in some of their errors; here every error is a fixed text, since whatever is
// quoted from a URL that can't be parsed may be part of its password.
package address

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// What is wrong with a URL. A transport has texts of its own for schemes and for
// what may follow the host.
var (
	ErrChars   = errors.New("a URL contains a space or a control character; write it percent-encoded")
	ErrEncode  = errors.New("a URL's user, password or path contains one of @ : / ? # unencoded; write it percent-encoded (%40 %3A %2F %3F %23)")
	ErrPercent = errors.New("a URL contains a % that begins no percent-encoding; write %25")
	ErrHost    = errors.New("a URL names no host")
	ErrPort    = errors.New("a URL's port is not a number from 1 to 65535")
)

// Cut takes SCHEME://AUTHORITY[PATH] apart. The scheme is in lower case, and empty
// where there is none; path begins with one of / ? # or is empty, and is still
// encoded.
func Cut(raw string) (scheme, authority, path string, err error) {
	scheme, authority, ok := strings.Cut(raw, "://")
	if !ok {
		return "", "", "", nil
	}
	scheme = strings.ToLower(scheme)
	if strings.ContainsFunc(authority, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return scheme, "", "", ErrChars
	}
	if i := strings.IndexAny(authority, "/?#"); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	if strings.ContainsAny(path, "#@") || strings.Count(authority, "@") > 1 {
		return scheme, "", "", ErrEncode
	}
	return scheme, authority, path, nil
}

// An Address is where a broker is, and how to log in there.
type Address struct {
	Host string // without brackets
	Port string
	// Login returns what stands before the @: user and password, or, with pair false,
	// one thing alone as user. nil: there is none. A function is opaque to fmt, so
	// that %+v of what holds an Address can't print it.
	Login func() (user, password string, pair bool)
}

// HostPort names the broker in errors and logs.
func (a *Address) HostPort() string { return net.JoinHostPort(a.Host, a.Port) }

// Parse reads [user[:password]@]host[:port], as [Cut] gives it. A host may be an
// IPv6 address in brackets.
func Parse(authority, defaultPort string) (Address, error) {
	a := Address{Port: defaultPort}
	login, hostport, hasLogin := strings.Cut(authority, "@")
	if !hasLogin {
		hostport = authority
	} else if err := a.setLogin(login); err != nil {
		return Address{}, err
	}
	if err := a.setHost(hostport); err != nil {
		return Address{}, err
	}
	return a, nil
}

func (a *Address) setLogin(login string) error {
	u, p, pair := strings.Cut(login, ":")
	if strings.Contains(p, ":") {
		return ErrEncode
	}
	user, err1 := url.PathUnescape(u)
	password, err2 := url.PathUnescape(p)
	if err1 != nil || err2 != nil {
		return ErrPercent
	}
	a.Login = func() (string, string, bool) { return user, password, pair }
	return nil
}

// setHost reads host, host:port, [v6] and [v6]:port.
func (a *Address) setHost(s string) error {
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return ErrHost
		}
		host, port = s[1:end], s[end+1:]
		if net.ParseIP(host) == nil || port != "" && port[0] != ':' {
			return ErrHost
		}
		if port != "" {
			if port = port[1:]; port == "" {
				return ErrPort
			}
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		if host, port = s[:i], s[i+1:]; port == "" {
			return ErrPort
		}
	}
	if !hostName(host) {
		return ErrHost
	}
	a.Host = host
	if port == "" {
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return ErrPort
	}
	a.Port = strconv.FormatUint(n, 10)
	return nil
}

// hostName refuses what no host is called, and what a client's own parser would
// choke on, and quote.
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
