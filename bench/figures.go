package main

import (
	"context"
	"math"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// figures are what one run of a subject took. A figure that can't be had is NaN.
type figures struct {
	n    int // messages
	took time.Duration

	statements, trips float64 // of the relay or the loop, to the database
	wal               float64 // bytes
	dbCPU, cpu        float64 // seconds: the server's processes, and this one
	allocs, allocated float64 // in this process: objects, and their bytes
	calls             float64 // of the transport

	p50, p99 time.Duration // from commit to acknowledgement; 0: not asked
}

// rate is in messages a second.
func (f figures) rate() float64 { return float64(f.n) / f.took.Seconds() }

// per gives a figure per message.
func (f figures) per(x float64) float64 { return x / float64(f.n) }

// A meter reads the counters before and after.
type meter struct {
	db      *pgxpool.Pool // whose traffic is not counted; nil: no database is at work
	traffic *traffic

	began time.Time
	at    figures
}

func (m *meter) start(ctx context.Context) error {
	at, err := m.read(ctx)
	m.at, m.began = at, time.Now()
	return err
}

// stop takes the time first: reading the counters takes some.
func (m *meter) stop(ctx context.Context, n int) (figures, error) {
	took := time.Since(m.began)
	f, err := m.read(ctx)
	f.n, f.took = n, took
	f.statements -= m.at.statements
	f.trips -= m.at.trips
	f.wal -= m.at.wal
	f.dbCPU -= m.at.dbCPU
	f.cpu -= m.at.cpu
	f.allocs -= m.at.allocs
	f.allocated -= m.at.allocated
	f.calls = math.NaN()
	return f, err
}

func (m *meter) read(ctx context.Context) (figures, error) {
	none := math.NaN()
	f := figures{statements: none, trips: none, wal: none, dbCPU: none, cpu: ownCPU()}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	f.allocs, f.allocated = float64(mem.Mallocs), float64(mem.TotalAlloc)
	if m.traffic != nil {
		f.statements, f.trips = float64(m.traffic.statements.Load()), float64(m.traffic.trips.Load())
	}
	if m.db == nil {
		return f, nil
	}
	c, err := m.db.Acquire(ctx)
	if err != nil {
		return f, err
	}
	defer c.Release()
	f.dbCPU = serverCPU(c.Conn().PgConn())
	err = c.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&f.wal)
	return f, err
}
