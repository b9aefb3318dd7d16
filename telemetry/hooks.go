package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outward-dev/outward/engine"
)

// Hooks returns the hooks of the relay of that name.
func (m *Metrics) Hooks(relay string) engine.Hooks {
	r := &relayMetrics{Metrics: m, relay: attribute.String("relay", relay)}
	r.own = metric.WithAttributeSet(attribute.NewSet(r.relay))
	return engine.Hooks{
		Claimed:     r.claim,
		Published:   r.publish,
		Settled:     r.settle,
		Retried:     r.retry,
		Buried:      r.bury,
		Lost:        r.lose,
		StoreFailed: r.storeFailed,
		Backlog:     r.backlog,
		Purged:      r.purge,
	}
}

type relayMetrics struct {
	*Metrics
	relay attribute.KeyValue
	own   metric.MeasurementOption
}

func (r *relayMetrics) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, r.relay)...))
}

func (r *relayMetrics) claim(n int, took time.Duration) {
	ctx := context.Background()
	if n > 0 {
		r.claimed.Add(ctx, int64(n), r.own)
	}
	r.claimTime.Record(ctx, took.Seconds(), r.own)
}

func (r *relayMetrics) publish(m engine.Outgoing, destination string, res engine.Result, took time.Duration) {
	ctx := context.Background()
	to := attribute.String("destination", r.labels.destination(destination))
	at := r.with(to)
	outcome := "confirmed"
	switch {
	case res.Fault != nil:
		outcome = res.Fault.Class.String()
	case res.Duplicate:
		outcome = "duplicate"
	}
	r.published.Add(ctx, 1, r.with(to, attribute.String("topic", r.labels.topic(m.Topic)), attribute.String("outcome", outcome)))
	r.publishTime.Record(ctx, took.Seconds(), at)
	if res.Fault == nil {
		r.confirmTime.Record(ctx, max(time.Since(m.CreatedAt), 0).Seconds(), at)
		r.attempts.Record(ctx, int64(m.Attempts), r.own)
	} else if res.Fault.Class == engine.Unknown {
		r.duplicates.Add(ctx, 1, at)
	}
}

func (r *relayMetrics) settle(n int, took time.Duration) {
	ctx := context.Background()
	r.settled.Add(ctx, int64(n), r.own)
	r.settleTime.Record(ctx, took.Seconds(), r.own)
}

func (r *relayMetrics) retry(_ engine.Claimed, f engine.Fault, charged bool) {
	r.retried.Add(context.Background(), 1, r.with(attribute.String("class", f.Class.String()), attribute.Bool("charged", charged)))
}

func (r *relayMetrics) bury(c engine.Claimed, f engine.Fault) {
	ctx := context.Background()
	r.buried.Add(ctx, 1, r.with(attribute.String("class", f.Class.String())))
	r.attempts.Record(ctx, int64(c.Attempts), r.own)
}

func (r *relayMetrics) lose(n int, operation string) {
	r.lost.Add(context.Background(), int64(n), r.with(attribute.String("operation", operation)))
}

func (r *relayMetrics) storeFailed(operation string, _ error) {
	r.storeFailures.Add(context.Background(), 1, r.with(attribute.String("operation", operation)))
}

func (r *relayMetrics) backlog(b engine.Backlog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlogs[r.relay.Value.AsString()] = backlog{b, time.Now()}
}

func (r *relayMetrics) purge(n int, _ time.Duration) {
	r.purged.Add(context.Background(), int64(n), r.own)
}
