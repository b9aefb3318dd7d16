package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/config"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/telemetry"
)

func (p *program) relayCommand() *cobra.Command {
	var paused bool
	c := &cobra.Command{
		Use:   "relay",
		Short: "Run the relays of the configuration until SIGINT or SIGTERM",
		Long: "Run the relays of the configuration until SIGINT or SIGTERM, then let what was sent finish\n" +
			"within the drain limit, and exit 0. A second signal ends the process at once.\n\n" +
			"On SIGHUP the configuration is read again. With a fault in it the old one goes on; else\n" +
			"relays that changed drain and start again, and the others are not touched.\n\n" +
			"A database or broker that is out of reach is tried again for ever. A relay that no retry\n" +
			"can help (a missing table, a wrong schema version) is reported and tried again while others\n" +
			"work; when none is left, the process exits 1.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.relay(cmd.Context(), paused) },
	}
	c.Flags().BoolVar(&paused, "paused", false, "pause every transport first, for all relays on the tables; outward resume lets go")
	return c
}

func (p *program) relay(ctx context.Context, paused bool) error {
	// Before anything that takes time: until then a SIGHUP would end the process.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	log, err := p.logger()
	if err != nil {
		return err
	}
	conf, err := p.load()
	if err != nil {
		return err
	}
	d := &daemonProcess{p: p, log: log}
	var page http.Handler
	if d.metrics, page, err = newMetrics(d.status, log); err != nil {
		return err
	}
	set, err := conf.Build(&config.BuildOptions{Logger: log, Paused: paused, Hooks: d.metrics.Hooks, Removed: d.metrics.Forget})
	if err != nil {
		return err
	}
	d.set.Store(set)
	d.handler = (&probes{set: set, metrics: page}).handler()
	use, _, err := d.listen(ctx, conf.Probes)
	if err != nil {
		set.Close()
		return err
	}
	use()
	defer func() { d.stopListening() }()

	log.Info("relaying", "version", version(), "relays", len(conf.Relays), "config", conf.File)
	ended := make(chan error, 1)
	go func() { ended <- set.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			if err == nil {
				log.Info("drained and ended")
			}
			return err
		case <-hup:
			d.reload(ctx)
		}
	}
}

// daemonProcess is what lives as long as the relay command.
type daemonProcess struct {
	p             *program
	log           *slog.Logger
	metrics       *telemetry.Metrics
	set           atomic.Pointer[config.Set]
	handler       http.Handler
	probes        string // where it listens; empty: nowhere
	stopListening func()
}

// status is for the metrics, which may be read before the set is built.
func (d *daemonProcess) status() []engine.Status {
	set := d.set.Load()
	if set == nil {
		return nil
	}
	all := set.Status()
	out := make([]engine.Status, len(all))
	for i, s := range all {
		out[i] = s.Status
	}
	return out
}

// listen opens the probes at an address. Until use is called they are not those of
// the process; cancel takes it back.
func (d *daemonProcess) listen(ctx context.Context, address string) (use, cancel func(), err error) {
	stop := func() {}
	if address != "" {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return nil, nil, fmt.Errorf("http.probes: %w", err)
		}
		stop = serve(listener, d.handler, d.log)
	}
	return func() {
		if d.stopListening != nil {
			d.stopListening()
		}
		d.stopListening, d.probes = stop, address
	}, stop, nil
}

// reload goes over to what stands in the file now. With a fault everything stays as
// it is.
func (d *daemonProcess) reload(ctx context.Context) {
	err := d.tryReload(ctx)
	d.metrics.Reloaded(err)
	var faults config.Faults
	switch {
	case err == nil:
	case errors.As(err, &faults):
		for _, f := range faults {
			d.log.Error("fault in the configuration", "file", f.File, "line", f.Line, "column", f.Column, "key", f.Path, "fault", f.Text)
		}
		d.log.Error("not reloaded: the old configuration goes on", "faults", len(faults))
	default:
		d.log.Error("not reloaded: the old configuration goes on", "error", err)
	}
}

func (d *daemonProcess) tryReload(ctx context.Context) error {
	conf, err := d.p.load()
	if err != nil {
		return err
	}
	use, cancel := func() {}, func() {}
	if conf.Probes != d.probes {
		if use, cancel, err = d.listen(ctx, conf.Probes); err != nil {
			return err
		}
	}
	changes, err := d.set.Load().Reload(conf)
	if err != nil {
		cancel()
		return err
	}
	use()
	d.log.Info("reloaded", "added", changes.Added, "changed", changes.Changed, "removed", changes.Removed, "unchanged", changes.Unchanged)
	return nil
}
