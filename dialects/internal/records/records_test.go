package records_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outward-dev/outward/dialects/internal/records"
	"github.com/outward-dev/outward/engine"
)

// reader reads n records, one page after the other.
func reader(n int, failAt int) func() func(left int) ([]engine.Record, error) {
	return func() func(left int) ([]engine.Record, error) {
		next := 0
		return func(left int) (page []engine.Record, err error) {
			if failAt > 0 && next >= failAt {
				return nil, errors.New("away")
			}
			for ; next < n && len(page) < left; next++ {
				page = append(page, engine.Record{Seq: int64(next)})
			}
			return page, nil
		}
	}
}

func TestPages(t *testing.T) {
	for _, c := range []struct{ have, limit, failAt, want int }{
		{0, 0, 0, 0}, {1, 0, 0, 1}, {records.Chunk, 0, 0, records.Chunk}, {3*records.Chunk + 7, 0, 0, 3*records.Chunk + 7},
		{3 * records.Chunk, records.Chunk + 5, 0, records.Chunk + 5}, {3, 10, 0, 3},
		{3 * records.Chunk, 0, 2 * records.Chunk, 2 * records.Chunk},
	} {
		pages := records.Pages(c.limit, reader(c.have, c.failAt))
		for range 2 { // each time from the beginning
			n, failed := 0, false
			for r, err := range pages {
				if err != nil {
					failed = true
					continue
				}
				if r.Seq != int64(n) {
					t.Fatalf("%+v: record %d is number %d", c, n, r.Seq)
				}
				n++
			}
			if n != c.want || failed != (c.failAt > 0) {
				t.Errorf("%+v: %d records, failed: %v", c, n, failed)
			}
		}
	}
	for range records.Pages(0, reader(3*records.Chunk, 0)) {
		break // must not read on
	}
}

func TestChunks(t *testing.T) {
	left := 1203
	do := func(most int) (met, done int, err error) {
		n := min(left, most)
		left -= n
		return n, n - n/100, nil // some are met and left alone
	}
	if n, err := records.Chunks(0, do); n != 1203-12 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	left = 1203
	if n, err := records.Chunks(700, do); n < 700 || n > 700 || err != nil {
		t.Errorf("%d, %v; 700 were asked for", n, err)
	}
	failure := errors.New("away")
	calls := 0
	n, err := records.Chunks(0, func(int) (int, int, error) {
		if calls++; calls == 3 {
			return 0, 0, failure
		}
		return 5, 5, nil
	})
	if n != 10 || !errors.Is(err, failure) {
		t.Errorf("%d, %v; want what was done, and the error", n, err)
	}
}

func TestConditions(t *testing.T) {
	at := time.Unix(5, 0)
	c := &records.Conditions{
		Placeholder: func(n int) string { return fmt.Sprintf("$%d", n) },
		TextCast:    "::text",
		Instant:     func(t time.Time) any { return t.Unix() },
		IDs:         func(ids []engine.ID) (string, []any) { return "IN (?, ?)", []any{"a", "b"} },
		Args:        []any{"first"},
	}
	c.Filter(engine.Filter{IDs: make([]engine.ID, 2), Topic: "t", ErrorClass: "rejected", From: at, To: at.Add(time.Second)}, "created_at")
	c.Add("m.seq > ?", int64(7))
	const want = "m.message_id IN ($2, $3) AND m.topic = $4::text AND m.last_error_class = $5::text AND m.created_at >= $6 AND m.created_at < $7 AND m.seq > $8"
	if got := c.String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := fmt.Sprint(c.Args...); got != fmt.Sprint("first", "a", "b", "t", "rejected", int64(5), int64(6), int64(7)) {
		t.Error(c.Args...)
	}
}
