package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (p *program) configCommand() *cobra.Command {
	check := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, without talking to any server",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			conf, err := p.load()
			if err != nil {
				return err
			}
			set, err := conf.Build(nil)
			if err != nil {
				return err
			}
			set.Close()
			fmt.Fprintf(p.stdout, "%s: well, %d relay%s\n", conf.File, len(conf.Relays), plural(len(conf.Relays)))
			return nil
		},
	}
	show := &cobra.Command{
		Use:   "print",
		Short: "Print the configuration in effect, defaults included and secrets left out",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			conf, err := p.load()
			if err != nil {
				return err
			}
			fmt.Fprint(p.stdout, conf.Print())
			return nil
		},
	}
	return parent("config", "Check or print the configuration", check, show)
}
