package natsjs

import (
	"errors"
	"strings"

	"github.com/outward-dev/outward/transports/internal/address"
)

// endpoint is one server's URL, taken apart. The client library sees host and port
// only: its own parser quotes the URL with the password in some of its errors.
type endpoint struct {
	address.Address
	tls bool
}

// Fixed texts, as those of [address] are.
var (
	errScheme  = errors.New("each URL must begin with nats:// or tls:// (a comma in a password is written %2C)")
	errPath    = errors.New("a URL has a path or query parameters; use Options instead (or write a / or ? in the password as %2F or %3F)")
	errTooMany = errors.New("more than 100 URLs")
)

// parseURLs reads a list of URLs with commas between them.
func parseURLs(raw string) ([]*endpoint, error) {
	parts := strings.Split(raw, ",")
	if len(parts) > 100 {
		return nil, errTooMany
	}
	list := make([]*endpoint, 0, len(parts))
	for _, part := range parts {
		a, err := parseURL(strings.Trim(part, " "))
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// parseURL reads nats|tls://[user:password@|token@]host[:port].
func parseURL(raw string) (*endpoint, error) {
	scheme, authority, path, err := address.Cut(raw)
	a := &endpoint{}
	switch scheme {
	case "nats":
	case "tls":
		a.tls = true
	default:
		return nil, errScheme
	}
	if err != nil {
		return nil, err
	}
	if path != "" && path != "/" {
		return nil, errPath
	}
	a.Address, err = address.Parse(authority, "4222")
	return a, err
}

// login returns user and password, or a token alone.
func (a *endpoint) login() (user, password, token string) {
	if a.Login == nil {
		return "", "", ""
	}
	user, password, pair := a.Login()
	if !pair {
		return "", "", user
	}
	return user, password, ""
}
