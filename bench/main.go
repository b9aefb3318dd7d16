// Command bench measures what Outward promises about speed, on real servers, next
// to what one would do without it. README.md says what each row is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

type settings struct {
	rounds, n              int
	only, row              string
	list                   bool
	steady                 time.Duration
	cpuProfile, memProfile string
}

func main() {
	var s settings
	flag.IntVar(&s.rounds, "runs", 5, "rounds of each group (A B C A B C …); fewer than 5 prove nothing")
	flag.IntVar(&s.n, "messages", 100_000, "messages that are pending at the start of a drain; groups named front have twice as many,\nand hot keys to a broker a tenth")
	flag.StringVar(&s.only, "only", "", "run only the groups with one of these in their name, with commas between them:\nnull, rabbitmq4/drain, steady")
	flag.StringVar(&s.row, "row", "", "run only the rows with this in their name, and judge nothing: for profiles")
	flag.BoolVar(&s.list, "list", false, "list the groups, their rows and what is promised, and run nothing")
	flag.DurationVar(&s.steady, "steady", 5*time.Second, "how long commits keep coming in a run that measures latency")
	flag.StringVar(&s.cpuProfile, "cpuprofile", "", "write a CPU profile of this process to a file; best with -only")
	flag.StringVar(&s.memProfile, "memprofile", "", "write a profile of what was allocated to a file; best with -only")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: make bench ARGS=\"[flags]\", or go run . [flags] with the variables of scripts/services env\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := profiled(s, func() error { return run(ctx, s) }); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// profiled runs f under the profiles that are asked for.
func profiled(s settings, f func() error) (err error) {
	if s.cpuProfile != "" {
		out, err := os.Create(s.cpuProfile)
		if err == nil {
			err = pprof.StartCPUProfile(out)
		}
		if err != nil {
			return err
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, out.Close())
		}()
	}
	if s.memProfile != "" {
		runtime.MemProfileRate = 4096
		defer func() {
			out, ferr := os.Create(s.memProfile)
			if ferr == nil {
				ferr = errors.Join(pprof.Lookup("allocs").WriteTo(out, 0), out.Close())
			}
			err = errors.Join(err, ferr)
		}()
	}
	return f()
}

func (s settings) wants(g group) bool {
	for _, part := range strings.Split(s.only, ",") {
		if strings.Contains(g.name, part) {
			return true
		}
	}
	return false
}

// keep leaves only the rows with row in their name, and reports whether there are
// any.
func (g *group) keep(row string) bool {
	if row == "" {
		return true
	}
	g.subjects = slices.DeleteFunc(g.subjects, func(s subject) bool { return !strings.Contains(s.name, row) })
	g.promises, g.note = nil, nil
	return len(g.subjects) > 0
}

func run(ctx context.Context, s settings) error {
	var chosen []group
	for _, g := range groups() {
		if s.wants(g) && g.keep(s.row) {
			chosen = append(chosen, g)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no group has %q in its name and a row with %q; -list lists them", s.only, s.row)
	}
	if s.list {
		for _, g := range chosen {
			g.describe()
		}
		return nil
	}
	dsn := os.Getenv("OUTWARD_TEST_PG17_DSN")
	if dsn == "" {
		fmt.Println("NOT RUN: pg17: OUTWARD_TEST_PG17_DSN is not set")
		return nil
	}
	b, err := newBench(ctx, dsn)
	if err != nil {
		return err
	}
	defer b.close()
	b.steady = s.steady
	if err := introduce(ctx, b, s); err != nil {
		return err
	}
	// The first run of a process pays for cold caches, its own and the database's.
	if _, err := plain(toNull).run(ctx, b, s.n/4+1); err != nil {
		return err
	}
	printHeader()
	var verdicts []string
	for _, g := range chosen {
		if name := g.to.lacks(); name != "" {
			fmt.Printf("%s: NOT RUN: %s: OUTWARD_TEST_%s_URL is not set\n\n", g.name, name, strings.ToUpper(name))
			verdicts = append(verdicts, fmt.Sprintf("%-78s %20s  NOT RUN: %s", g.name, "", name))
			continue
		}
		r, err := g.measure(ctx, b, s.rounds, s.n)
		if err != nil {
			return err
		}
		verdicts = append(verdicts, g.print(r)...)
	}
	if len(verdicts) > 0 {
		fmt.Println("What is promised:")
	}
	for _, v := range verdicts {
		fmt.Println(v)
	}
	return nil
}

// introduce says on what was measured.
func introduce(ctx context.Context, b *bench, s settings) error {
	version, err := b.version(ctx)
	if err != nil {
		return err
	}
	for _, t := range []target{toRabbitMQ, toJetStream} {
		if t.lacks() != "" {
			continue
		}
		v, err := t.version(ctx, t.url)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		version += "; " + v
	}
	fmt.Printf("%s; %s, %d CPUs\n%d messages of 1 KB, %d rounds\n\n", version, runtime.Version(), runtime.NumCPU(), s.n, s.rounds)
	return nil
}

// describe lists what a group compares.
func (g group) describe() {
	fmt.Printf("%s: %s\n", g.name, g.about)
	for _, s := range g.subjects {
		fmt.Printf("  %s\n", s.name)
	}
	for _, p := range g.promises {
		switch {
		case p.p50 > 0:
			fmt.Printf("    promised: %s, p50 below %v\n", p.a, p.p50)
		case p.rival:
			fmt.Printf("    valid if: %s at least %.2f of %s\n", p.a, p.least, p.b)
		case p.least > 0:
			fmt.Printf("    promised: %s at least %.2f of %s\n", p.a, p.least, p.b)
		}
	}
}
