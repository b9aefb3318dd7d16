package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// ticks a second in /proc: Linux has the same everywhere.
const ticks = 100

// A process is one line of /proc/PID/stat.
type process struct {
	parent string
	own    float64 // seconds of CPU
	dead   float64 // seconds of the children that have ended
}

func readProcess(pid string) (process, bool) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return process{}, false
	}
	// What follows the name, which may hold anything: state, parent, …
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 15 {
		return process{}, false
	}
	seconds := func(i int) float64 {
		n, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return math.NaN()
		}
		return n / ticks
	}
	return process{parent: f[1], own: seconds(11) + seconds(12), dead: seconds(13) + seconds(14)}, true
}

// ownCPU is what this process has used.
func ownCPU() float64 {
	p, ok := readProcess("self")
	if !ok {
		return math.NaN()
	}
	return p.own
}

// serverCPU is what all processes of the server of conn have used, those that have
// ended included. It is NaN where they can't be seen: on another host, in a
// container, on another system than Linux.
func serverCPU(conn *pgconn.PgConn) float64 {
	pid := strconv.Itoa(int(conn.PID()))
	title, err := os.ReadFile("/proc/" + pid + "/cmdline")
	// "postgres: outbox outbox 127.0.0.1(54321) idle": it could be a namesake.
	_, port, found := strings.Cut(conn.Conn().LocalAddr().String(), ":")
	if err != nil || !found || !strings.Contains(string(title), fmt.Sprintf("(%s)", port)) {
		return math.NaN()
	}
	backend, ok := readProcess(pid)
	if !ok {
		return math.NaN()
	}
	postmaster, ok := readProcess(backend.parent)
	if !ok {
		return math.NaN()
	}
	sum := postmaster.own + postmaster.dead
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return math.NaN()
	}
	for _, path := range all {
		if p, ok := readProcess(filepath.Base(filepath.Dir(path))); ok && p.parent == backend.parent {
			sum += p.own
		}
	}
	return sum
}
