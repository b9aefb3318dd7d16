package main

import (
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/config"
)

// program is what the commands share.
type program struct {
	stdout, stderr io.Writer
	began          bool // a command has its arguments and runs
	configFile     string
	logFormat      string
	logLevel       string
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outward",
		Short: "Relay messages from a transactional outbox to a broker",
		Long: "Outward relays messages that were committed in a SQL database to a broker, at least once,\n" +
			"with the same identity, in order per key.\n\n" +
			"Exit codes: 0 well, 1 failed, 2 wrong usage, 3 attention needed (dead, held or paused).",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
		PersistentPreRun: func(*cobra.Command, []string) { p.began = true },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVarP(&p.configFile, "config", "c", os.Getenv("OUTWARD_CONFIG"), "configuration `FILE`; default $OUTWARD_CONFIG")
	flags.StringVar(&p.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&p.logLevel, "log-level", "info", "debug, info, warn or error")
	root.AddCommand(p.relayCommand(), p.migrateCommand(), p.statusCommand(),
		p.deadCommand(), p.pauseCommand(), p.resumeCommand(), p.replayCommand(), p.configCommand(), p.versionCommand())
	return root
}

// parent is a command that only holds others.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return usageError("name what to do: " + childNames(cmd))
	}}
	c.AddCommand(children...)
	return c
}

func childNames(c *cobra.Command) string {
	var names string
	for i, child := range c.Commands() {
		if i > 0 {
			names += ", "
		}
		names += c.CommandPath() + " " + child.Name()
	}
	return names
}

// load reads the configuration.
func (p *program) load() (*config.Config, error) {
	if p.configFile == "" {
		return nil, usageError("name the configuration: --config FILE, or the variable OUTWARD_CONFIG")
	}
	return config.Load(p.configFile)
}

// relays returns the relays that a command is about: all, or the named ones.
func relays(c *config.Config, names []string) ([]*config.Relay, error) {
	if len(names) == 0 {
		return c.Relays, nil
	}
	var found []*config.Relay
	for _, name := range names {
		r := c.Relay(name)
		if r == nil {
			known := ""
			for i, r := range c.Relays {
				if i > 0 {
					known += ", "
				}
				known += r.Name
			}
			return nil, usageError("no relay is named " + name + "; " + c.File + " has " + known)
		}
		if !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	return found, nil
}

// logger writes to stderr, as the flags say.
func (p *program) logger() (*slog.Logger, error) {
	var level slog.Level
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, p.logLevel) {
		return nil, usageError("--log-level " + p.logLevel + " is not known; it is debug, info, warn or error")
	}
	if err := level.UnmarshalText([]byte(p.logLevel)); err != nil {
		return nil, err
	}
	o := &slog.HandlerOptions{Level: level}
	switch p.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(p.stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(p.stderr, o)), nil
	}
	return nil, usageError("--log-format " + p.logFormat + " is not known; it is text or json")
}
