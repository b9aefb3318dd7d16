package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outward-dev/outward/internal/testservers"
)

// TestTraffic counts what is known: a batch is one round trip, whatever is in it,
// and a long statement is one statement, however many writes it takes.
func TestTraffic(t *testing.T) {
	b, err := newBench(t.Context(), testservers.DSN(t, "pg17"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if err := b.scratch(t.Context(), func(s *scratch) error {
		c, err := s.pool.Acquire(t.Context())
		if err != nil {
			return err
		}
		defer c.Release()
		at := func(what string, statements, trips int64) {
			t.Helper()
			if n, m := s.meter.traffic.statements.Swap(0), s.meter.traffic.trips.Swap(0); n != statements || m != trips {
				t.Errorf("%s: %d statements in %d round trips, not %d in %d", what, n, m, statements, trips)
			}
		}
		at("logging in", 0, 0)
		var n int
		if err := c.QueryRow(t.Context(), "SELECT length($1)", strings.Repeat("E", 1<<20)).Scan(&n); err != nil {
			return err
		}
		at("a statement", 1, 1)
		batch := &pgx.Batch{}
		for range 3 {
			batch.Queue("SELECT 1")
		}
		if err := c.SendBatch(t.Context(), batch).Close(); err != nil {
			return err
		}
		at("a batch", 3, 1)
		if _, err := c.Exec(t.Context(), "SELECT 1; SELECT 2"); err != nil {
			return err
		}
		at("a simple query", 1, 1)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
