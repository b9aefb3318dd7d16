package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/config"
	"github.com/outward-dev/outward/engine"
)

func (p *program) statusCommand() *cobra.Command {
	var names []string
	var asJSON bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what waits, what is held, dead or paused, per relay",
		Long: "Show what waits, what is held, dead or paused, per relay, as the database has it.\n\n" +
			"Exits 3 when something is dead, held or paused, and 1 when a table can't be asked or isn't right.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.status(cmd.Context(), names, asJSON, timeout) },
	}
	c.Flags().StringSliceVar(&names, "relay", nil, "only this relay `NAME`; may be repeated")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "limit for each table")
	return c
}

// A report is what is known of one relay's table. Its JSON is for programs.
type report struct {
	Relay   string `json:"relay"`
	Dialect string `json:"dialect"`
	Table   string `json:"table"`
	// Failed says why the table can't be worked on; empty: it can.
	Failed        string    `json:"failed,omitempty"`
	Warnings      []string  `json:"warnings,omitempty"`
	SchemaVersion int       `json:"schema_version"`
	SchemaNewest  int       `json:"schema_newest"`
	Backlog       *backlog  `json:"backlog,omitempty"`
	Pauses        []pauseAt `json:"pauses"`
	// Attention lists what needs some; empty: nothing does.
	Attention []string `json:"attention"`
}

type backlog struct {
	Ready      count   `json:"ready"`
	Waiting    count   `json:"waiting"`
	Parked     count   `json:"parked"`
	Held       count   `json:"held"`
	Dead       count   `json:"dead"`
	Leased     int     `json:"leased"`
	HeldKeys   count   `json:"held_keys"`
	Oldest     seconds `json:"oldest_age_seconds"`
	OldestHold seconds `json:"oldest_hold_seconds"`
}

// count is exact, or a floor where it is capped.
type count struct {
	N      int  `json:"n"`
	Capped bool `json:"capped"`
}

func (c count) String() string {
	if c.Capped {
		return fmt.Sprintf("≥%d", c.N)
	}
	return fmt.Sprint(c.N)
}

// some says how many of something there are, in words.
func (c count) some(one, many string) string {
	if c.N == 1 && !c.Capped {
		return "1 " + one
	}
	return c.String() + " " + many
}

type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

func (s seconds) String() string {
	d := time.Duration(s)
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

type pauseAt struct {
	Destination string    `json:"destination"`
	By          string    `json:"by"`
	Operator    bool      `json:"operator"`
	Reason      string    `json:"reason"`
	Class       string    `json:"class,omitempty"`
	Since       time.Time `json:"since"`
}

func (p *program) status(ctx context.Context, names []string, asJSON bool, timeout time.Duration) error {
	conf, err := p.load()
	if err != nil {
		return err
	}
	chosen, err := relays(conf, names)
	if err != nil {
		return err
	}
	reports := make([]report, len(chosen))
	var asking sync.WaitGroup
	for i, r := range chosen {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			reports[i] = ask(ctx, r)
		})
	}
	asking.Wait()
	if asJSON {
		e := json.NewEncoder(p.stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(map[string]any{"relays": reports}); err != nil {
			return err
		}
	} else {
		for i, r := range reports {
			if i > 0 {
				fmt.Fprintln(p.stdout)
			}
			p.printReport(r)
		}
	}
	return conclude(reports)
}

// conclude is the error that makes the exit code.
func conclude(reports []report) error {
	var failed, attention []string
	for _, r := range reports {
		if r.Failed != "" {
			failed = append(failed, r.Relay+": "+r.Failed)
		}
		if len(r.Attention) > 0 {
			attention = append(attention, r.Relay+": "+strings.Join(r.Attention, ", "))
		}
	}
	switch {
	case len(failed) > 0:
		return fmt.Errorf("%s", strings.Join(append(failed, attention...), "\n"))
	case len(attention) > 0:
		return attentionError("attention: " + strings.Join(attention, "; "))
	}
	return nil
}

// ask asks the database for everything about one relay's table.
func ask(ctx context.Context, r *config.Relay) report {
	out := report{Relay: r.Name, Pauses: []pauseAt{}, Attention: []string{}}
	db, err := r.Open()
	if err != nil {
		out.Failed = oneLine(err)
		return out
	}
	defer db.Close()
	store := db.Store()
	info := store.Describe()
	out.Dialect, out.Table = info.Dialect, info.Table
	var failed []string
	if c, ok := store.(engine.Checker); ok {
		for _, f := range c.Check(ctx) {
			text := f.Text
			if f.Fix != "" {
				text += "; " + f.Fix
			}
			if f.Level >= engine.Retry {
				failed = append(failed, text)
			} else {
				out.Warnings = append(out.Warnings, f.Level.String()+": "+text)
			}
		}
	}
	fail := func(err error) report {
		failed = append(failed, oneLine(err))
		out.Failed = strings.Join(failed, "; ")
		return out
	}
	if out.SchemaVersion, out.SchemaNewest, err = db.Version(ctx); err != nil && len(failed) == 0 {
		return fail(err)
	}
	if len(failed) > 0 {
		out.Failed = strings.ReplaceAll(strings.Join(failed, "; "), "\n", " ")
		return out
	}
	if m, ok := store.(engine.Monitor); ok {
		b, err := m.Backlog(ctx)
		if err != nil {
			return fail(err)
		}
		out.Backlog = &backlog{
			Ready: count(b.Ready), Waiting: count(b.Waiting), Parked: count(b.Parked), Held: count(b.Held), Dead: count(b.Dead),
			Leased: b.Leased, HeldKeys: count(b.HeldKeys), Oldest: seconds(b.Oldest), OldestHold: seconds(b.OldestHold),
		}
		if b.Dead.N > 0 {
			out.Attention = append(out.Attention, count(b.Dead).String()+" dead")
		}
		if b.Held.N > 0 {
			out.Attention = append(out.Attention, count(b.Held).String()+" held back")
		}
	}
	if o, ok := store.(engine.Operator); ok {
		pauses, err := o.Pauses(ctx)
		if err != nil {
			return fail(err)
		}
		slices.SortFunc(pauses, func(a, b engine.Pause) int { return strings.Compare(a.Destination, b.Destination) })
		for _, p := range pauses {
			at := pauseAt{Destination: p.Destination, By: p.By.Name, Operator: !p.By.Relay, Reason: p.By.Reason, Since: p.Since.UTC()}
			if p.By.Relay {
				at.Class = p.Class.String()
			}
			out.Pauses = append(out.Pauses, at)
			out.Attention = append(out.Attention, "paused "+p.Destination)
		}
	}
	return out
}

// printReport writes a report for people.
func (p *program) printReport(r report) {
	fmt.Fprintf(p.stdout, "%s  %s\n", r.Relay, r.Table)
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	switch {
	case r.Failed != "":
		row("table", "FAILED: %s", r.Failed)
	case r.SchemaVersion < r.SchemaNewest:
		row("table", "reachable, schema version %d; version %d is to be had: outward migrate", r.SchemaVersion, r.SchemaNewest)
	default:
		row("table", "reachable, schema version %d", r.SchemaVersion)
	}
	for _, text := range r.Warnings {
		row("note", "%s", text)
	}
	if b := r.Backlog; b != nil {
		row("ready", "%v", b.Ready)
		parked := ""
		if b.Parked.N > 0 {
			parked = fmt.Sprintf(", %v of them parked by a pause", b.Parked)
		}
		row("waiting", "%v%s", b.Waiting, parked)
		held := ""
		if b.HeldKeys.N > 0 {
			held = fmt.Sprintf(", behind %s, the oldest for %v", b.HeldKeys.some("key", "keys"), b.OldestHold)
		}
		row("held", "%v%s", b.Held, held)
		row("dead", "%v", b.Dead)
		row("leased", "%d", b.Leased)
		if b.Oldest > 0 {
			row("oldest", "%v", b.Oldest)
		} else {
			row("oldest", "none")
		}
	}
	for _, pause := range r.Pauses {
		who := "relay " + pause.By
		if pause.Operator {
			who = pause.By
		}
		row("paused", "%s  by %s since %s: %s", pause.Destination, who, pause.Since.Format(time.RFC3339), pause.Reason)
	}
	_ = w.Flush() // it writes to p.stdout, whose failure would show in every other line as well
}
