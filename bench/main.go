// Command bench measures what Outward promises about speed, on real servers.
//
// Every figure is a comparison within one run: pairs in turn (A B A B …), each on
// a fresh table, at least five of them, medians with quartiles. A spread beyond
// 15 % is marked UNSTABLE: believe the ratio only where it isn't. Without a
// server its rows say NOT RUN.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
)

func main() {
	runs := flag.Int("runs", 5, "pairs per comparison")
	// What lies in front is moved out of the way once, which takes about two seconds of
	// the database's time: the fewer messages are timed, the more it weighs.
	n := flag.Int("messages", 200_000, "messages that are timed in each run")
	only := flag.String("only", "", "run only the comparisons whose name contains this")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to a file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := run(ctx, *runs, *n, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, runs, n int, only string) error {
	dsn := os.Getenv("OUTWARD_TEST_PG17_DSN")
	if dsn == "" {
		fmt.Println("NOT RUN: pg17: OUTWARD_TEST_PG17_DSN is not set")
		return nil
	}
	b, err := newBench(ctx, dsn, n)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Printf("%s; %s; %s, %d CPUs\n%d messages of 1 KB a run, %d pairs; rates in messages a second\n\n",
		b.version, brokerName(), runtime.Version(), runtime.NumCPU(), n, runs)
	fmt.Printf("%-58s %21s %21s %16s\n", "A against B", "A (quartiles)", "B (quartiles)", "A/B")
	for _, c := range b.comparisons() {
		if !matches(c.name, only) {
			continue
		}
		if err := b.compare(ctx, c, runs); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}
