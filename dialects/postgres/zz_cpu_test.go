package postgres

import (
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/outward-dev/outward/internal/testservers"
)

func TestZZCPU(t *testing.T) {
	if os.Getenv("PROF") == "" {
		t.Skip()
	}
	keep := &Retention{Discarded: time.Hour}
	if os.Getenv("KEEP") != "" {
		keep.Published = time.Hour
	}
	db := newDatabase(t, testservers.DSN(t, os.Getenv("PROF")), keep)
	s := db.open(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "zzcpu" })
	keys, _ := strconv.Atoi(os.Getenv("KEYS"))
	db.fill(100000, keys, "bench")
	db.exec(`VACUUM ANALYZE {messages}`)
	db.exec(`CHECKPOINT`)
	pids := func() float64 {
		rows, _ := db.pool.Query(t.Context(), `SELECT pid FROM pg_stat_activity WHERE application_name = 'zzcpu'`)
		list, _ := pgx.CollectRows(rows, pgx.RowTo[int32])
		var ticks float64
		for _, p := range list {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
			if err != nil {
				continue
			}
			f := strings.Fields(string(b[strings.LastIndex(string(b), ")")+1:]))
			u, _ := strconv.ParseFloat(f[11], 64)
			k, _ := strconv.ParseFloat(f[12], 64)
			ticks += u + k
		}
		return ticks / 100
	}
	var a, z syscall.Rusage
	before := pids()
	syscall.Getrusage(0, &a)
	f, _ := os.Create("/tmp/cpu.prof")
	pprof.StartCPUProfile(f)
	start := time.Now()
	k, _ := strconv.Atoi(os.Getenv("K"))
	db.drain(s, max(k, 1), 1000, 100000)
	el := time.Since(start)
	pprof.StopCPUProfile()
	syscall.Getrusage(0, &z)
	cpu := func(r syscall.Rusage) float64 {
		return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
	}
	rows, _ := s.pool.Query(t.Context(), `SELECT left(regexp_replace(statement, '\s+', ' ', 'g'), 60) || ' g=' || generic_plans || ' c=' || custom_plans FROM pg_prepared_statements`)
	l, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	if os.Getenv("PLANS") != "" {
		fmt.Println(strings.Join(l, "\n"))
	}
	fmt.Printf("elapsed %v (%.0f/s) go cpu %.2f pg cpu %.2f\n", el, 1e5/el.Seconds(), cpu(z)-cpu(a), pids()-before)
}
