package config

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	s := testSource()
	for text, want := range map[string]string{
		"":                       "",
		"plain $ {x} $x":         "plain $ {x} $x",
		"${PASSWORD}":            "hunter2",
		"a${PASSWORD}b${EMPTY}c": "ahunter2bc",
		"${file:secrets/amqp}":   "amqp://outward:hunter2@broker.internal/",
		"$${PASSWORD}":           "${PASSWORD}",
		"$$${PASSWORD}":          "$${PASSWORD}",
		"$${a}${PASSWORD}":       "${a}hunter2",
	} {
		got, _, err := s.expand(text)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"${}":       "neither a variable nor a file",
		"${a b}":    "neither a variable nor a file",
		"${file:}":  "names no file",
		"${file:x}": "${file:x} can't be read",
		"${X":       "not closed",
		"${NOPE}":   "NOPE is not set",
	} {
		_, _, err := s.expand(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestExpandRefusesWhatIsNoText(t *testing.T) {
	s := source{lookup: func(string) (string, bool) { return "a\xff", true }, read: func(string) ([]byte, error) { return []byte("a\x00b"), nil }}
	for _, text := range []string{"${X}", "${file:x}"} {
		if got, _, err := s.expand(text); err == nil || strings.Contains(err.Error(), "a\xff") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// Whatever is expanded: a value is put in once and not looked at again, an error
// never holds it, and text without references stays what it is.
func FuzzExpand(f *testing.F) {
	f.Add("a${V}b", "secret-value")
	f.Add("$${V}${V", "${V}")
	f.Add("${file:V}", "")
	f.Add("${${V}}", "}")
	f.Fuzz(func(t *testing.T, text, value string) {
		s := source{
			lookup: func(name string) (string, bool) { return value, name == "V" },
			read:   func(string) ([]byte, error) { return []byte(value), nil },
		}
		got, expanded, err := s.expand(text)
		if !strings.Contains(text, "${") && (got != text || expanded || err != nil) {
			t.Errorf("%q became %q, %v, %v", text, got, expanded, err)
		}
		if len(value) > 8 && !strings.Contains(text, value) && err != nil && strings.Contains(err.Error(), value) {
			t.Errorf("%q: the value is in the error %v", text, err)
		}
		if text == "${V}" && err == nil && got != value {
			t.Errorf("got %q", got)
		}
	})
}

// Whatever the file holds: no panic, and faults with a file name.
func FuzzParse(f *testing.F) {
	f.Add(minimal)
	f.Add("relays: [{store: *x, transports: &x {a: *x}}]")
	f.Add("? [a]\n: {b: 1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse("fuzz.yaml", []byte(text), testSource())
		if (c == nil) == (err == nil) {
			t.Errorf("got %v and %v", c, err)
		}
		if err != nil && !strings.Contains(text, "hunter2") && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a secret is in %v", err)
		}
		if c != nil {
			c.Print()
		}
	})
}
