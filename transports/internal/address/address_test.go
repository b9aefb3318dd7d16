package address_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/outward-dev/outward/transports/internal/address"
)

// read is what a transport does with a URL.
func read(raw string) (scheme, path string, a address.Address, err error) {
	scheme, authority, path, err := address.Cut(raw)
	if err == nil {
		a, err = address.Parse(authority, "99")
	}
	return scheme, path, a, err
}

func TestAddress(t *testing.T) {
	for raw, want := range map[string]string{
		"X://h":                     "x h:99 none ",
		"x://h:0001/v%2F?q":         "x h:1 none /v%2F?q",
		"x://[::1]":                 "x [::1]:99 none ",
		"x://[::1]:5?q":             "x [::1]:5 none ?q",
		"x://u@h_1.a-b":             "x h_1.a-b:99 u, alone ",
		"x://u:@h":                  "x h:99 u,  ",
		"x://:p@h":                  "x h:99 , p ",
		"x://u%40:a%3A%2F%3F%23+@h": "x h:99 u@, a:/?#+ ",
	} {
		scheme, path, a, err := read(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		login := "none"
		if a.Login != nil {
			user, password, pair := a.Login()
			if login = user + ", " + password; !pair {
				login = user + ", alone"
			}
		}
		if got := fmt.Sprintf("%s %s %s %s", scheme, a.HostPort(), login, path); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
		if s := fmt.Sprintf("%v %+v %#v", a, a, &a); strings.Contains(s, "a:/?#+") {
			t.Errorf("printing an address tells the password: %s", s)
		}
	}
	if scheme, _, _, err := address.Cut("S3CRET"); scheme != "" || err != nil {
		t.Errorf("no scheme: %q, %v", scheme, err)
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"x://h", "x://u:p@h:1/v", "x://u:S3CRET%@h", "x://[::1]:2/%2f", "x://a@b@c", "x://a b", "x://h:0", "://"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		_, _, a, err := read(raw)
		if err != nil {
			for _, fixed := range []error{address.ErrChars, address.ErrEncode, address.ErrPercent, address.ErrHost, address.ErrPort} {
				if err == fixed { //nolint:errorlint // that it is the very text is the point
					return
				}
			}
			t.Errorf("%q: an error that is not one of the fixed texts: %v", raw, err)
			return
		}
		if a.Host == "" || a.Port == "" || bytes.ContainsAny([]byte(a.HostPort()), " @/?#%,\"") {
			t.Errorf("%q: %q", raw, a.HostPort())
		}
	})
}
