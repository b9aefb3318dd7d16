//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A tally counts what `go test -json` reports and prints it for people: one line
// per package, the rows of tables ("| ...") that its tests wrote, and everything that
// a failing test wrote.
//
// It counts leaves. A test that has subtests stands for nothing of its own: if
// each of its subtests was skipped for want of a server, counting it as passed
// would call something tested that wasn't. Such a test counts only if it failed
// by itself or was skipped itself.
type tally struct {
	out io.Writer

	passed, failed, skipped int
	notRun                  int
	missing                 map[string]int // what was missing -> tests that were not run for want of it
	silent                  []string       // tests skipped without saying what was missing

	packages map[string]*pkg
}

type pkg struct {
	name   string
	tests  map[string]*test
	order  []string
	output []string // what the package wrote outside any test
	table  []string // rows of tables that its tests wrote
}

type test struct {
	name    string
	outcome string // pass, fail, skip; empty while it runs
	output  []string
	parent  bool // has subtests
	below   bool // a subtest failed
}

// An event is one line of `go test -json`; see `go doc test2json` and `go help buildjson`.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

func newTally(out io.Writer) *tally {
	return &tally{out: out, missing: map[string]int{}, packages: map[string]*pkg{}}
}

// read consumes one stream to its end. A package that the stream leaves
// unfinished (the go command was killed, say) counts as failed.
func (t *tally) read(r io.Reader) error {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				t.add(e)
			} else {
				t.print(string(line)) // the go command's own words
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.packages)) {
		t.finish(t.packages[name], event{Action: "fail", Package: name}, " (it did not finish)")
	}
	return nil
}

func (t *tally) add(e event) {
	switch e.Action {
	case "build-output":
		t.print(e.Output)
		return
	case "build-fail":
		return // the package's own fail event follows
	}
	p := t.packages[e.Package]
	if p == nil {
		p = &pkg{name: e.Package, tests: map[string]*test{}}
		t.packages[e.Package] = p
	}
	if e.Test == "" {
		switch e.Action {
		case "output":
			p.output = append(p.output, e.Output)
		case "pass", "fail", "skip":
			suffix := ""
			if e.FailedBuild != "" {
				suffix = " (it does not build)"
			}
			t.finish(p, e, suffix)
		}
		return
	}
	c := p.tests[e.Test]
	if c == nil {
		c = &test{name: e.Test}
		p.tests[e.Test] = c
		p.order = append(p.order, e.Test)
	}
	switch e.Action {
	case "output":
		if tableRow.MatchString(e.Output) {
			p.table = append(p.table, e.Output)
			return
		}
		c.output = append(c.output, e.Output)
	case "pass":
		c.outcome = e.Action
		c.output = nil
	case "fail", "skip":
		c.outcome = e.Action
	}
}

// finish counts a package that has ended and prints its line.
func (t *tally) finish(p *pkg, e event, suffix string) {
	delete(t.packages, p.name)
	for _, name := range p.order {
		c := p.tests[name]
		if c.outcome == "" { // a panic, a time-out, os.Exit
			c.outcome = "fail"
			c.output = append(c.output, "--- FAIL: "+name+" (it did not finish)\n")
		}
		for up := p.above(name); up != nil; up = p.above(up.name) {
			up.parent = true
			up.below = up.below || c.outcome == "fail"
		}
	}

	var passed, failed, notRun, waived int
	var reasons []string
	for _, name := range p.order {
		c := p.tests[name]
		switch {
		case c.outcome == "pass" && !c.parent:
			passed++
		case c.outcome == "fail" && !c.below:
			failed++
		case c.outcome == "skip":
			t.skipped++
			names, reason := missing(c.output)
			if len(names) == 0 {
				if waiver := waiver(c.output); waiver != "" {
					waived++
					reasons = append(reasons, waiver)
					continue
				}
				t.silent = append(t.silent, p.name+"."+name)
				continue
			}
			notRun++
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
			for _, n := range names {
				t.missing[n]++
			}
		}
	}
	broken := e.Action == "fail" && failed == 0 // no test of it failed: the build, TestMain, the race detector at exit
	if broken {
		failed++
	}
	t.passed += passed
	t.failed += failed
	t.notRun += notRun

	if len(p.order) == 0 && e.Action != "fail" {
		return // no test files, or none that matched
	}
	status := "ok  "
	if failed > 0 {
		status = "FAIL"
	}
	line := fmt.Sprintf("%s  %s  %.1fs  %d passed", status, p.name, e.Elapsed, passed)
	if failed > 0 {
		line += fmt.Sprintf(", %d failed", failed)
	}
	if notRun > 0 {
		line += fmt.Sprintf(", %d not run", notRun)
	}
	if waived > 0 {
		line += fmt.Sprintf(", %d waived", waived)
	}
	t.print(line + suffix + "\n")
	for _, r := range reasons {
		t.print("      " + r + "\n")
	}
	for _, row := range p.table {
		t.print("      " + strings.TrimLeft(row, " "))
	}
	if failed == 0 {
		return
	}
	for _, name := range p.order {
		if c := p.tests[name]; c.outcome == "fail" {
			for _, o := range c.output {
				if !chatter.MatchString(o) {
					t.print("      " + o)
				}
			}
		}
	}
	for _, o := range p.output {
		t.print("      " + o)
	}
}

// above gives the nearest test that name is a subtest of, nil if there is none. A
// subtest's own name may hold slashes.
func (p *pkg) above(name string) *test {
	for {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return nil
		}
		name = name[:i]
		if up := p.tests[name]; up != nil {
			return up
		}
	}
}

func (t *tally) print(s string) {
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	fmt.Fprint(t.out, s)
}

var (
	chatter   = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)
	tableRow  = regexp.MustCompile(`^\s*\| `) // shown of tests that passed as well
	waivedRow = regexp.MustCompile(`^\s*(?:[^\s:]+\.go:\d+: )?(WAIVED [a-z_.]+: \S.*)`)
	notRunRow = regexp.MustCompile(`^\s*(?:[^\s:]+\.go:\d+: )?(NOT RUN: ([^:\s][^:]*): .*)`)
)

// missing reads the reason of a skipped test: `NOT RUN: pg17: its address is not
// set`, or several names with commas between them. No names: the test did not say.
func missing(output []string) (names []string, reason string) {
	for _, line := range output {
		m := notRunRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		names, reason = names[:0], m[1]
		for n := range strings.SplitSeq(m[2], ",") {
			names = append(names, strings.TrimSpace(n))
		}
	}
	return names, reason
}

// waiver reads which clause of the conformance suite a dialect or a transport does
// not hold to, and why not. It counts as no test that passed. Empty: it isn't that.
func waiver(output []string) string {
	for _, line := range output {
		if m := waivedRow.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return ""
}

// problems says why the run as a whole is not good, one line each. The required
// names are those whose tests may not be left out.
func (t *tally) problems(required []string) []string {
	var ps []string
	if t.failed > 0 {
		ps = append(ps, fmt.Sprintf("%d failed", t.failed))
	}
	for _, s := range t.silent {
		ps = append(ps, fmt.Sprintf("%s was skipped and does not say what was missing; a skip's text begins with \"NOT RUN: <what>: \", or is a waiver of the conformance suite", s))
	}
	for _, n := range required {
		if c := t.missing[n]; c > 0 {
			ps = append(ps, fmt.Sprintf("%s is required and %d of its tests were not run", n, c))
		}
	}
	if t.passed+t.failed == 0 {
		ps = append(ps, "no test ran")
	}
	return ps
}

// summary gives the two lines that end a run.
func (t *tally) summary() (counts, last string) {
	counts = fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, t.skipped)
	last = fmt.Sprintf("ran %d, NOT RUN %d", t.passed+t.failed, t.notRun)
	if len(t.missing) > 0 {
		last += ": " + strings.Join(slices.Sorted(maps.Keys(t.missing)), ", ")
	}
	return counts, last
}
