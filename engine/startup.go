package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// checkUntilReached checks the database until it has an answer. What no relay may
// work on ends with an error; what is out of reach is asked again.
func (r *Relay) checkUntilReached(ctx context.Context) error {
	for {
		retry, err := r.checkStore(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if retry == nil {
			r.storeAnswered("check")
			r.checkBrokers(ctx)
			return nil
		}
		r.storeFailed("check", retry)
		sleep(ctx, jitter(2*time.Second))
	}
}

// checkOnce is for Step, which reports also what may pass.
func (r *Relay) checkOnce(ctx context.Context) error {
	if r.checked {
		return nil
	}
	retry, err := r.checkStore(ctx)
	r.checked = err == nil && retry == nil
	return errors.Join(err, retry)
}

func (r *Relay) checkStore(ctx context.Context) (retry, fatal error) {
	if r.checker == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.opts.Lease)
	defer cancel()
	for _, f := range r.checker.Check(ctx) {
		err := fmt.Errorf("%s: %s", f.Code, f.Text)
		if f.Fix != "" {
			err = fmt.Errorf("%w; %s", err, f.Fix)
		}
		switch f.Level {
		case Fatal:
			fatal = errors.Join(fatal, err)
		case Retry:
			retry = errors.Join(retry, err)
		case Warning:
			r.log.Warn("check of the database", "code", f.Code, "text", f.Text, "fix", f.Fix)
		}
	}
	if fatal != nil {
		return nil, fmt.Errorf("engine: relay %q cannot work on %s: %w", r.opts.Name, r.store.Describe().Table, fatal)
	}
	return retry, nil
}

// checkBrokers logs what the transports find. Nothing of it ends a relay: brokers
// are mended while it runs.
func (r *Relay) checkBrokers(ctx context.Context) {
	for name, b := range r.byName {
		if b.checker == nil {
			continue
		}
		checkCtx, cancel := context.WithTimeout(ctx, r.opts.Delivery.ConfirmTimeout)
		for _, f := range b.checker.Check(checkCtx) {
			if f.Level > Note {
				r.log.Warn("check of a broker", "transport", name, "level", f.Level.String(), "code", f.Code, "text", f.Text, "fix", f.Fix)
			}
		}
		cancel()
	}
}
