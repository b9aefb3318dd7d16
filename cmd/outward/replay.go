package main

import (
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/engine"
)

func (p *program) replayCommand() *cobra.Command {
	var which choice
	var by change
	var all, dryRun bool
	var rate int
	c := &cobra.Command{
		Use:   "replay",
		Short: "Send archived messages again, with the same ids",
		Long: "Send archived messages again, with the same ids, each as the last of its key. Consumers with an\n" +
			"inbox recognise them. Messages that are waiting, or of which the archive kept no payload, are left out.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := which.filter()
			if err != nil {
				return err
			}
			if which.empty() && !all {
				return usageError("say which: a filter such as --from or --topic, or --all")
			}
			if rate < 0 {
				return usageError("--rate is negative; 0 is as fast as it goes")
			}
			archived := func(t target) iter.Seq2[engine.Record, error] {
				archive, ok := t.db.Store().(engine.Archive)
				if !ok {
					return func(yield func(engine.Record, error) bool) {
						yield(engine.Record{}, fmt.Errorf("%s can't show its archive", t.db.Store().Describe().Dialect))
					}
				}
				return archive.Archived(cmd.Context(), f)
			}
			if dryRun {
				return p.dryRun(which.relays, "replay", archived)
			}
			actor, err := by.actor()
			if err != nil {
				return err
			}
			return p.each(which.relays, func(t target) error {
				var ids []engine.ID
				bare := 0
				for r, err := range archived(t) {
					switch {
					case err != nil:
						return err
					case r.MetadataOnly:
						bare++
					default:
						ids = append(ids, r.ID)
					}
				}
				n, err := pace(cmd.Context(), ids, rate, func(ids []engine.ID) (int, error) {
					// By ids alone: the same message may have been settled again meanwhile.
					return t.operator.Replay(cmd.Context(), engine.Filter{IDs: ids}, actor)
				})
				fmt.Fprintf(p.stdout, "%s: replayed %d", t.relay.Name, n)
				if waiting := len(ids) - n; waiting > 0 && err == nil {
					fmt.Fprintf(p.stdout, ", left out %d that wait already", waiting)
				}
				if bare > 0 {
					fmt.Fprintf(p.stdout, ", left out %d of which the archive has no payload", bare)
				}
				fmt.Fprintln(p.stdout)
				if err == nil && bare > 0 && n == 0 {
					err = fmt.Errorf("nothing could be replayed: the archive kept no payload")
				}
				return err
			})
		},
	}
	which.flags(c, "from", "to", "settled")
	c.Flags().BoolVar(&all, "all", false, "everything in the archive, where no filter is given")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, list what would be sent")
	c.Flags().IntVar(&rate, "rate", 0, "at most so many per second; 0: as fast as it goes")
	by.flags(c)
	return c
}
