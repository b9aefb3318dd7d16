package natsjs

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckSubject(t *testing.T) {
	for _, s := range []string{
		"a", "order.submitted", "ö.😀", "a*b", "a>b", "*a", "$KV.bucket.key", "_INBOXES.a", "a\"b", "%", strings.Repeat("x", maxSubject),
		strings.Repeat("😀", 255),
	} {
		if err := CheckSubject(s); err != nil {
			t.Errorf("%.40q: %v", s, err)
		}
	}
	for s, want := range map[string]string{
		"": "empty", ".": "empty part", "a.": "empty part", ".a": "empty part", "a..b": "empty part",
		"*": "wildcard", ">": "wildcard", "a.*": "wildcard", "a.>": "wildcard", "*.a": "wildcard",
		"a b": "blank", " a": "blank", "a\t": "blank", "a\r\nPUB b 1": "blank", "a\x00": "control", "a\x7f": "control",
		"a\xff": "UTF-8", strings.Repeat("x", maxSubject+1): "1025 bytes", strings.Repeat("x", 100_000): "limit",
		"$JS.API.STREAM.DELETE.ORDERS": "server's own", "$SYS.REQ": "server's own", "_INBOX.a": "server's own", "$G": "server's own",
	} {
		if err := CheckSubject(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want an error with %q", s, err, want)
		} else if len(err.Error()) > 600 {
			t.Errorf("%.40q: an error of %d bytes", s, len(err.Error()))
		}
	}
}

// Whatever is let through is one word of the protocol's line, well below its limit,
// and no subscription's pattern.
func FuzzCheckSubject(f *testing.F) {
	for _, s := range []string{"a.b", "a b", "a.*", ">", "a\r\n", "$JS.API.INFO", "..", "\u00a0", "\xff", strings.Repeat("x", 1030)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if CheckSubject(s) != nil {
			return
		}
		if s == "" || len(s) > maxSubject || !utf8.ValidString(s) || strings.ContainsAny(s, " \t\r\n\x00\v\f") {
			t.Fatalf("%q was let through", s)
		}
		for part := range strings.SplitSeq(s, ".") {
			if part == "" || part == "*" || part == ">" {
				t.Fatalf("%q was let through", s)
			}
		}
	})
}
