package suite

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Outcome is how a clause ended.
type Outcome string

// The ways a clause can end.
const (
	Passed     Outcome = "passed"
	Failed     Outcome = "FAILED"
	NotChecked Outcome = "NOT CHECKED" // the subject lacks something; Report.Why names it
)

// Limit bounds one clause: a store that hangs fails the clause it hangs in.
const Limit = 2 * time.Minute

// A Report is the result of one clause that was run outside `go test`.
type Report struct {
	Clause  Clause
	Outcome Outcome
	Why     string // of NotChecked: what is missing
	Log     []string
}

// Run runs one clause on a fresh subject. It is for programs; tests call
// conformance.TestStore. Cleanups of the subject have run when it returns.
func Run(ctx context.Context, c Clause, newSubject func(t T) *StoreSubject) Report {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	r := &recorder{ctx: ctx}
	rep := Report{Clause: c, Outcome: Passed}
	done := make(chan struct{})
	go func() { // Fatalf ends its goroutine
		defer close(done)
		defer r.cleanup()
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		s := newSubject(r)
		if missing := c.Missing(r, s); len(missing) > 0 {
			rep.Outcome, rep.Why = NotChecked, strings.Join(missing, ", ")
			return
		}
		c.Check(r, s)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed {
		rep.Outcome = Failed
	}
	rep.Log = r.log
	return rep
}

// recorder is a T that writes down what it is told.
type recorder struct {
	ctx context.Context

	mu       sync.Mutex
	log      []string
	failed   bool
	cleanups []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// cleanup runs the cleanups, last first, each even if another one gives up.
func (r *recorder) cleanup() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
}
