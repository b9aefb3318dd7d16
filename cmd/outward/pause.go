package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/config"
	"github.com/outward-dev/outward/engine"
)

const destinationHelp = "DESTINATION is one of\n" +
	"  TRANSPORT:NAME       one destination of a transport, as status shows it: main:orders\n" +
	"  transport:TRANSPORT  everything that goes by a transport: transport:main\n" +
	"  topic:TOPIC          one topic, wherever it goes: topic:order.submitted\n"

func (p *program) pauseCommand() *cobra.Command {
	var names []string
	var by change
	c := &cobra.Command{
		Use:   "pause DESTINATION",
		Short: "Stop sending to a destination, for all relays on the table, until resume",
		Long: "Stop sending to a destination, for all relays on the table, until resume. What is on its way\n" +
			"goes out; what comes waits, and holds back its key and nothing else.\n\n" + destinationHelp +
			"\nWithout --relay it counts for every relay of the configuration that has the transport.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			actor, err := by.actor()
			if err != nil {
				return err
			}
			return p.eachWith(args[0], names, func(t target) error {
				if err := t.operator.Pause(cmd.Context(), engine.Pause{Destination: args[0], By: actor}); err != nil {
					return err
				}
				fmt.Fprintf(p.stdout, "%s: paused %s\n", t.relay.Name, args[0])
				return nil
			})
		},
	}
	c.Flags().StringSliceVar(&names, "relay", nil, "only this relay `NAME`; may be repeated")
	by.flags(c)
	return c
}

func (p *program) resumeCommand() *cobra.Command {
	var names []string
	var by change
	c := &cobra.Command{
		Use:   "resume DESTINATION",
		Short: "End a pause, whoever made it",
		Long:  "End a pause, whoever made it. What waits goes out, in order per key.\n\n" + destinationHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			actor, err := by.actor()
			if err != nil {
				return err
			}
			return p.resume(cmd.Context(), args[0], names, actor)
		},
	}
	c.Flags().StringSliceVar(&names, "relay", nil, "only this relay `NAME`; may be repeated")
	by.flags(c)
	return c
}

// resume takes any name: a pause may outlive the transport that it was for.
func (p *program) resume(ctx context.Context, destination string, names []string, by engine.Actor) error {
	ended := 0
	var paused []string
	err := p.each(names, func(t target) error {
		ok, err := t.operator.Resume(ctx, destination, by)
		switch {
		case err != nil:
			return err
		case ok:
			ended++
			fmt.Fprintf(p.stdout, "%s: resumed %s\n", t.relay.Name, destination)
			return nil
		}
		list, err := t.operator.Pauses(ctx)
		for _, p := range list {
			paused = append(paused, p.Destination)
		}
		return err
	})
	if err == nil && ended == 0 {
		text := "nothing is"
		if len(paused) > 0 {
			text = "paused is " + strings.Join(paused, ", ")
		}
		return fmt.Errorf("%s is not paused; %s", destination, text)
	}
	return err
}

// eachWith does something to the tables of the relays that know a destination.
func (p *program) eachWith(destination string, names []string, do func(t target) error) error {
	conf, err := p.load()
	if err != nil {
		return err
	}
	chosen, err := relays(conf, names)
	if err != nil {
		return err
	}
	kind, rest, ok := strings.Cut(destination, ":")
	if !ok || rest == "" {
		return usageError(destination + " names no destination: " + destinationHelp)
	}
	name := kind
	if kind == "transport" {
		name = rest
	}
	var known []string
	chosen = slices.DeleteFunc(slices.Clone(chosen), func(r *config.Relay) bool {
		known = append(known, r.Transports()...)
		return kind != "topic" && !slices.Contains(r.Transports(), name)
	})
	if len(chosen) == 0 {
		slices.Sort(known)
		return usageError(fmt.Sprintf("no transport is named %s; there is %s", name, strings.Join(slices.Compact(known), ", ")))
	}
	for _, r := range chosen {
		if err := p.one(r, do); err != nil {
			return fmt.Errorf("relay %s: %w", r.Name, err)
		}
	}
	return nil
}
