package matrix

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/outward-dev/outward/conformance/crash"
	"github.com/outward-dev/outward/engine"
)

// crashSpec is what a relay process is told that is to be killed. It tells its
// parent by a byte on its third file.
type crashSpec struct {
	At          crash.Boundary
	Gather      bool          // nothing is settled before everything is confirmed
	After       int           // for the rig
	Unanswered  effect        // what took effect, and was not answered; by itself only where there is no wire
	DetachAfter time.Duration // 0: never
	Hasty       bool          // its transport confirms what it has not sent
	Careless    bool          // its store settles what it hands out
	Plain       bool          // no rig; a byte for each message that the broker says it had already
}

// serve runs the relay until it is killed.
func (c *crashSpec) serve(ctx context.Context, spec relaySpec, d dialect, tr transport) error {
	parent := os.NewFile(3, "parent")
	rig := &crash.Rig{At: c.At, After: c.After, Signal: parent}
	box, err := d.open(spec.StoreAt)
	if err != nil {
		return err
	}
	store := box.store
	if hear, local := hearing[d.name]; local && c.Unanswered != "" {
		took := c.Unanswered.watch(box, crashTotal)
		var mu sync.Mutex
		store, err = hear(spec.StoreAt, func() {
			mu.Lock() // one after another, and none after the boundary
			defer mu.Unlock()
			effect, err := took(context.Background())
			switch {
			case err != nil:
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1) // the test sees that the boundary is not reached
			case effect:
				_, _ = parent.Write([]byte{'.'}) // a parent that has gone does not wait
				select {}
			}
		})
		if err != nil {
			return err
		}
	}
	broker, routes, err := tr.open(spec.BrokerAt)
	if err != nil {
		return err
	}
	opts := &engine.Options{
		Lease: spec.Lease, SettleTimeout: spec.Lease / 3,
		Delivery: engine.Delivery{ConfirmTimeout: time.Hour, DetachAfter: time.Hour},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if c.Plain {
		defer box.close()
		defer broker.Close(context.Background())
		opts.Hooks.Published = func(_ engine.Outgoing, _ string, res engine.Result, _ time.Duration) {
			if res.Duplicate {
				_, _ = parent.Write([]byte{'.'}) // the test sees that there are too few
			}
		}
		relay, err := engine.New(store, routes, opts)
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	}
	for i := range routes {
		if c.Hasty {
			routes[i].Transport = &hasty{routes[i].Transport}
		}
		routes[i].Transport = rig.Transport(routes[i].Transport)
	}
	if c.Careless {
		store = &careless{store}
	}
	if c.DetachAfter != 0 {
		opts.Delivery.DetachAfter = c.DetachAfter
	}
	relay, err := engine.New(rig.Store(store), routes, opts)
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}

// An effect is what a call of the store did, as another session sees it.
type effect string

const (
	claimed  effect = "claimed"
	settled  effect = "settled"
	extended effect = "extended"
)

// watch returns a function that tells whether it has taken effect on a table of so
// many messages that nobody has claimed yet. It is not called concurrently.
func (e effect) watch(o *outbox, total int) func(ctx context.Context) (bool, error) {
	was := ""
	return func(ctx context.Context) (took bool, err error) {
		var rows, lanes int
		var until *string
		err = o.query(ctx, "SELECT (SELECT count(*) FROM {p}messages), count(*), CAST(max(lease_until) AS text) FROM {p}lanes WHERE handed_total > 0",
			func(scan func(...any) error) error { return scan(&rows, &lanes, &until) })
		switch {
		case err != nil:
		case e == claimed:
			took = lanes > 0
		case e == settled:
			took = rows < total
		case e == extended && until != nil:
			took = was != "" && was != *until
			was = *until
		}
		return took, err
	}
}

// hearing opens stores of dialects without a wire, where a statement's answer can
// only be withheld inside the process: heard is called after each statement, before
// whoever sent it hears of it.
var hearing = map[string]func(address string, heard func()) (engine.Store, error){
	sqliteDialect.name: sqliteHearing,
}

// hasty confirms what it has not sent.
type hasty struct{ engine.Transport }

func (h *hasty) Publish(ctx context.Context, destination string, msgs []engine.Outgoing, report func(int, engine.Result)) {
	for i := range msgs {
		report(i, engine.Result{})
	}
	h.Transport.Publish(ctx, destination, msgs, func(int, engine.Result) {})
}

// careless settles what it hands out.
type careless struct{ engine.Store }

func (c *careless) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	rows, err := c.Store.Claim(ctx, req)
	if err != nil || len(rows) == 0 {
		return rows, err
	}
	var ss []engine.Settlement
	for i := range rows {
		ss = append(ss, engine.MarkPublished(rows[i].Receipt))
	}
	_, err = c.Settle(ctx, ss...)
	return rows, err
}
