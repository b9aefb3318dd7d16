package dialing

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

type session struct{ over, vain, closed bool }

func (s *session) Usable() bool { return !s.over }
func (s *session) Vain() bool   { return s.vain }
func (s *session) Fault() *engine.Fault {
	return faults.New(engine.Unavailable, faults.Lost, errors.New("lost"))
}
func (s *session) Close() { s.closed = true }

// newLine returns a line whose attempts take a second and end as dial says.
func newLine(dial func(n int) (*session, *engine.Fault)) (l *Line[*session], dials *int) {
	dials = new(int)
	return &Line[*session]{Redial: time.Minute, Work: new(sync.WaitGroup), Peer: "x: connect to h:1", Dial: func() (*session, *engine.Fault) {
		*dials++
		time.Sleep(time.Second)
		return dial(*dials)
	}}, dials
}

func TestAttemptsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{}
		l, dials := newLine(func(n int) (*session, *engine.Fault) {
			if n == 1 {
				return nil, faults.New(engine.Unavailable, faults.Refused, errors.New("refused"))
			}
			return s, nil
		})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, f := l.Session(t.Context())
				if f == nil || f.Code != faults.Refused {
					t.Errorf("%v, want refused", f)
				} else {
					f.Code = "changed" // it is the caller's own
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute - time.Nanosecond)
		if _, f := l.Session(t.Context()); f == nil || f.Code != faults.Refused || *dials != 1 {
			t.Errorf("%v after %d dials, want the first one's fault", f, *dials)
		}
		time.Sleep(time.Nanosecond)
		for range 2 {
			if got, f := l.Session(t.Context()); got != s || f != nil || *dials != 2 {
				t.Errorf("%v, %v after %d dials, want the second one's session", got, f, *dials)
			}
		}
		l.Close()
		l.Work.Wait()
		if !s.closed {
			t.Error("the session was not closed")
		}
	})
}

func TestLostConnections(t *testing.T) {
	for name, c := range map[string]struct {
		vain  bool
		after time.Duration
		again bool // another attempt is made at once
	}{
		"died young and in vain":  {true, time.Minute - 1, false},
		"in vain, but not young":  {true, time.Minute, true},
		"young, but not in vain":  {false, 0, true},
		"neither young nor vain":  {false, time.Hour, true},
		"died as it was returned": {true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, dials := newLine(func(int) (*session, *engine.Fault) { return &session{}, nil })
				s, f := l.Session(t.Context())
				if f != nil {
					t.Fatal(f)
				}
				time.Sleep(c.after)
				s.over, s.vain = true, c.vain
				_, f = l.Session(t.Context())
				if again := *dials == 2; again != c.again || again != (f == nil) || f != nil && f.Code != faults.Lost {
					t.Errorf("%v after %d dials", f, *dials)
				}
				l.Close()
				l.Work.Wait()
			})
		})
	}
}

func TestNoConnectionInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{}
		l, _ := newLine(func(int) (*session, *engine.Fault) { return s, nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, f := l.Session(ctx)
		const want = "x: connect to h:1: no connection in time: context deadline exceeded"
		if f == nil || f.Class != engine.Unavailable || f.Code != faults.Timeout || f.Err.Error() != want {
			t.Errorf("%v, want unavailable (timeout): %s", f, want)
		}
		l.Close() // waits for the attempt
		l.Work.Wait()
		if !s.closed {
			t.Error("what the attempt under way brought was not closed")
		}
	})
}
