package engine

import "testing"

func TestMatchTopic(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{">", []string{"a", "a.b", "", "a..b"}, nil},
		{"a", []string{"a"}, []string{"b", "a.b", ""}},
		{"a.*", []string{"a.b", "a."}, []string{"a", "a.b.c", "b.a"}},
		{"*.b", []string{"a.b"}, []string{"b", "a.c", "a.b.c"}},
		{"a.>", []string{"a.b", "a.b.c"}, []string{"a", "b.a"}},
		{"a.*.c", []string{"a.b.c"}, []string{"a.c", "a.b.d", "a.b.b.c"}},
	} {
		for _, topic := range c.yes {
			if !matchTopic(c.pattern, topic) {
				t.Errorf("%q does not match %q", c.pattern, topic)
			}
		}
		for _, topic := range c.no {
			if matchTopic(c.pattern, topic) {
				t.Errorf("%q matches %q", c.pattern, topic)
			}
		}
	}
}
