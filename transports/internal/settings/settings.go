// Package settings fills in and checks the options of transports, all of them at
// once, in the same words.
package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/outward-dev/outward/transports/internal/envelope"
)

// Checks collects what is wrong. Its zero value is ready for use. Each method that
// takes a pointer puts the default there first, where it finds a zero.
type Checks struct {
	faults []error
}

// Err is everything that is wrong, or nil.
func (c *Checks) Err() error { return errors.Join(c.faults...) }

// Add notes what is wrong; nil is nothing.
func (c *Checks) Add(faults ...error) { c.faults = append(c.faults, faults...) }

// Addf is [Checks.Add] with [fmt.Errorf].
func (c *Checks) Addf(format string, args ...any) { c.Add(fmt.Errorf(format, args...)) }

// Text takes any text.
func (c *Checks) Text(p *string, def string) {
	if *p == "" {
		*p = def
	}
}

// Source takes the CloudEvents source.
func (c *Checks) Source(p *string) {
	c.Text(p, envelope.DefaultSource)
	if _, err := url.Parse(*p); err != nil {
		c.Addf("Source %.80q is not a URI reference", *p)
	}
}

// Duration takes what is from least to most.
func (c *Checks) Duration(name string, p *time.Duration, def, least, most time.Duration) {
	if *p == 0 {
		*p = def
	}
	if *p < least || *p > most {
		c.Addf("%s is %v; it must be from %v to %v", name, *p, least, most)
	}
}

// Timeout takes what is long enough to be one.
func (c *Checks) Timeout(name string, p *time.Duration, def time.Duration) {
	c.Duration(name, p, def, time.Millisecond, time.Hour)
}

// Number takes what is from 1 to most.
func (c *Checks) Number(name string, p *int, def, most int) {
	if *p == 0 {
		*p = def
	}
	if *p < 1 || *p > most {
		c.Addf("%s is %d; it must be from 1 to %d", name, *p, most)
	}
}

// Logger takes nil too.
func (c *Checks) Logger(p **slog.Logger) {
	if *p == nil {
		*p = slog.New(slog.DiscardHandler)
	}
}
