package main

import (
	"context"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outward-dev/outward/config"
	"github.com/outward-dev/outward/engine"
)

// change is what every command that changes something asks for. Both are recorded
// in the audit.
type change struct {
	reason, by string
}

func (c *change) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.reason, "reason", "", "why; recorded, and required")
	cmd.Flags().StringVar(&c.by, "by", "", "who; recorded (default: the user of the operating system)")
}

func (c *change) actor() (engine.Actor, error) {
	if strings.TrimSpace(c.reason) == "" {
		return engine.Actor{}, usageError("say why: --reason TEXT; it is recorded")
	}
	if c.by != "" {
		return engine.Actor{Name: c.by, Reason: c.reason}, nil
	}
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return engine.Actor{}, usageError("the operating system does not say who you are; use --by NAME")
	}
	return engine.Actor{Name: u.Username, Reason: c.reason}, nil
}

// choice selects messages.
type choice struct {
	relays         []string
	topic, key     string
	typ, class     string
	ids            []string
	since, until   string
	limit          int
	sinceN, untilN string // the names of these flags
}

// flags adds the flags that select messages. column says what since and until
// are about.
func (c *choice) flags(cmd *cobra.Command, since, until, column string) {
	c.sinceN, c.untilN = since, until
	f := cmd.Flags()
	f.StringSliceVar(&c.relays, "relay", nil, "only the table of this relay `NAME`; may be repeated")
	f.StringVar(&c.topic, "topic", "", "only this topic")
	f.StringVar(&c.key, "key", "", "only this ordering key")
	f.StringVar(&c.typ, "type", "", "only this type")
	f.StringSliceVar(&c.ids, "id", nil, "only this message; may be repeated")
	f.StringVar(&c.since, since, "", "only what was "+column+" at this `TIME` or later: 2026-01-31T12:00:00Z, or 2026-01-31 (UTC)")
	f.StringVar(&c.until, until, "", "only what was "+column+" before this `TIME`")
	f.IntVar(&c.limit, "limit", 0, "at most so many per relay; 0: all")
}

// empty reports that nothing narrows the choice.
func (c *choice) empty() bool {
	return c.topic == "" && c.key == "" && c.typ == "" && c.class == "" && len(c.ids) == 0 && c.since == "" && c.until == ""
}

func (c *choice) filter() (engine.Filter, error) {
	f := engine.Filter{Topic: c.topic, Key: c.key, Type: c.typ, ErrorClass: c.class, Limit: c.limit}
	if c.limit < 0 {
		return f, usageError("--limit is negative; 0 is all")
	}
	if c.class != "" {
		if _, err := engine.ParseClass(c.class); err != nil {
			return f, usageError("--class " + c.class + " is not known; it is transient, unknown, rejected, destination_failed or unavailable")
		}
	}
	for _, text := range c.ids {
		id, err := engine.ParseID(text)
		if err != nil {
			return f, usageError("--id " + text + " is not a message id of the form 00000000-0000-0000-0000-000000000000")
		}
		f.IDs = append(f.IDs, id)
	}
	var err error
	if f.From, err = parseTime(c.sinceN, c.since); err != nil {
		return f, err
	}
	if f.To, err = parseTime(c.untilN, c.until); err != nil {
		return f, err
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		return f, usageError(fmt.Sprintf("--%s is not before --%s", c.sinceN, c.untilN))
	}
	return f, nil
}

func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usageError("--" + flag + " " + text + " is not a time; write it as in 2026-01-31T12:00:00Z or 2026-01-31")
}

// A target is one relay's table, opened for a command.
type target struct {
	relay    *config.Relay
	db       config.Database
	operator engine.Operator
}

// each opens the tables of the named relays, all of them without names, and does
// something to one after the other.
func (p *program) each(names []string, do func(t target) error) error {
	conf, err := p.load()
	if err != nil {
		return err
	}
	chosen, err := relays(conf, names)
	if err != nil {
		return err
	}
	for _, r := range chosen {
		if err := p.one(r, do); err != nil {
			return fmt.Errorf("relay %s: %w", r.Name, err)
		}
	}
	return nil
}

func (p *program) one(r *config.Relay, do func(t target) error) error {
	db, err := r.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	operator, ok := db.Store().(engine.Operator)
	if !ok {
		return fmt.Errorf("%s has no operator's actions", db.Store().Describe().Dialect)
	}
	return do(target{r, db, operator})
}

// commandChunk is how many messages one statement of a command is about.
const commandChunk = 500

// pace changes messages by their ids, chunk by chunk, at most rate of them in a
// second; 0 is as fast as it goes. Each message is touched once, so that one that
// comes back at once is not taken again. It returns how many were changed, also
// after an error.
func pace(ctx context.Context, ids []engine.ID, rate int, do func(ids []engine.ID) (int, error)) (n int, err error) {
	size := commandChunk
	if rate > 0 {
		size = min(size, rate)
	}
	for len(ids) > 0 {
		chunk := ids[:min(size, len(ids))]
		ids = ids[len(chunk):]
		done, err := do(chunk)
		n += done
		if err != nil {
			return n, err
		}
		if rate > 0 && len(ids) > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(len(chunk)) * time.Second / time.Duration(rate)):
			}
		}
		if ctx.Err() != nil && len(ids) > 0 {
			return n, fmt.Errorf("interrupted with %d left", len(ids))
		}
	}
	return n, nil
}
