package rabbitmq

import (
	"strings"
	"testing"
)

func TestDestination(t *testing.T) {
	for _, c := range []struct{ exchange, key, want string }{
		{"orders", "", "orders"},
		{"orders", "eu.submitted", "orders/eu.submitted"},
		{"", "billing", "amq.default/billing"},
		{"", "", "amq.default"},
		{"amq.default", "billing", "amq.default/billing"},
		{"a/b", "50%/#", "a%2Fb/50%25%2F#"},
		{"ö 😀", "*.>", "ö 😀/*.>"},
	} {
		got := Destination(c.exchange, c.key)
		if got != c.want {
			t.Errorf("Destination(%q, %q) = %q, want %q", c.exchange, c.key, got, c.want)
		}
		d, err := parseDestination(got)
		exchange := c.exchange
		if exchange == DefaultExchange {
			exchange = ""
		}
		if err != nil || d.exchange != exchange || d.key != c.key {
			t.Errorf("parseDestination(%q) = %+v, %v", got, d, err)
		}
	}
}

func TestDestinationRefused(t *testing.T) {
	for s, want := range map[string]string{
		"":                              "exchange is empty",
		"/key":                          "exchange is empty",
		"x/":                            "routing key is empty",
		"x/a/b":                         "written %2F",
		"x%":                            "no other escape",
		"x%2":                           "no other escape",
		"x/%41":                         "no other escape",
		strings.Repeat("x", 256):        "256 bytes",
		"x/" + strings.Repeat("é", 128): "256 bytes",
	} {
		if _, err := parseDestination(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseDestination(%.20q): %v, want an error with %q", s, err, want)
		}
	}
}

func FuzzDestination(f *testing.F) {
	for _, s := range []string{"orders", "orders/eu.submitted", "amq.default/q", "a%2Fb/c%25", "%", "x/", "/", "a/b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDestination(s)
		if err != nil {
			return
		}
		again, err := parseDestination(Destination(d.exchange, d.key))
		if err != nil || again != d {
			t.Errorf("%q is %+v, written and read again %+v, %v", s, d, again, err)
		}
	})
}
