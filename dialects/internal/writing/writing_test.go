package writing_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

func TestPrepare(t *testing.T) {
	own := engine.NewID()
	given := []engine.Message{{Topic: "t", Type: "a.v1", Key: "k"}, {ID: own, Topic: "t", Type: "a.v1", ContentType: "text/plain"}}
	minted := engine.NewID()
	msgs, ids, err := writing.Rules{KeyPrefix: "tenant/"}.Prepare(func() engine.ID { return minted }, given)
	if err != nil {
		t.Fatal(err)
	}
	if ids[0] != minted || ids[1] != own || msgs[0].Key != "tenant/k" || msgs[1].Key != "" ||
		msgs[0].ContentType != engine.DefaultContentType || msgs[1].ContentType != "text/plain" {
		t.Errorf("%+v, %v", msgs, ids)
	}
	if given[0].Key != "k" || !given[0].ID.IsZero() {
		t.Error("the caller's messages were changed")
	}
	_, _, err = writing.Rules{MaxPayload: 1}.Prepare(engine.NewID, []engine.Message{{Topic: "t", Type: "a"}, {Type: "a", Payload: []byte("xx")}})
	if err == nil || !strings.Contains(err.Error(), "message 1") {
		t.Errorf("%v; want the faults of message 1", err)
	}
}

func TestMissing(t *testing.T) {
	ids := []engine.ID{engine.NewID(), engine.NewID()}
	if err := writing.Missing(ids, 2); err != nil {
		t.Error(err)
	}
	for _, n := range []int{1, 2} {
		if err := writing.Missing(ids[:n], n-1); !errors.Is(err, engine.ErrDuplicateID) {
			t.Errorf("%d of %d: %v", n-1, n, err)
		}
	}
}

func TestIDs(t *testing.T) {
	var none *writing.IDs
	if none.New() == none.New() || none.DidWrite() {
		t.Error("a nil source must give new ids")
	}
	none.Wrote()
	first := none.Again()
	a, b := first.New(), first.New()
	first.Wrote()
	again := first.Again()
	if again.DidWrite() {
		t.Error("the next run has written nothing yet")
	}
	if again.New() != a || again.New() != b || again.New() == b {
		t.Error("the next run must get the same ids, and new ones after them")
	}
}

func TestFits(t *testing.T) {
	big, small := engine.Message{Payload: make([]byte, 60)}, engine.Message{Payload: make([]byte, 10)}
	for _, c := range []struct {
		msgs []engine.Message
		want int
	}{
		{[]engine.Message{big, big}, 1}, {[]engine.Message{big, small, small, small, small, small}, 5}, {[]engine.Message{{Payload: make([]byte, 500)}, small}, 1},
		{[]engine.Message{small, small, small}, 3}, {make([]engine.Message, 9), 5},
	} {
		if got := writing.Fits(c.msgs, 5, 100); got != c.want {
			t.Errorf("%d messages: %d, want %d", len(c.msgs), got, c.want)
		}
	}
}

func TestMicroseconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Microsecond: 1, time.Microsecond + 1: 2, time.Second: 1_000_000} {
		if got := writing.Microseconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}
