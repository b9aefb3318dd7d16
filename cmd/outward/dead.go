package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/engine"
)

func (p *program) deadCommand() *cobra.Command {
	return parent("dead", "Look at dead messages, send them again or give them up",
		p.deadListCommand(), p.deadShowCommand(),
		p.deadChangeCommand("requeue", "Make dead messages ready again: same id, attempts at zero, their old place in their key", "requeued", engine.Operator.Requeue),
		p.deadChangeCommand("discard", "Move dead messages to the archive; what they held back goes on", "discarded", engine.Operator.Discard))
}

func (p *program) deadListCommand() *cobra.Command {
	var which choice
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead messages, oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := which.filter()
			if err != nil {
				return err
			}
			l := p.newList(asJSON)
			defer l.close()
			return p.each(which.relays, func(t target) error {
				return l.all(t.relay.Name, t.operator.Dead(cmd.Context(), f))
			})
		},
	}
	which.flags(c, "since", "until", "enqueued")
	c.Flags().StringVar(&which.class, "class", "", "only this class of the last fault")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per message")
	return c
}

func (p *program) deadShowCommand() *cobra.Command {
	var names []string
	var asJSON, payload bool
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show one dead message",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := engine.ParseID(args[0])
			if err != nil {
				return usageError(args[0] + " is not a message id of the form 00000000-0000-0000-0000-000000000000")
			}
			found := 0
			err = p.each(names, func(t target) error {
				for r, err := range t.operator.Dead(cmd.Context(), engine.Filter{IDs: []engine.ID{id}}) {
					if err != nil {
						return err
					}
					found++
					switch {
					case payload:
						_, err = p.stdout.Write(r.Payload)
					case asJSON:
						err = p.encode(t.relay.Name, r)
					default:
						p.show(t.relay.Name, r)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			if err == nil && found == 0 {
				err = fmt.Errorf("no dead message has the id %v", id)
			}
			return err
		},
	}
	c.Flags().StringSliceVar(&names, "relay", nil, "only the table of this relay `NAME`; may be repeated")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&payload, "payload", false, "print the payload, and nothing else")
	c.MarkFlagsMutuallyExclusive("json", "payload")
	return c
}

func (p *program) deadChangeCommand(name, short, did string, do func(engine.Operator, context.Context, engine.Filter, engine.Actor) (int, error)) *cobra.Command {
	var which choice
	var by change
	var all, dryRun bool
	var rate int
	c := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := which.filter()
			if err != nil {
				return err
			}
			if which.empty() && !all {
				return usageError("say which: a filter such as --topic or --id, or --all")
			}
			if rate < 0 {
				return usageError("--rate is negative; 0 is as fast as it goes")
			}
			if dryRun {
				return p.dryRun(which.relays, name, func(t target) iter.Seq2[engine.Record, error] { return t.operator.Dead(cmd.Context(), f) })
			}
			actor, err := by.actor()
			if err != nil {
				return err
			}
			return p.each(which.relays, func(t target) error {
				ids, err := idsOf(t.operator.Dead(cmd.Context(), f))
				if err != nil {
					return err
				}
				n, err := pace(cmd.Context(), ids, rate, func(ids []engine.ID) (int, error) {
					// The filter stays: what no longer matches it is not touched.
					chunk := f
					chunk.IDs, chunk.Limit = ids, 0
					return do(t.operator, cmd.Context(), chunk, actor)
				})
				fmt.Fprintf(p.stdout, "%s: %s %d\n", t.relay.Name, did, n)
				return err
			})
		},
	}
	which.flags(c, "since", "until", "enqueued")
	c.Flags().StringVar(&which.class, "class", "", "only this class of the last fault")
	c.Flags().BoolVar(&all, "all", false, "all dead messages, where no filter is given")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, list what would be changed")
	c.Flags().IntVar(&rate, "rate", 0, "at most so many per second; 0: as fast as it goes")
	by.flags(c)
	return c
}

func idsOf(records iter.Seq2[engine.Record, error]) (ids []engine.ID, err error) {
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		ids = append(ids, r.ID)
	}
	return ids, nil
}

// dryRun lists what a command would change.
func (p *program) dryRun(names []string, command string, of func(t target) iter.Seq2[engine.Record, error]) error {
	l := p.newList(false)
	err := p.each(names, func(t target) error { return l.all(t.relay.Name, of(t)) })
	l.close()
	if err == nil {
		fmt.Fprintf(p.stdout, "%s would change %d message%s; nothing was changed\n", command, l.n, plural(l.n))
	}
	return err
}

// A list prints messages as they come.
type list struct {
	p      *program
	asJSON bool
	w      *tabwriter.Writer
	n      int
}

func (p *program) newList(asJSON bool) *list {
	return &list{p: p, asJSON: asJSON, w: tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)}
}

func (l *list) all(relay string, records iter.Seq2[engine.Record, error]) error {
	for r, err := range records {
		if err != nil {
			return err
		}
		l.n++
		if l.asJSON {
			if err := l.p.encode(relay, r); err != nil {
				return err
			}
			continue
		}
		if l.n == 1 {
			fmt.Fprintln(l.w, "RELAY\tID\tTOPIC\tKEY\tTYPE\tAT\tATTEMPTS\tWHY")
		}
		at, why := r.DeadAt, r.LastError
		if !r.SettledAt.IsZero() {
			at, why = r.SettledAt, outcome(r)
		}
		if r.HoldsKey {
			why = "holds its key; " + why
		}
		fmt.Fprintf(l.w, "%s\t%v\t%s\t%s\t%s\t%s\t%d\t%s\n", relay, r.ID, short(r.Topic), short(r.Key), short(r.Type), stamp(at), r.Attempts, clean(why))
		if l.n%100 == 0 {
			l.close() // so that a long list is seen as it comes
		}
	}
	return nil
}

func (l *list) close() {
	_ = l.w.Flush() // what can't be printed can't be reported either
}

func outcome(r engine.Record) string {
	text := "published"
	if r.Discarded {
		text = "discarded"
	}
	if r.MetadataOnly {
		text += ", without its payload"
	}
	return text
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// clean makes text of others fit to be printed on a terminal, in one line.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
}

func short(text string) string {
	text = clean(text)
	if text == "" {
		return "-"
	}
	if r := []rune(text); len(r) > 40 {
		return string(r[:39]) + "…"
	}
	return text
}

// record is a message's JSON, without its payload.
type record struct {
	Relay            string            `json:"relay"`
	ID               string            `json:"id"`
	Topic            string            `json:"topic"`
	Key              string            `json:"key,omitempty"`
	Type             string            `json:"type"`
	AggregateType    string            `json:"aggregate_type,omitempty"`
	AggregateID      string            `json:"aggregate_id,omitempty"`
	AggregateVersion int64             `json:"aggregate_version,omitempty"`
	CorrelationID    string            `json:"correlation_id,omitempty"`
	ContentType      string            `json:"content_type"`
	Headers          map[string]string `json:"headers,omitempty"`
	PayloadBytes     int               `json:"payload_bytes"`
	OccurredAt       time.Time         `json:"occurred_at"`
	CreatedAt        time.Time         `json:"created_at"`
	DeadAt           *time.Time        `json:"dead_at,omitempty"`
	SettledAt        *time.Time        `json:"settled_at,omitempty"`
	Outcome          string            `json:"outcome,omitempty"`
	Attempts         int               `json:"attempts"`
	Crashes          int               `json:"crashes"`
	Resends          int               `json:"resends"`
	LastError        string            `json:"last_error,omitempty"`
	LastErrorClass   string            `json:"last_error_class,omitempty"`
	HoldsKey         bool              `json:"holds_key"`
}

func (p *program) encode(relay string, r engine.Record) error {
	out := record{
		Relay: relay, ID: r.ID.String(), Topic: r.Topic, Key: r.Key, Type: r.Type,
		AggregateType: r.AggregateType, AggregateID: r.AggregateID, AggregateVersion: r.AggregateVersion,
		CorrelationID: r.CorrelationID, ContentType: r.ContentType, Headers: r.Headers, PayloadBytes: len(r.Payload),
		OccurredAt: r.OccurredAt, CreatedAt: r.CreatedAt, Attempts: r.Attempts, Crashes: r.Crashes, Resends: r.Resends,
		LastError: r.LastError, LastErrorClass: r.LastErrorClass, HoldsKey: r.HoldsKey,
	}
	if !r.DeadAt.IsZero() {
		out.DeadAt = &r.DeadAt
	}
	if !r.SettledAt.IsZero() {
		out.SettledAt, out.Outcome = &r.SettledAt, outcome(r)
	}
	return json.NewEncoder(p.stdout).Encode(out)
}

// show prints one message for people.
func (p *program) show(relay string, r engine.Record) {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" && value != "-" {
			fmt.Fprintf(w, "%s\t%s\n", name, clean(value))
		}
	}
	row("relay", relay)
	row("id", r.ID.String())
	row("topic", r.Topic)
	row("key", r.Key)
	row("type", r.Type)
	row("aggregate", strings.TrimSpace(r.AggregateType+" "+r.AggregateID))
	if r.AggregateVersion != 0 {
		row("version", strconv.FormatInt(r.AggregateVersion, 10))
	}
	row("correlation", r.CorrelationID)
	row("content type", r.ContentType)
	for _, name := range sortedKeys(r.Headers) {
		row("header", name+": "+r.Headers[name])
	}
	row("payload", fmt.Sprintf("%d bytes; --payload prints them", len(r.Payload)))
	row("occurred", stamp(r.OccurredAt))
	row("enqueued", stamp(r.CreatedAt))
	row("died", stamp(r.DeadAt))
	row("attempts", strconv.Itoa(r.Attempts))
	row("crashes", strconv.Itoa(r.Crashes))
	row("resends", strconv.Itoa(r.Resends))
	row("why", r.LastError)
	if r.HoldsKey {
		row("holds", "the later messages of its key wait for it")
	}
	_ = w.Flush() // what can't be printed can't be reported either
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
