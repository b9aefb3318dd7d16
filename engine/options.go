package engine

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Options are a relay's settings. The zero value of each field is the default
// that stands beside it; nil Options are all defaults.
type Options struct {
	// Name tells relays of one process apart, in logs and metrics. Default: the
	// store's table.
	Name string
	// Worker says who holds a lease, for operators; it decides nothing. Default: the
	// name and a random suffix.
	Worker string
	// Delivery holds the settings that a route may override.
	Delivery Delivery
	// Batch is how many messages one claim takes. Default 500.
	Batch int
	// InFlight is how many batches may be in hand at once. Default 4.
	InFlight int
	// Lease is how long a claim lasts unless it is extended, which the relay does
	// at a third of it. Default 10 s.
	Lease time.Duration
	// SettleTimeout bounds one Settle or Extend. A third of Lease plus
	// SettleTimeout must be less than Lease. Default 3 s.
	SettleTimeout time.Duration
	// Unordered gives up the order of messages with the same key: they are sent side
	// by side, and a failed one holds nothing back.
	Unordered bool
	// Poll is the range of waits between claims that found nothing. Default 20 ms
	// to 1 s.
	Poll Poll
	// Drain bounds how long Run waits, when its context ends, for what was sent to
	// be confirmed and settled. One last Settle may come after it: Run ends within
	// Drain and twice SettleTimeout. Default 20 s.
	Drain time.Duration
	// PurgeEvery is how often the archive is purged. Default 1 min; negative: never.
	PurgeEvery time.Duration
	// MonitorEvery is how often the backlog is counted for Hooks.Backlog. Default
	// 10 s; it isn't counted without that hook.
	MonitorEvery time.Duration
	// Logger takes the relay's log; nil: none. Records carry ids and types, never
	// a payload.
	Logger *slog.Logger
	// Hooks are told what happens.
	Hooks Hooks
}

// Poll is the range of waits between claims that found nothing.
type Poll struct{ Min, Max time.Duration }

func (o *Options) withDefaults(info StoreInfo) Options {
	var v Options
	if o != nil {
		v = *o
	}
	v.Name = cmp.Or(v.Name, info.Table, info.Dialect)
	v.Worker = cmp.Or(v.Worker, fmt.Sprintf("%s-%08x", v.Name, rand.Uint32()))
	v.Delivery = v.Delivery.over(Delivery{
		ConfirmTimeout: 5 * time.Second,
		DetachAfter:    time.Second,
		Window:         1000,
		MaxAttempts:    25,
		MaxCrashes:     5,
		MinAge:         15 * time.Minute,
		Backoff:        Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Minute},
		OnDead:         Hold,
	})
	v.Batch = cmp.Or(v.Batch, 500)
	v.InFlight = cmp.Or(v.InFlight, 4)
	v.Lease = cmp.Or(v.Lease, 10*time.Second)
	v.SettleTimeout = cmp.Or(v.SettleTimeout, 3*time.Second)
	v.Poll.Min = cmp.Or(v.Poll.Min, 20*time.Millisecond)
	v.Poll.Max = cmp.Or(v.Poll.Max, max(time.Second, v.Poll.Min))
	v.Drain = cmp.Or(v.Drain, 20*time.Second)
	v.PurgeEvery = cmp.Or(v.PurgeEvery, time.Minute)
	v.MonitorEvery = cmp.Or(v.MonitorEvery, 10*time.Second)
	if v.Logger == nil {
		v.Logger = slog.New(slog.DiscardHandler)
	}
	return v
}

// over returns d with its zero fields taken from base.
func (d Delivery) over(base Delivery) Delivery {
	return Delivery{
		ConfirmTimeout: cmp.Or(d.ConfirmTimeout, base.ConfirmTimeout),
		DetachAfter:    cmp.Or(d.DetachAfter, base.DetachAfter),
		Window:         cmp.Or(d.Window, base.Window),
		MaxAttempts:    cmp.Or(d.MaxAttempts, base.MaxAttempts),
		MaxCrashes:     cmp.Or(d.MaxCrashes, base.MaxCrashes),
		MinAge:         cmp.Or(d.MinAge, base.MinAge),
		GiveUpAfter:    cmp.Or(d.GiveUpAfter, base.GiveUpAfter),
		Backoff:        Backoff{Min: cmp.Or(d.Backoff.Min, base.Backoff.Min), Max: cmp.Or(d.Backoff.Max, base.Backoff.Max)},
		OnDead:         cmp.Or(d.OnDead, base.OnDead),
	}
}

// check reports everything that is wrong with the settings, all at once.
func (o *Options) check() error {
	var faults []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	want(o.Batch >= 1, "batch is %d; it must be at least 1", o.Batch)
	want(o.InFlight >= 1, "in flight is %d; it must be at least 1", o.InFlight)
	want(o.Lease >= 100*time.Millisecond, "lease is %v; it must be at least 100ms", o.Lease)
	want(o.SettleTimeout > 0, "settle timeout is %v; it must be positive", o.SettleTimeout)
	want(o.Lease/3+o.SettleTimeout < o.Lease,
		"a third of lease (%v) plus settle timeout (%v) is not less than lease (%v): a lease could run out while it is being extended; "+
			"make lease longer or settle timeout shorter", o.Lease/3, o.SettleTimeout, o.Lease)
	want(o.Poll.Min > 0 && o.Poll.Max >= o.Poll.Min, "poll is %v to %v; it must rise from above zero", o.Poll.Min, o.Poll.Max)
	want(o.Drain >= 0, "drain is %v; it cannot be negative", o.Drain)
	if err := o.Delivery.check(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (d Delivery) check() error {
	var faults []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	want(d.ConfirmTimeout > 0, "confirm timeout is %v; it must be positive", d.ConfirmTimeout)
	want(d.DetachAfter > 0, "detach after is %v; it must be positive", d.DetachAfter)
	want(d.Window >= 1, "window is %d; it must be at least 1", d.Window)
	want(d.MaxAttempts >= 3, "max attempts is %d; fewer than 3 would bury messages for a passing fault", d.MaxAttempts)
	want(d.MaxCrashes >= 1, "max crashes is %d; it must be at least 1", d.MaxCrashes)
	want(d.GiveUpAfter >= 0, "give up after is %v; 0 means never", d.GiveUpAfter)
	want(d.Backoff.Min > 0 && d.Backoff.Max >= d.Backoff.Min, "backoff is %v to %v; it must rise from above zero", d.Backoff.Min, d.Backoff.Max)
	want(d.OnDead <= Pass, "on dead is %d; it is Hold or Pass", d.OnDead)
	return errors.Join(faults...)
}

// wait returns the wait before retry number n, counted from 0: exponential with
// full jitter, so that what failed together does not come back together.
func (b Backoff) wait(n int) time.Duration {
	ceiling := b.Max
	if n < 40 && b.Min<<n < b.Max && b.Min<<n > 0 {
		ceiling = b.Min << n
	}
	return time.Duration(rand.Int64N(int64(ceiling))) + 1
}
