package postgres

import (
	"context"
	"fmt"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

func TestZZProf(t *testing.T) {
	if os.Getenv("PROF") == "" {
		t.Skip()
	}
	db := newDatabase(t, testservers.DSN(t, os.Getenv("PROF")), nil)
	s := db.open()
	db.fill(100000, 10000, "bench")
	db.exec(`VACUUM ANALYZE {messages}`)
	sum := map[string]time.Duration{}
	var last string
	var at time.Time
	for i := range 60 {
		if i == 10 {
			clear(sum)
		}
		last = ""
		mark := func(name string) error {
			if last != "" {
				sum[last] += time.Since(at)
			}
			last, at = name, time.Now()
			return nil
		}
		s.hook = mark
		cs, err := s.Claim(context.Background(), engine.ClaimRequest{Limit: 1000, Lease: 10 * time.Second})
		mark("between")
		if err != nil {
			t.Fatal(err)
		}
		ss := make([]engine.Settlement, len(cs))
		for i, c := range cs {
			ss[i] = engine.MarkPublished(c.Receipt)
		}
		mark("settle begin")
		if _, err := s.Settle(context.Background(), ss...); err != nil {
			t.Fatal(err)
		}
		mark("end")
	}
	var names []string
	for n := range sum {
		names = append(names, n)
	}
	sort.Slice(names, func(i, j int) bool { return sum[names[i]] > sum[names[j]] })
	for _, n := range names {
		fmt.Printf("%-15s %v\n", n, sum[n]/50)
	}
}
