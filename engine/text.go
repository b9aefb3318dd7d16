package engine

import (
	"strings"
	"unicode/utf8"
)

// storable makes an error's text fit for a database column: one line, valid
// UTF-8 without NUL, at most maxErrorText bytes.
func storable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	if len(s) <= maxErrorText {
		return s
	}
	s = s[:maxErrorText]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
