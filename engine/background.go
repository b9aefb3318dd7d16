package engine

import (
	"context"
	"time"
)

// purgeChunk is how many archived rows go in one transaction.
const purgeChunk = 5000

// listenLoop turns the store's hints into wake-ups.
func (r *Relay) listenLoop(ctx context.Context) {
	if r.notifier == nil {
		return
	}
	for ctx.Err() == nil {
		hints, err := r.notifier.Listen(ctx)
		if err != nil {
			r.log.Warn("no hints from the database; polling goes on", "error", err)
			sleep(ctx, jitter(10*time.Second))
			continue
		}
		for range hints {
			r.Wake()
		}
		sleep(ctx, time.Second) // a store whose hints end at once must not be asked all the time
	}
}

// purgeLoop deletes what the archive has kept long enough, and rests after each
// chunk for as long as it took, so that it never takes more than half of what the
// database can do.
func (r *Relay) purgeLoop(ctx context.Context) {
	if r.purger == nil || r.opts.PurgeEvery < 0 {
		return
	}
	for {
		sleep(ctx, jitter(r.opts.PurgeEvery))
		for ctx.Err() == nil {
			began := time.Now()
			n, err := r.purger.Purge(ctx, purgeChunk)
			took := time.Since(began)
			if err != nil {
				if ctx.Err() == nil {
					r.storeFailed("purge", err)
				}
				break
			}
			r.storeAnswered("purge")
			if n == 0 {
				break
			}
			if f := r.opts.Hooks.Purged; f != nil {
				f(n, took)
			}
			sleep(ctx, took)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// monitorLoop counts the backlog for those who asked.
func (r *Relay) monitorLoop(ctx context.Context) {
	if r.monitor == nil || r.opts.Hooks.Backlog == nil || r.opts.MonitorEvery <= 0 {
		return
	}
	for ctx.Err() == nil {
		countCtx, cancel := context.WithTimeout(ctx, r.opts.MonitorEvery)
		backlog, err := r.monitor.Backlog(countCtx)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.storeFailed("backlog", err)
		default:
			r.storeAnswered("backlog")
			r.opts.Hooks.Backlog(backlog)
		}
		sleep(ctx, r.opts.MonitorEvery)
	}
}
