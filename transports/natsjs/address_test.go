package natsjs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/transports/internal/address"
)

func TestAddresses(t *testing.T) {
	for raw, want := range map[string]string{
		"nats://h":                           "h:4222    false",
		"NATS://h:1/":                        "h:1    false",
		"tls://u:p@h":                        "h:4222 u p  true",
		"nats://to%2Fken@h":                  "h:4222   to/ken false",
		"nats://u%40x:p%2Cq%25@h":            "h:4222 u@x p,q%  false",
		"nats://:p@h":                        "h:4222  p  false",
		"nats://[::1]:5":                     "[::1]:5    false",
		"nats://a, nats://u:p@b:2,tls://t@c": "a:4222    false b:2 u p  false c:4222   t true",
	} {
		list, err := parseURLs(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		var got []string
		for _, a := range list {
			user, password, token := a.login()
			got = append(got, fmt.Sprintf("%s %s %s %s %v", a.HostPort(), user, password, token, a.tls))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", raw, s, want)
		}
	}
}

// Fixed texts: quoting a URL that can't be parsed has put passwords into logs
// (rook/rook#18138, hatchet-dev/hatchet#4418), and the client library quotes it.
func TestBadURLTellsNoSecret(t *testing.T) {
	for raw, want := range map[string]error{
		"":                                errScheme,
		"S3CRET":                          errScheme,
		"http://u:S3CRET@h/":              errScheme,
		"ws://u:S3CRET@h/":                errScheme,
		"u:S3CRET@h:4222":                 errScheme,
		"nats:/u:S3CRET@h":                errScheme,
		"nats://u:S3,CRET@h":              address.ErrPort, // the first part is u, port S3
		"nats://h,u:S3CRET@h":             errScheme,
		"nats://u:S3CRET%@h/":             address.ErrPercent,
		"nats://u:S3CRET%zz@h/":           address.ErrPercent,
		"nats://S3CRET%zz@h/":             address.ErrPercent,
		"nats://u:S3#CRET@h/":             address.ErrEncode,
		"nats://u:S3?CRET@h/":             address.ErrEncode,
		"nats://u:S3/CRET@h/":             address.ErrEncode,
		"nats://u:S3@CRET@h/":             address.ErrEncode,
		"nats://u:S3:CRET@h/":             address.ErrEncode,
		"nats://u:S3 CRET@h/":             address.ErrChars,
		"nats://u:S3\nCRET@h/":            address.ErrChars,
		"nats://u:S3CRET@/":               address.ErrHost,
		"nats://u:S3CRET@:4222/":          address.ErrHost,
		"nats://u:S3CRET@[::1/":           address.ErrHost,
		"nats://u:S3CRET@[S3CRET]/":       address.ErrHost,
		"nats://u:S3CRET@S3%CRET/":        address.ErrHost,
		"nats://u:S3CRET@S3\"CRET/":       address.ErrHost,
		"nats://u:S3CRET@h:S3CRET/":       address.ErrPort,
		"nats://u:S3CRET@h:0/":            address.ErrPort,
		"nats://u:S3CRET@h:70000/":        address.ErrPort,
		"nats://u:S3CRET@h:/":             address.ErrPort,
		"nats://h/?password=S3CRET":       errPath,
		"nats://h/S3CRET":                 errPath,
		strings.Repeat("nats://h,", 101):  errTooMany,
		"nats://h,nats://u:S3CRET%zz@h2/": address.ErrPercent,
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
	tr := newTransport(t, "nats://user:S3CRET@h/", nil)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, tr.addrs[0]) + fmt.Sprintf(format, tr.opts); strings.Contains(s, "S3CRET") {
			t.Errorf("%s of a transport prints the password", format)
		}
	}
}

// Everything that is wrong is said at once.
func TestBadOptions(t *testing.T) {
	_, err := New("nats://u:p@h", &Options{
		Source: "%zz", Stream: "a.b", DialTimeout: -1, WriteTimeout: 2 * time.Hour, PingInterval: 1, RetryHorizon: 1, Window: -1,
		CredsFile: "f", NKeyFile: "f", InboxPrefix: "a b", APIPrefix: "$JS.>", Destinations: []string{"x.*"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Source", "Stream", "DialTimeout", "WriteTimeout", "PingInterval", "RetryHorizon", "Window", "CredsFile", "InboxPrefix", "APIPrefix", "Destinations"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error says nothing of %s: %v", want, err)
		}
	}
	_, err = New("nats://u:p@h", &Options{Token: func(context.Context) (string, error) { return "", nil }})
	if err == nil || !strings.Contains(err.Error(), "another way to log in") {
		t.Errorf("two ways to log in: %v", err)
	}
	if _, err := New("nats://h", &Options{APIPrefix: "$JS.hub.API", InboxPrefix: "_INBOX_orders", Stream: "ORDERS"}); err != nil {
		t.Error(err)
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"nats://h", "tls://u:p@h:1", "nats://S3CRET%@h", "nats://[::1]:2,nats://b", "nats://a@b@c", "://", "nats://"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		list, err := parseURLs(raw)
		if err != nil {
			for _, fixed := range []error{errScheme, address.ErrChars, address.ErrEncode, address.ErrPercent, address.ErrHost, address.ErrPort, errPath, errTooMany} {
				if err == fixed { //nolint:errorlint // that it is the very text is the point
					return
				}
			}
			t.Errorf("%q: an error that is not one of the fixed texts: %v", raw, err)
			return
		}
		for _, a := range list {
			if a.Host == "" || a.Port == "" || bytes.ContainsAny([]byte(a.HostPort()), " @/?#%,") {
				t.Errorf("%q: %q", raw, a.HostPort())
			}
		}
	})
}
