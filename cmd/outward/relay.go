package main

import (
	"context"
	"net"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/config"
)

func (p *program) relayCommand() *cobra.Command {
	var paused bool
	c := &cobra.Command{
		Use:   "relay",
		Short: "Run the relays of the configuration until SIGINT or SIGTERM",
		Long: "Run the relays of the configuration until SIGINT or SIGTERM, then let what was sent finish\n" +
			"within the drain limit, and exit 0. A second signal ends the process at once.\n\n" +
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
	log, err := p.logger()
	if err != nil {
		return err
	}
	conf, err := p.load()
	if err != nil {
		return err
	}
	set, err := conf.Build(&config.BuildOptions{Logger: log, Paused: paused})
	if err != nil {
		return err
	}
	probes := &probes{set: set, log: log}
	if conf.Probes != "" {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", conf.Probes)
		if err != nil {
			set.Close()
			return err
		}
		defer probes.serve(listener)()
	}
	log.Info("relaying", "version", version(), "relays", len(conf.Relays), "config", conf.File)
	err = set.Run(ctx)
	if err == nil {
		log.Info("drained and ended")
	}
	return err
}
