package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A comparison times two things in turn.
type comparison struct {
	name  string
	a, b  scenario
	least float64 // the ratio A/B that is promised; 0: none
}

func matches(name, only string) bool { return strings.Contains(name, only) }

// compare runs a comparison and prints its row.
func (b *bench) compare(ctx context.Context, c comparison, runs int) error {
	if c.a.target.url == "" && c.a.target.kind != "null" {
		fmt.Printf("%-58s NOT RUN: %s\n", c.name, c.a.target.kind)
		return nil
	}
	var as, bs, ratios []float64
	for range runs {
		ra, err := b.rate(ctx, c.a)
		if err != nil {
			return err
		}
		rb, err := b.rate(ctx, c.b)
		if err != nil {
			return err
		}
		as, bs, ratios = append(as, ra), append(bs, rb), append(ratios, ra/rb)
	}
	verdict := ""
	if _, m, _ := quartiles(ratios); c.least > 0 {
		verdict = fmt.Sprintf("at least %.2f: yes", c.least)
		if m < c.least {
			verdict = fmt.Sprintf("at least %.2f: NO", c.least)
		}
	}
	if unstable(as) || unstable(bs) {
		verdict += " UNSTABLE"
	}
	_, m, _ := quartiles(ratios)
	fmt.Printf("%-58s %21s %21s %16s %s\n", c.name, show(as), show(bs), fmt.Sprintf("%.2f", m), verdict)
	return nil
}

func show(xs []float64) string {
	q1, m, q3 := quartiles(xs)
	return fmt.Sprintf("%.0f (%.0f-%.0f)", m, q1, q3)
}

// quartiles of a few figures, by linear interpolation.
func quartiles(xs []float64) (q1, median, q3 float64) {
	s := slices.Sorted(slices.Values(xs))
	at := func(q float64) float64 {
		pos := q * float64(len(s)-1)
		i := int(pos)
		if i+1 >= len(s) {
			return s[i]
		}
		return s[i] + (pos-float64(i))*(s[i+1]-s[i])
	}
	return at(.25), at(.5), at(.75)
}

func unstable(xs []float64) bool {
	q1, m, q3 := quartiles(xs)
	return (q3-q1)/m > .15
}
