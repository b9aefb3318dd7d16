package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/outward-dev/outward/config"
	"github.com/outward-dev/outward/engine"
)

// probes answers orchestrators. What it says has no ids, no addresses and no error
// texts in it: it may listen anywhere.
type probes struct {
	set     interface{ Status() []config.RelayStatus }
	metrics http.Handler
}

func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", p.healthz) // GET is also HEAD, and all others get 405
	mux.HandleFunc("GET /readyz", p.readyz)
	mux.Handle("GET /metrics", p.metrics)
	return mux
}

// healthz fails only when a loop of the process hangs. An outage of a database or a
// broker is nothing that a restart would mend.
func (p *probes) healthz(w http.ResponseWriter, _ *http.Request) {
	var stuck []string
	for _, s := range p.set.Status() {
		if len(s.Stuck) > 0 {
			stuck = append(stuck, fmt.Sprintf("%s: no progress for a minute: %s", s.Name, strings.Join(s.Stuck, ", ")))
		}
	}
	if len(stuck) > 0 {
		answer(w, http.StatusServiceUnavailable, stuck)
		return
	}
	answer(w, http.StatusOK, []string{"ok"})
}

// readyz says whether every relay was built and has reached its table once, and
// names those that are ill. With strict=1 an ill one is a failure.
func (p *probes) readyz(w http.ResponseWriter, r *http.Request) {
	code := http.StatusOK
	var lines []string
	for _, s := range p.set.Status() {
		ill := illness(s)
		if ill == "" {
			continue
		}
		lines = append(lines, s.Name+": "+ill)
		if !s.Ready || r.URL.Query().Get("strict") == "1" {
			code = http.StatusServiceUnavailable
		}
	}
	if len(lines) == 0 {
		lines = []string{"ok"}
	}
	answer(w, code, lines)
}

// illness says in a few words what is wrong with a relay; empty: nothing.
func illness(s config.RelayStatus) string {
	var words []string
	if s.Err != nil {
		words = append(words, "ended with an error, see the log or outward status")
	}
	if len(s.StoreErrors) > 0 {
		var operations []string
		for _, e := range s.StoreErrors {
			operation, _, _ := strings.Cut(e, ":")
			operations = append(operations, operation)
		}
		words = append(words, fmt.Sprintf("the database fails since %s (%s)", s.StoreErrorSince.UTC().Format(time.RFC3339), strings.Join(operations, ", ")))
	}
	if n := byRelay(s.Pauses); n > 0 {
		words = append(words, fmt.Sprintf("%d destination%s paused by a fault", n, plural(n)))
	}
	if len(words) == 0 && !s.Ready {
		words = append(words, "has not reached its table yet")
	}
	return strings.Join(words, "; ")
}

// byRelay counts pauses that a relay made because of a fault. An operator's pause
// is intended.
func byRelay(pauses []engine.Pause) int {
	n := 0
	for _, p := range pauses {
		if p.By.Relay {
			n++
		}
	}
	return n
}

func answer(w http.ResponseWriter, code int, lines []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(strings.Join(lines, "\n") + "\n")) // a client that went away needs no answer
}

// serve answers on the listener. The returned function ends it.
func serve(listener net.Listener, handler http.Handler, log *slog.Logger) (stop func()) {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the probes ended", "error", err)
		}
	}()
	log.Info("probes", "listen", listener.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // what is open is cut off
		}
		<-done
	}
}
