package rabbitmq

import (
	"errors"
	"net/url"
	"strings"

	"github.com/outward-dev/outward/transports/internal/address"
)

// endpoint is a broker URL, taken apart. The client library never sees the URL: its
// own parser quotes it in some of its errors.
type endpoint struct {
	address.Address
	tls   bool
	vhost string
}

// Fixed texts, as those of [address] are.
var (
	errScheme  = errors.New("the URL must begin with amqp:// or amqps://")
	errQuery   = errors.New("the URL has query parameters; use Options instead (or write a ? in the password as %3F)")
	errTooLong = errors.New("the URL's user, password or virtual host is longer than AMQP allows")
)

// parseURL reads amqp[s]://[user[:password]@]host[:port][/vhost].
func parseURL(raw string) (*endpoint, error) {
	scheme, authority, path, err := address.Cut(raw)
	a := &endpoint{vhost: "/"}
	port := "5672"
	switch scheme {
	case "amqp":
	case "amqps":
		a.tls, port = true, "5671"
	default:
		return nil, errScheme
	}
	if err != nil {
		return nil, err
	}
	if strings.Contains(path, "?") {
		return nil, errQuery
	}
	if a.Address, err = address.Parse(authority, port); err != nil {
		return nil, err
	}
	if path = strings.TrimPrefix(path, "/"); path != "" {
		vhost, err := url.PathUnescape(path)
		if err != nil {
			return nil, address.ErrPercent
		}
		a.vhost = vhost
	}
	user, password := a.login()
	if len(a.vhost) > 255 || len(user) > 4096 || len(password) > 1<<16 {
		return nil, errTooLong
	}
	return a, nil
}

// login returns user and password; those of a fresh broker where the URL has none.
func (a *endpoint) login() (user, password string) {
	if a.Login == nil {
		return "guest", "guest"
	}
	user, password, _ = a.Login()
	return user, password
}
