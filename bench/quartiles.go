package main

import (
	"fmt"
	"slices"
)

// show prints a median and, where there is more than one figure, the quartiles.
func show(format string, xs []float64) string {
	q1, m, q3 := quartiles(xs)
	if len(xs) < 2 {
		return fmt.Sprintf(format, m)
	}
	return fmt.Sprintf(format+" ("+format+"-"+format+")", m, q1, q3)
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

// unstable reports whether the middle half of the figures is spread so far that
// their median says little.
func unstable(xs []float64) bool {
	q1, m, q3 := quartiles(xs)
	return (q3-q1)/m > .15
}
