package bell_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/outward-dev/outward/dialects/internal/bell"
)

func TestBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bell.Bell
		b.Ring() // nobody hears it
		ctx, cancel := context.WithCancel(t.Context())
		one, err := b.Listen(ctx)
		if err != nil {
			t.Fatal(err)
		}
		two, err := b.Listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.Ring()
		b.Ring()
		<-one
		<-two
		select {
		case <-one:
			t.Error("two rings that nobody waited for count twice")
		default:
		}
		cancel()
		synctest.Wait()
		if _, open := <-one; open {
			t.Error("a signal after the end")
		}
		b.Ring()
		<-two
		if _, err := b.Listen(ctx); err == nil {
			t.Error("listens although ctx has ended")
		}
	})
}
