package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

// fill inserts rows by SQL, with keys keys; 0: none has a key.
func (db *database) fill(rows, size, keys int, topic string) {
	db.t.Helper()
	db.exec(`INSERT INTO {messages} (topic, ordering_key, type, payload)
		SELECT $3::text, CASE WHEN $2::integer > 0 THEN 'key ' || g % $2::integer END, 'bench.v1', decode(repeat('ab', $4::integer), 'hex')
		  FROM generate_series(1, $1::integer) g`, rows, keys, topic, size)
}

// drain claims and publishes with k loops until want messages went.
func (db *database) drain(s *Store, k, batch, want int) {
	var left atomic.Int64
	left.Store(int64(want))
	var wg sync.WaitGroup
	for range k {
		wg.Go(func() {
			for left.Load() > 0 {
				cs, err := s.Claim(context.Background(), engine.ClaimRequest{Worker: "bench", Limit: batch, Lease: 10 * time.Second})
				if err != nil {
					db.t.Errorf("claim: %v", err)
					return
				}
				ss := make([]engine.Settlement, len(cs))
				for i, c := range cs {
					ss[i] = engine.MarkPublished(c.Receipt)
				}
				if _, err := s.Settle(context.Background(), ss...); err != nil {
					db.t.Errorf("settle: %v", err)
					return
				}
				left.Add(-int64(len(cs)))
			}
		})
	}
	wg.Wait()
}

// BenchmarkClaimSettle moves 100 000 pending messages of 1 KB per iteration.
func BenchmarkClaimSettle(b *testing.B) {
	const rows = 100_000
	for _, server := range testservers.Postgres() {
		for _, keep := range []time.Duration{0, 72 * time.Hour} {
			for _, batch := range []int{500, 1000} {
				for _, keys := range []int{0, 10_000} {
					b.Run(fmt.Sprintf("%s/retention=%v/batch=%d/keys=%d", server, keep, batch, keys), func(b *testing.B) {
						db := newDatabase(b, testservers.DSN(b, server), &Retention{Published: keep, Discarded: time.Hour})
						s := db.open()
						for b.Loop() {
							b.StopTimer()
							db.fill(rows, 1024, keys, "bench")
							db.exec(`VACUUM ANALYZE {messages}`)
							db.exec(`CHECKPOINT`)
							b.StartTimer()
							db.drain(s, 4, batch, rows)
						}
						b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
					})
				}
			}
		}
	}
}
