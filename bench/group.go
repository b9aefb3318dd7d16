package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// A subject is one thing to time.
type subject struct {
	name string
	run  func(ctx context.Context, b *bench, n int) (figures, error)
	// share is the part of the group's messages that this one has, where it is so slow
	// that all of them would take minutes; 0: all.
	share float64
}

// A group is a few subjects that are compared: they run in turn, A B C A B C …, so
// that what else the machine does meets all of them.
type group struct {
	name     string // TARGET/WHAT
	about    string
	to       target
	subjects []subject
	promises []promise
	times    int // of the messages asked for; 0: once
	note     func(results) string
}

// A promise is about the ratio of the rates of two subjects, round by round.
type promise struct {
	a, b  string
	least float64 // 0: nothing is promised, the ratio is printed
	// rival: a is no subject of ours; if it falls short, it is no measure for us.
	rival bool
	// p50 is a promise about the latency of a alone.
	p50 time.Duration
}

// results are the figures of each subject, in the order of the rounds.
type results map[string][]figures

func (r results) of(name string, f func(figures) float64) []float64 {
	var xs []float64
	for _, one := range r[name] {
		xs = append(xs, f(one))
	}
	return xs
}

const limitOfRun = 5 * time.Minute

// measure runs a group and returns its results.
func (g group) measure(ctx context.Context, b *bench, rounds, n int) (results, error) {
	r := results{}
	for range rounds {
		for _, s := range g.subjects {
			ctx, cancel := context.WithTimeout(ctx, limitOfRun)
			f, err := s.run(ctx, b, g.messages(s, n))
			cancel()
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", g.name, s.name, err)
			}
			r[s.name] = append(r[s.name], f)
		}
	}
	return r, nil
}

func (g group) messages(s subject, n int) int {
	n *= max(g.times, 1)
	if s.share > 0 {
		n = max(int(float64(n)*s.share), 1)
	}
	return n
}

const header = "%-34s %9s %26s %9s %9s %8s %8s %8s %8s %8s\n"

func printHeader() {
	fmt.Printf(header, "", "messages", "messages/s (quartiles)", "statem.", "r. trips", "WAL", "DB CPU", "own CPU", "allocs", "alloc B")
	fmt.Printf(header+"\n", "", "", "", "/1000", "/1000", "B/msg", "s/100k", "s/100k", "/msg", "/msg")
}

// print shows the results and returns the verdicts on what is promised.
func (g group) print(r results) (verdicts []string) {
	fmt.Printf("%s: %s\n", g.name, g.about)
	invalid := g.invalid(r)
	for _, s := range g.subjects {
		rates := r.of(s.name, figures.rate)
		per := func(format string, scale float64, f func(figures) float64) string {
			_, m, _ := quartiles(r.of(s.name, func(x figures) float64 { return x.per(f(x)) * scale }))
			if math.IsNaN(m) {
				return "-"
			}
			return fmt.Sprintf(format, m)
		}
		fmt.Printf(strings.TrimSuffix(header, "\n"), "  "+s.name, fmt.Sprint(r[s.name][0].n), show("%.0f", rates),
			per("%.1f", 1000, func(x figures) float64 { return x.statements }),
			per("%.1f", 1000, func(x figures) float64 { return x.trips }),
			per("%.0f", 1, func(x figures) float64 { return x.wal }),
			per("%.2f", 100_000, func(x figures) float64 { return x.dbCPU }),
			per("%.2f", 100_000, func(x figures) float64 { return x.cpu }),
			per("%.1f", 1, func(x figures) float64 { return x.allocs }),
			per("%.0f", 1, func(x figures) float64 { return x.allocated }))
		if r[s.name][0].p50 > 0 {
			fmt.Printf("  p50 %s ms (the broker's part %s), p99 %s ms", show("%.1f", r.of(s.name, p50)),
				show("%.1f", r.of(s.name, broker50)), show("%.1f", r.of(s.name, p99)))
			rates = r.of(s.name, p50)
		}
		if unstable(rates) {
			fmt.Print("  UNSTABLE")
		}
		if s.name == invalid {
			fmt.Print("  INVALID")
		}
		fmt.Println()
	}
	for _, p := range g.promises {
		what, figure, verdict := p.verdict(r, invalid)
		fmt.Printf("  %-60s %20s  %s\n", what, figure, verdict)
		if verdict != "" {
			verdicts = append(verdicts, fmt.Sprintf("%-78s %20s  %s", g.name+": "+what, figure, verdict))
		}
	}
	if g.note != nil {
		fmt.Println("  " + g.note(r))
	}
	fmt.Println()
	return verdicts
}

func p50(f figures) float64      { return ms(f.p50) }
func p99(f figures) float64      { return ms(f.p99) }
func broker50(f figures) float64 { return ms(f.broker) }

// invalid is the rival that falls short, if there is one.
func (g group) invalid(r results) string {
	for _, p := range g.promises {
		if !p.rival {
			continue
		}
		if _, m, _ := quartiles(p.ratios(r)); m < p.least {
			return p.a
		}
	}
	return ""
}

func (p promise) ratios(r results) (ratios []float64) {
	bs := r.of(p.b, figures.rate)
	for i, a := range r.of(p.a, figures.rate) {
		if i < len(bs) {
			ratios = append(ratios, a/bs[i])
		}
	}
	return ratios
}

func (p promise) verdict(r results, invalid string) (what, figure, verdict string) {
	yes := func(kept bool) string {
		switch {
		case invalid != "" && (p.a == invalid || p.b == invalid):
			return "INVALID: the loop is too slow to be a measure"
		case kept:
			return "yes"
		default:
			return "NO"
		}
	}
	var shaky []float64
	if p.p50 > 0 {
		shaky = r.of(p.a, p50)
		_, m, _ := quartiles(shaky)
		what, figure = p.a+", p50 in ms", show("%.1f", shaky)
		verdict = fmt.Sprintf("below %v: %s", p.p50, yes(m < ms(p.p50)))
	} else {
		ratios := p.ratios(r)
		_, m, _ := quartiles(ratios)
		what, figure = p.a+" / "+p.b, show("%.2f", ratios)
		if p.least == 0 {
			return what, figure, ""
		}
		verdict = fmt.Sprintf("at least %.2f: %s", p.least, yes(m >= p.least))
		shaky = ratios
	}
	if unstable(shaky) || p.p50 == 0 && (unstable(r.of(p.a, figures.rate)) || unstable(r.of(p.b, figures.rate))) {
		verdict += " UNSTABLE"
	}
	return what, figure, verdict
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }
