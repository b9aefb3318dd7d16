// Command outward relays messages that were committed in a SQL database to a
// broker, and looks after what waits and what is dead.
//
// Exit codes: 0 all is well, 1 it failed, 2 wrong usage, 3 something needs
// attention (dead, held or paused).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/outward-dev/outward/config"
)

// Exit codes.
const (
	exitWell      = 0
	exitFailed    = 1
	exitUsage     = 2
	exitAttention = 3
)

func main() {
	// A second signal ends the process at once, as it would without us.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := &program{stdout: stdout, stderr: stderr}
	root := p.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var attention attentionError
	var usage usageError
	var faults config.Faults
	switch {
	case err == nil:
		return exitWell
	case errors.As(err, &attention):
		fmt.Fprintln(stderr, "outward: "+attention.Error())
		return exitAttention
	case errors.As(err, &usage), !p.began: // until a command begins, all errors are about arguments
		fmt.Fprintf(stderr, "outward: %s\nSee outward --help, or --help of the command.\n", oneLine(err))
		return exitUsage
	case errors.As(err, &faults):
		fmt.Fprintln(stderr, faults.Error())
		fmt.Fprintf(stderr, "outward: the configuration has %d fault%s\n", len(faults), plural(len(faults)))
		return exitFailed
	default:
		fmt.Fprintln(stderr, "outward: "+oneLine(err))
		return exitFailed
	}
}

// attentionError says what needs somebody's attention.
type attentionError string

func (e attentionError) Error() string { return string(e) }

// usageError says what is wrong with the arguments.
type usageError string

func (e usageError) Error() string { return string(e) }

// oneLine is an error's text without the line breaks that drivers put into it.
func oneLine(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	text := strings.Join(parts, "; ")
	return strings.ReplaceAll(text, ":; ", ": ")
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
