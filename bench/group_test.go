package main

import (
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	rates := func(xs ...int) (fs []figures) {
		for _, n := range xs {
			fs = append(fs, figures{n: n, took: time.Second, p50: time.Duration(n) * time.Millisecond})
		}
		return fs
	}
	for _, c := range []struct {
		name       string
		a, b, loop []figures
		want       string
	}{
		{"kept", rates(90, 91, 92), rates(100, 100, 100), rates(95, 95, 95), "at least 0.90: yes"},
		{"broken", rates(80, 81, 82), rates(100, 100, 100), rates(95, 95, 95), "at least 0.90: NO"},
		{"a spread", rates(90, 130, 100), rates(100, 100, 100), rates(95, 95, 95), "yes UNSTABLE"},
		{"a slow loop", rates(90, 91, 92), rates(100, 100, 100), rates(50, 50, 50), "yes"},
	} {
		g := group{promises: []promise{{a: "a", b: "b", least: .9}, {a: "a", b: "loop", least: .9}, {a: "loop", b: "b", least: .8, rival: true}}}
		r := results{"a": c.a, "b": c.b, "loop": c.loop}
		if _, _, got := g.promises[0].verdict(r, g.invalid(r)); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
		if _, _, got := g.promises[1].verdict(r, g.invalid(r)); strings.Contains(got, "INVALID") != (c.name == "a slow loop") {
			t.Errorf("%s: against the loop: %s", c.name, got)
		}
	}
	late := promise{a: "a", p50: 5 * time.Millisecond}
	if _, _, got := late.verdict(results{"a": rates(4, 4, 4)}, ""); got != "below 5ms: yes" {
		t.Error(got)
	}
	if _, _, got := late.verdict(results{"a": rates(6, 6, 6)}, ""); got != "below 5ms: NO" {
		t.Error(got)
	}
}

// TestGroups: every promise is about subjects that are there, and a name is one
// group's alone.
func TestGroups(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range groups() {
		if seen[g.name] {
			t.Errorf("two groups are named %s", g.name)
		}
		seen[g.name] = true
		names := map[string]bool{}
		for _, s := range g.subjects {
			names[s.name] = true
		}
		for _, p := range g.promises {
			if !names[p.a] || p.p50 == 0 && !names[p.b] {
				t.Errorf("%s: a promise about %q and %q", g.name, p.a, p.b)
			}
		}
	}
}
