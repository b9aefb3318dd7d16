package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/config"
)

func (p *program) migrateCommand() *cobra.Command {
	var names []string
	var dryRun bool
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema of the relays' tables up to date",
		Long: "Bring the schema of the relays' tables up to date, and write the retention that the configuration\n" +
			"names. Relays and writers may go on meanwhile. Running it again does no harm.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.migrate(cmd.Context(), names, dryRun) },
	}
	c.Flags().StringSliceVar(&names, "relay", nil, "only the table of this relay `NAME`; may be repeated")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, say what would be done")

	var format, dir string
	printed := &cobra.Command{
		Use:   "print",
		Short: "Print the migrations for another tool",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return p.migratePrint(names, format, dir) },
	}
	printed.Flags().StringSliceVar(&names, "relay", nil, "only the table of this relay `NAME`; may be repeated")
	printed.Flags().StringVar(&format, "format", "sql", "sql, goose, migrate or atlas")
	printed.Flags().StringVar(&dir, "dir", "", "write the files into this `DIRECTORY` instead; none is overwritten")
	c.AddCommand(printed)
	return c
}

func (p *program) migrate(ctx context.Context, names []string, dryRun bool) error {
	conf, err := p.load()
	if err != nil {
		return err
	}
	chosen, err := relays(conf, names)
	if err != nil {
		return err
	}
	for _, r := range chosen {
		if err := p.migrateOne(ctx, r, dryRun); err != nil {
			return fmt.Errorf("relay %s: %w", r.Name, err)
		}
	}
	return nil
}

func (p *program) migrateOne(ctx context.Context, r *config.Relay, dryRun bool) error {
	db, err := r.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	m, err := db.Migrate(ctx, dryRun)
	where := fmt.Sprintf("%s: %s", r.Name, db.Store().Describe().Table)
	did := "did"
	if dryRun {
		did = "would do"
	}
	if len(m.Steps) > 0 {
		fmt.Fprintf(p.stdout, "%s: schema version %d -> %d: %s %s\n", where, m.From, m.To, did, strings.Join(m.Steps, ", "))
	} else if err == nil {
		fmt.Fprintf(p.stdout, "%s: schema version %d is up to date\n", where, m.To)
	}
	if m.Retention != "" {
		fmt.Fprintf(p.stdout, "%s: settings: %s: %s\n", where, did, m.Retention)
	}
	return err
}

func (p *program) migratePrint(names []string, format, dir string) error {
	if !slices.Contains([]string{"sql", "goose", "migrate", "atlas"}, format) {
		return usageError("--format " + format + " is not known; it is sql, goose, migrate or atlas")
	}
	conf, err := p.load()
	if err != nil {
		return err
	}
	chosen, err := relays(conf, names)
	if err != nil {
		return err
	}
	for _, r := range chosen {
		files, err := r.Render(format)
		if err != nil {
			return fmt.Errorf("relay %s: %w", r.Name, err)
		}
		for _, f := range files {
			if dir == "" {
				fmt.Fprintf(p.stdout, "-- %s, for the relay %s\n%s\n", f.Name, r.Name, f.Content)
				continue
			}
			path := filepath.Join(dir, f.Name)
			if err := writeNew(path, f.Content); err != nil {
				return err
			}
			fmt.Fprintln(p.stdout, path)
		}
	}
	return nil
}

// writeNew writes a file that must not be there yet: a migration that was applied
// is never changed.
func writeNew(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
