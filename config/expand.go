package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxSecret bounds what a file named in a value may hold.
const maxSecret = 1 << 20

var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// A source is where values are taken from.
type source struct {
	lookup func(name string) (string, bool)
	read   func(path string) ([]byte, error)
	dir    string // what relative paths are relative to
}

// environment reads the process's variables, and files relative to dir.
func environment(dir string) source {
	return source{lookup: os.LookupEnv, read: func(path string) ([]byte, error) { return readFile(dir, path) }, dir: dir}
}

// at is where a file is that the configuration names.
func (s source) at(path string) string { return pathFrom(s.dir, path) }

func pathFrom(dir, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return path
}

func readFile(dir, path string) ([]byte, error) {
	path = pathFrom(dir, path)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err == nil && len(data) > maxSecret {
		err = fmt.Errorf("open %s: larger than 1 MiB", path)
	}
	return data, err
}

// expand replaces ${NAME} and ${file:PATH} in text, once: what a value contains is
// not looked at again. $${ stands for ${. It reports whether anything was replaced,
// and every fault; the faults name variables and paths, never values.
func (s source) expand(text string) (value string, expanded bool, err error) {
	var b strings.Builder
	var faults []error
	for {
		before, after, found := strings.Cut(text, "${")
		if !found {
			b.WriteString(text)
			return b.String(), expanded, errors.Join(faults...)
		}
		if plain, escaped := strings.CutSuffix(before, "$"); escaped {
			b.WriteString(plain + "${")
			text = after
			continue
		}
		b.WriteString(before)
		name, rest, closed := strings.Cut(after, "}")
		if !closed {
			faults = append(faults, errors.New("${ is not closed; write ${NAME}, or $${ for a ${ that stays"))
			return b.String(), true, errors.Join(faults...)
		}
		expanded = true
		got, err := s.get(name)
		if err != nil {
			faults = append(faults, err)
		}
		b.WriteString(got)
		text = rest
	}
}

func (s source) get(name string) (string, error) {
	if path, ok := strings.CutPrefix(name, "file:"); ok {
		if path == "" {
			return "", errors.New("${file:} names no file; write ${file:/run/secrets/NAME}")
		}
		data, err := s.read(path)
		if err != nil {
			return "", fmt.Errorf("${%s} can't be read: %w", name, err)
		}
		return checkText(name, strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"))
	}
	if !variablePattern.MatchString(name) {
		return "", errors.New("${...} is neither a variable nor a file; write ${NAME} or ${file:/run/secrets/NAME}, or $${ for a ${ that stays")
	}
	value, ok := s.lookup(name)
	if !ok {
		return "", fmt.Errorf("the variable %s is not set; set it, or write the value here", name)
	}
	return checkText(name, value)
}

func checkText(name, value string) (string, error) {
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		return "", fmt.Errorf("what ${%s} stands for is not UTF-8 text without NUL", name)
	}
	return value, nil
}
