package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// A reader collects what is wrong with a file.
type reader struct {
	file   string
	from   source
	faults Faults
}

func (r *reader) add(line, column int, path, text string) {
	r.faults = append(r.faults, Fault{File: r.file, Line: line, Column: column, Path: path, Text: text})
}

func (r *reader) fault(n *node, format string, args ...any) {
	r.add(n.line, n.column, n.path, fmt.Sprintf(format, args...))
}

// shown is the value as a fault may show it: never what an expansion brought.
func (n *node) shown() string {
	if n.expanded {
		return "the value of " + n.raw
	}
	return strconv.Quote(n.text)
}

// A mapping reads the keys of one mapping. Each method that reads a key makes it a
// known one, takes note of its value for Print and for the comparison of two
// files, and reports what is wrong with it; close reports the keys that nobody
// asked for. A missing key gives the default, and so does one with a fault.
type mapping struct {
	r       *reader
	n       *node
	known   []string
	printed yaml.MapSlice
	sum     hash.Hash // of the values in effect
	open    bool      // unknown keys can't be judged
}

// mapping begins to read n. A nil n is an empty mapping.
func (r *reader) mapping(n *node, at *node) *mapping {
	if n == nil {
		n = &node{line: at.line, column: at.column, path: at.path, kind: isMapping}
	}
	m := &mapping{r: r, n: n, sum: sha256.New()}
	if n.kind != isMapping {
		m.open = true
		if !n.bad {
			r.fault(n, "it is %s; it must be a mapping of keys", kindNames[n.kind])
		}
	}
	return m
}

// get returns the node of a key, or nil where it is missing. A key without a value
// is a fault, and missing.
func (m *mapping) get(key string) *node {
	m.known = append(m.known, key)
	for _, f := range m.n.fields {
		if f.key != key {
			continue
		}
		if f.value.kind == isNull {
			if !f.value.bad {
				m.r.fault(f.value, "it has no value; give it one, or remove the key for the default")
			}
			return nil
		}
		return f.value
	}
	return nil
}

func (m *mapping) has(key string) bool {
	return slices.ContainsFunc(m.n.fields, func(f field) bool { return f.key == key })
}

// at returns the node of a key for a fault, or the mapping's own.
func (m *mapping) at(key string) *node {
	for _, f := range m.n.fields {
		if f.key == key {
			return f.value
		}
	}
	return m.n
}

// fault reports something about a key: at its line, or at the mapping's where it is
// missing.
func (m *mapping) fault(key, format string, args ...any) {
	n := m.at(key)
	path := m.n.path
	if path != "" {
		path += "."
	}
	m.r.add(n.line, n.column, path+key, fmt.Sprintf(format, args...))
}

// note takes a value down for Print, and for the comparison of two files.
func (m *mapping) note(key string, print any, value string) {
	m.printed = append(m.printed, yaml.MapItem{Key: key, Value: print})
	fmt.Fprintf(m.sum, "%q=%q\n", key, value)
}

// sub notes a mapping below this one.
func (m *mapping) sub(key string, inner *mapping) {
	m.note(key, inner.printed, inner.fingerprint())
}

func (m *mapping) fingerprint() string { return hex.EncodeToString(m.sum.Sum(nil)) }

// close reports the keys that nobody asked for.
func (m *mapping) close() {
	if m.open {
		return
	}
	for _, f := range m.n.fields {
		if slices.Contains(m.known, f.key) {
			continue
		}
		text := "unknown key"
		if like := nearest(f.key, m.known); like != "" {
			text += "; did you mean " + like + "?"
		} else if len(m.known) > 0 {
			text += "; known here are " + strings.Join(m.known, ", ")
		}
		m.r.fault(f.value, "%s", text)
	}
}

// scalar returns the node of a key if it has a single value.
func (m *mapping) scalar(key string) *node {
	n := m.get(key)
	if n == nil || n.bad {
		return nil
	}
	if n.kind != isScalar {
		m.r.fault(n, "it is %s; it must be a single value", kindNames[n.kind])
		return nil
	}
	return n
}

func (m *mapping) text(key, def string) string {
	n := m.scalar(key)
	if n == nil {
		if def != "" {
			m.note(key, def, def)
		}
		return def
	}
	m.note(key, n.raw, n.text)
	return n.text
}

// needText is text for a key that must be there and not empty. A second value says
// whether it was.
func (m *mapping) needText(key, what string) (string, bool) {
	if !m.has(key) {
		m.known = append(m.known, key)
		if !m.open {
			m.fault(key, "it is missing; %s", what)
		}
		return "", false
	}
	n := m.scalar(key)
	if n == nil {
		return "", false
	}
	m.note(key, n.raw, n.text)
	if n.text == "" {
		m.r.fault(n, "it is empty; %s", what)
		return "", false
	}
	return n.text, true
}

// pattern is text that must match.
func (m *mapping) pattern(key, def string, re *regexp.Regexp, what string) string {
	v := m.text(key, def)
	if n := m.at(key); m.has(key) && n.kind == isScalar && !n.bad && !re.MatchString(v) {
		m.r.fault(n, "%s is not %s", n.shown(), what)
		return def
	}
	return v
}

// A secret is opaque to fmt, so that no %+v of a configuration prints it.
type secret func() string

// secretURL is an address with credentials in it. Faults and Print show nothing of
// it but what was written as a reference.
func (m *mapping) secretURL(key, what string) (secret, bool) {
	return m.secretAddress(key, what, redact)
}

// secretAddress is secretURL for an address of another form: show takes out what is
// secret.
func (m *mapping) secretAddress(key, what string, show func(raw string) string) (secret, bool) {
	none := func() string { return "" }
	if !m.has(key) {
		m.known = append(m.known, key)
		if !m.open {
			m.fault(key, "it is missing; %s", what)
		}
		return none, false
	}
	n := m.scalar(key)
	if n == nil {
		return none, false
	}
	m.note(key, show(n.raw), n.text)
	if n.text == "" {
		m.r.fault(n, "it is empty; %s", what)
		return none, false
	}
	return func() string { return n.text }, true
}

// secretText is a password or a token; nil: the key is missing, empty or wrong.
func (m *mapping) secretText(key string) secret {
	n := m.scalar(key)
	if n == nil {
		return nil
	}
	show := n.raw
	if reference.ReplaceAllString(show, "") != "" {
		show = "***"
	}
	m.note(key, show, n.text)
	if n.text == "" {
		m.r.fault(n, "it is empty; give it a value, or remove it")
		return nil
	}
	return func() string { return n.text }
}

// path is the name of a file that is read whenever it is needed, so only that it can
// be read is looked at now. Relative names are relative to the configuration.
func (m *mapping) path(key string) string {
	n := m.scalar(key)
	if n == nil {
		return ""
	}
	m.note(key, n.raw, n.text)
	if _, err := m.r.from.read(n.text); err != nil {
		m.unreadable(n, err)
	}
	return m.r.from.at(n.text)
}

func (m *mapping) unreadable(n *node, err error) {
	if n.expanded {
		m.r.fault(n, "the file that %s names can't be read", n.raw)
	} else {
		m.r.fault(n, "it can't be read: %v", err)
	}
}

func (m *mapping) number(key string, def, least, most int) int {
	n := m.scalar(key)
	if n == nil {
		m.note(key, def, strconv.Itoa(def))
		return def
	}
	v, err := strconv.Atoi(n.text)
	switch {
	case err != nil:
		m.r.fault(n, "%s is not a whole number", n.shown())
		return def
	case v < least:
		m.r.fault(n, "it must be at least %d", least)
		return def
	case v > most:
		m.r.fault(n, "it must be at most %d", most)
		return def
	}
	m.note(key, printed(n, v), strconv.Itoa(v))
	return v
}

// duration is a length of time from least to most; with zero, 0 too.
func (m *mapping) duration(key string, def, least, most time.Duration, zero bool) time.Duration {
	n := m.scalar(key)
	if n == nil {
		m.note(key, printed(nil, formatDuration(def)), def.String())
		return def
	}
	v, err := time.ParseDuration(n.text)
	if err != nil {
		if _, number := strconv.ParseFloat(n.text, 64); number == nil {
			m.r.fault(n, "%s has no unit; write it as in 200ms, 10s, 5m or 72h", n.shown())
		} else {
			m.r.fault(n, "%s is not a length of time; write it as in 200ms, 10s, 5m or 72h", n.shown())
		}
		return def
	}
	switch {
	case v == 0 && zero:
	case v < least:
		m.r.fault(n, "it must be at least %s", formatDuration(least))
		return def
	case v > most:
		m.r.fault(n, "it must be at most %s", formatDuration(most))
		return def
	}
	m.note(key, printed(n, formatDuration(v)), v.String())
	return v
}

// one is one of a few words.
func (m *mapping) one(key, def string, words ...string) string {
	n := m.scalar(key)
	if n == nil {
		m.note(key, def, def)
		return def
	}
	if !slices.Contains(words, n.text) {
		m.r.fault(n, "%s is not known; it is one of %s", n.shown(), strings.Join(words, ", "))
		return def
	}
	m.note(key, printed(n, n.text), n.text)
	return n.text
}

// contents reads a file that a key names. Print shows the name.
func (m *mapping) contents(key string) []byte {
	n := m.scalar(key)
	if n == nil {
		return nil
	}
	data, err := m.r.from.read(n.text)
	if err != nil {
		m.unreadable(n, err)
		return nil
	}
	m.note(key, n.raw, n.text+"\n"+string(data))
	return data
}

// printed is the value, or what was written where it came by an expansion.
func printed(n *node, v any) any {
	switch {
	case n != nil && n.expanded:
		return n.raw
	case v == "0":
		return 0 // as a number it needs no quotes
	}
	return v
}

// formatDuration writes a duration without the units that are zero.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// redact shows an address as it was written, with *** in place of what may be a
// secret: a password, and everything of an address that it can't take apart.
// References stay as they are: they are names, not values.
func redact(raw string) string {
	if reference.ReplaceAllString(raw, "") == "" {
		return raw
	}
	// A reference is no valid part of a URL, so each is put aside meanwhile.
	var refs []string
	plain := reference.ReplaceAllStringFunc(raw, func(ref string) string {
		refs = append(refs, ref)
		return fmt.Sprintf("ref-%d-ref", len(refs)-1)
	})
	u, err := url.Parse(plain)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Opaque != "" || strings.ContainsAny(u.Path+u.Fragment, "@") {
		return "***"
	}
	out := u.Scheme + "://"
	if u.User != nil {
		out += u.User.Username()
		if password, has := u.User.Password(); has {
			if !onlyReference.MatchString(password) {
				password = "***"
			}
			out += ":" + password
		}
		out += "@"
	}
	out += u.Host + u.Path
	if u.RawQuery != "" {
		var pairs []string
		for pair := range strings.SplitSeq(u.RawQuery, "&") {
			k, v, _ := strings.Cut(pair, "=")
			if !slices.Contains(harmless, k) && !onlyReference.MatchString(v) {
				v = "***"
			}
			pairs = append(pairs, k+"="+v)
		}
		out += "?" + strings.Join(pairs, "&")
	}
	for i, ref := range refs {
		out = strings.ReplaceAll(out, fmt.Sprintf("ref-%d-ref", i), ref)
	}
	return out
}

var (
	reference     = regexp.MustCompile(`\$\{[^}]*\}`)
	onlyReference = regexp.MustCompile(`^(ref-\d+-ref)+$`)
	// harmless parameters of a URL are shown; a parameter can be a password.
	harmless = []string{"sslmode", "connect_timeout", "application_name", "target_session_attrs", "search_path", "default_query_exec_mode", "tls"}
)

// nearest returns the known word that a misspelt one was meant to be, or "".
func nearest(word string, known []string) string {
	best, limit := "", max(1, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, k); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// distance counts the characters to change, insert or delete.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
