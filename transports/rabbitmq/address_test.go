package rabbitmq

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outward-dev/outward/transports/internal/address"
)

func TestAddress(t *testing.T) {
	for raw, want := range map[string]string{
		"amqp://h":       "h:5672 guest guest / false",
		"amqp://h/":      "h:5672 guest guest / false",
		"AMQPS://u:p@h":  "h:5671 u p / true",
		"amqp://u@h:1/v": "h:1 u  v false",
		"amqp://u:a%40b%3A%2F%3F%23%25@h:5672/%2F": "h:5672 u a@b:/?#% / false",
		"amqp://u:p+q@h/a/b":                       "h:5672 u p+q a/b false",
		"amqp://[::1]:5673/v":                      "[::1]:5673 guest guest v false",
		"amqp://[::1]":                             "[::1]:5672 guest guest / false",
	} {
		a, err := parseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		user, password := a.login()
		if got := fmt.Sprintf("%s %s %s %s %v", a.HostPort(), user, password, a.vhost, a.tls); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

// Fixed texts: quoting a URL that can't be parsed has put passwords into logs
// (rook/rook#18138, hatchet-dev/hatchet#4418); a "?" in the password is
// rabbitmq/amqp091-go#305.
func TestBadURLTellsNoSecret(t *testing.T) {
	for raw, want := range map[string]error{
		"":                                         errScheme,
		"S3CRET":                                   errScheme,
		"http://u:S3CRET@h/":                       errScheme,
		"u:S3CRET@h/":                              errScheme,
		"amqp:/u:S3CRET@h":                         errScheme,
		"amqp://u:S3CRET%@h/":                      address.ErrPercent,
		"amqp://u:S3CRET%zz@h/":                    address.ErrPercent,
		"amqp://u%:S3CRET@h/":                      address.ErrPercent,
		"amqp://u:p@h/S3CRET%":                     address.ErrPercent,
		"amqp://u:S3#CRET@h/":                      address.ErrEncode,
		"amqp://u:S3?CRET@h/":                      address.ErrEncode,
		"amqp://u:S3/CRET@h/":                      address.ErrEncode,
		"amqp://u:S3@CRET@h/":                      address.ErrEncode,
		"amqp://u:S3:CRET@h/":                      address.ErrEncode,
		"amqp://u:S3 CRET@h/":                      address.ErrChars,
		"amqp://u:S3\nCRET@h/":                     address.ErrChars,
		"amqp://u:S3CRET@/":                        address.ErrHost,
		"amqp://u:S3CRET@:5672/":                   address.ErrHost,
		"amqp://u:S3CRET@[::1/":                    address.ErrHost,
		"amqp://u:S3CRET@[S3CRET]/":                address.ErrHost,
		"amqp://u:S3CRET@S3\"CRET/":                address.ErrHost,
		"amqp://u:S3CRET@h:S3CRET/":                address.ErrPort,
		"amqp://u:S3CRET@h:0/":                     address.ErrPort,
		"amqp://u:S3CRET@h:70000/":                 address.ErrPort,
		"amqp://u:S3CRET@h:/":                      address.ErrPort,
		"amqp://h/?password=S3CRET":                errQuery,
		"amqp://h/" + strings.Repeat("S3CRET", 50): errTooLong,
	} {
		_, err := New(raw, nil)
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", raw, err, want)
			continue
		}
		if s := err.Error(); strings.Contains(s, "S3") || strings.Contains(s, "CRET") {
			t.Errorf("%q: the error tells of the password: %v", raw, err)
		}
	}
}

func TestTransportPrintsNoSecret(t *testing.T) {
	tr := newTransport(t, "amqp://user:S3CRET@h/", nil)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, tr.addr) + fmt.Sprintf(format, tr.addr.Address) + fmt.Sprintf(format, tr); strings.Contains(s, "S3CRET") {
			t.Errorf("%s of a transport prints the password", format)
		}
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"amqp://h", "amqps://u:p@h:1/v", "amqp://u:S3CRET%@h", "amqp://[::1]:2/%2f", "amqp://a@b@c", "://", "amqp://"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := parseURL(raw)
		if err != nil {
			for _, fixed := range []error{errScheme, address.ErrChars, address.ErrEncode, address.ErrPercent, address.ErrHost, address.ErrPort, errQuery, errTooLong} {
				if err == fixed { //nolint:errorlint // that it is the very text is the point
					return
				}
			}
			t.Errorf("%q: an error that is not one of the fixed texts: %v", raw, err)
			return
		}
		if a.Host == "" || a.Port == "" || a.vhost == "" {
			t.Errorf("%q: incomplete: %+v", raw, a)
		}
	})
}
