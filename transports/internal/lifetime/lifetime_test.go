package lifetime_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/transports/internal/lifetime"
)

func TestClose(t *testing.T) {
	for name, c := range map[string]struct {
		call time.Duration
		want string
	}{
		"lets calls finish":          {time.Second, ""},
		"cuts off those that do not": {time.Hour, "x: close: cut off what was being published: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := lifetime.New()
				if !l.Enter() {
					t.Fatal("closed from the beginning")
				}
				left := false
				l.Work.Go(func() {
					defer l.Leave()
					ctx, done := l.Bind(context.Background())
					defer done()
					select {
					case <-ctx.Done():
						if got := context.Cause(ctx).Error(); got != "the transport was closed" {
							t.Errorf("cut off: %s", got)
						}
					case <-time.After(c.call):
					}
					left = true
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				goodbyes := 0
				err := l.Close(ctx, "x", func() {
					goodbyes++
					if !left || l.Context().Err() == nil {
						t.Error("goodbye while a call was running, or might begin to work")
					}
				})
				if got := message(err); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
				if l.Enter() {
					t.Error("a call after Close")
				}
				if err := l.Close(ctx, "x", func() { goodbyes++ }); err != nil || goodbyes != 1 {
					t.Errorf("second Close: %v, and %d goodbyes", err, goodbyes)
				}
			})
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
