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
	broker   time.Duration // of p50, from Publish to acknowledgement
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

// start looks at this process last, and stop first, so that looking at the server
// does not count.
func (m *meter) start(ctx context.Context) error {
	if err := m.readServer(ctx, &m.at); err != nil {
		return err
	}
	m.readOwn(&m.at)
	m.began = time.Now()
	return nil
}

func (m *meter) stop(ctx context.Context, n int) (figures, error) {
	f := figures{n: n, took: time.Since(m.began), calls: math.NaN()}
	m.readOwn(&f)
	err := m.readServer(ctx, &f)
	f.statements -= m.at.statements
	f.trips -= m.at.trips
	f.wal -= m.at.wal
	f.dbCPU -= m.at.dbCPU
	f.cpu -= m.at.cpu
	f.allocs -= m.at.allocs
	f.allocated -= m.at.allocated
	return f, err
}

func (m *meter) readOwn(f *figures) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	f.allocs, f.allocated, f.cpu = float64(mem.Mallocs), float64(mem.TotalAlloc), ownCPU()
	f.statements, f.trips = math.NaN(), math.NaN()
	if m.traffic != nil {
		f.statements, f.trips = float64(m.traffic.statements.Load()), float64(m.traffic.trips.Load())
	}
}

func (m *meter) readServer(ctx context.Context, f *figures) error {
	f.wal, f.dbCPU = math.NaN(), math.NaN()
	if m.db == nil {
		return nil
	}
	c, err := m.db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	f.dbCPU = serverCPU(c.Conn().PgConn())
	return c.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&f.wal)
}
