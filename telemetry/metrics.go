package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outward-dev/outward/engine"
)

// scope is the name of the meter.
const scope = "github.com/outward-dev/outward/telemetry"

// Options are the settings of Metrics. A nil *Options means all defaults.
type Options struct {
	// MaxLabels is how many topics, and how many destinations, are told apart.
	// Default 200.
	MaxLabels int
	// Status returns how the relays do, for what hooks don't tell: which one is ill,
	// and what is paused. nil: these figures are left out.
	Status func() []engine.Status
}

// Metrics are the instruments of one process. They may be shared by its relays.
type Metrics struct {
	status func() []engine.Status
	labels *labels

	published      metric.Int64Counter
	duplicates     metric.Int64Counter
	publishTime    metric.Float64Histogram
	confirmTime    metric.Float64Histogram
	attempts       metric.Int64Histogram
	retried        metric.Int64Counter
	buried         metric.Int64Counter
	claimed        metric.Int64Counter
	claimTime      metric.Float64Histogram
	settled        metric.Int64Counter
	settleTime     metric.Float64Histogram
	lost           metric.Int64Counter
	storeFailures  metric.Int64Counter
	purged         metric.Int64Counter
	reloads        metric.Int64Counter
	reloadFailed   metric.Int64Gauge
	oldest         metric.Float64ObservableGauge
	messages       metric.Int64ObservableGauge
	capped         metric.Int64ObservableGauge
	leased         metric.Int64ObservableGauge
	heldKeys       metric.Int64ObservableGauge
	holdAge        metric.Float64ObservableGauge
	backlogAge     metric.Float64ObservableGauge
	inHand         metric.Int64ObservableGauge
	ready          metric.Int64ObservableGauge
	ill            metric.Int64ObservableGauge
	paused         metric.Int64ObservableGauge
	mu             sync.Mutex
	backlogs       map[string]backlog // by relay
	unregistration metric.Registration
}

type backlog struct {
	engine.Backlog
	taken time.Time
}

// Buckets of the histograms, in seconds: from a fast broker's answer to an outage.
var (
	shortTimes = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	longTimes  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 43200}
	tries      = []float64{0, 1, 2, 3, 5, 8, 13, 25, 50}
)

// New makes the instruments at a provider.
func New(provider metric.MeterProvider, o *Options) (*Metrics, error) {
	if o == nil {
		o = &Options{}
	}
	most := o.MaxLabels
	if most == 0 {
		most = 200
	}
	m := &Metrics{status: o.Status, labels: newLabels(most), backlogs: map[string]backlog{}}
	b := &builder{meter: provider.Meter(scope)}
	m.published = b.counter("outward.published", "publishes, by outcome")
	m.duplicates = b.counter("outward.possible.duplicates", "publishes whose outcome stayed unknown: the message is sent again")
	m.publishTime = b.histogram("outward.publish.duration", "hand-over to the transport until the outcome", shortTimes)
	m.confirmTime = b.histogram("outward.commit.confirm.duration", "from the database's created_at to the broker's confirmation, by this process's clock", longTimes)
	m.attempts = b.tally("outward.attempts", "charged attempts before a message was confirmed or died", tries)
	m.retried = b.counter("outward.retried", "messages that go again later")
	m.buried = b.counter("outward.buried", "messages that died")
	m.claimed = b.counter("outward.claimed", "messages claimed")
	m.claimTime = b.histogram("outward.claim.duration", "one claim", shortTimes)
	m.settled = b.counter("outward.settled", "outcomes written to the database")
	m.settleTime = b.histogram("outward.settle.duration", "one settle", shortTimes)
	m.lost = b.counter("outward.leases.lost", "leases that no longer held when they were used")
	m.storeFailures = b.counter("outward.store.failures", "calls of the database that failed and are repeated")
	m.purged = b.counter("outward.purged", "archived rows that were deleted")
	m.reloads = b.counter("outward.config.reloads", "reloads of the configuration")
	m.reloadFailed = b.gauge("outward.config.reload.failed", "1 when the last reload was refused")
	m.oldest = b.observedSeconds("outward.oldest.age", "age of the oldest message that is neither settled nor dead")
	m.messages = b.observed("outward.messages", "rows by state")
	m.capped = b.observed("outward.messages.capped", "1 where the number of rows is a floor")
	m.leased = b.observed("outward.leased", "lanes or rows under a live lease")
	m.heldKeys = b.observed("outward.held.keys", "keys that something holds back")
	m.holdAge = b.observedSeconds("outward.hold.age", "age of the oldest row that holds back a key")
	m.backlogAge = b.observedSeconds("outward.backlog.age", "since the figures of the table were taken")
	observed := []metric.Observable{m.oldest, m.messages, m.capped, m.leased, m.heldKeys, m.holdAge, m.backlogAge}
	if m.status != nil {
		m.inHand = b.observed("outward.in_hand", "messages claimed and not settled")
		m.ready = b.observed("outward.relay.ready", "1 when the relay has reached its table once")
		m.ill = b.observed("outward.relay.ill", "1 while the relay's database fails, a loop of it hangs, or it isn't ready")
		m.paused = b.observed("outward.paused", "1 for each pause")
		observed = append(observed, m.inHand, m.ready, m.ill, m.paused)
	}
	if err := errors.Join(b.faults...); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	var err error
	if m.unregistration, err = b.meter.RegisterCallback(m.observe, observed...); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	m.reloadFailed.Record(context.Background(), 0)
	return m, nil
}

// Close ends the observation. The hooks go on counting.
func (m *Metrics) Close() error { return m.unregistration.Unregister() }

// Forget drops what is known of a relay that is gone, so that its last figures are
// not told for ever.
func (m *Metrics) Forget(relay string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.backlogs, relay)
}

// Reloaded counts a reload of the configuration.
func (m *Metrics) Reloaded(err error) {
	result, failed := "ok", int64(0)
	if err != nil {
		result, failed = "failed", 1
	}
	ctx := context.Background()
	m.reloads.Add(ctx, 1, metric.WithAttributes(attribute.String("result", result)))
	m.reloadFailed.Record(ctx, failed)
}

// observe tells the state of the relays at the moment of a collection.
func (m *Metrics) observe(_ context.Context, o metric.Observer) error {
	m.mu.Lock()
	for relay, b := range m.backlogs {
		at := metric.WithAttributes(attribute.String("relay", relay))
		o.ObserveFloat64(m.oldest, b.Oldest.Seconds(), at)
		o.ObserveFloat64(m.holdAge, b.OldestHold.Seconds(), at)
		o.ObserveFloat64(m.backlogAge, time.Since(b.taken).Seconds(), at)
		o.ObserveInt64(m.leased, int64(b.Leased), at)
		o.ObserveInt64(m.heldKeys, int64(b.HeldKeys.N), at)
		for _, s := range []struct {
			state string
			count engine.Count
		}{{"ready", b.Ready}, {"waiting", b.Waiting}, {"parked", b.Parked}, {"held", b.Held}, {"dead", b.Dead}} {
			at := metric.WithAttributes(attribute.String("relay", relay), attribute.String("state", s.state))
			o.ObserveInt64(m.messages, int64(s.count.N), at)
			o.ObserveInt64(m.capped, one(s.count.Capped), at)
		}
	}
	m.mu.Unlock()
	if m.status == nil {
		return nil
	}
	for _, s := range m.status() {
		at := metric.WithAttributes(attribute.String("relay", s.Name))
		o.ObserveInt64(m.inHand, int64(s.InHand), at)
		o.ObserveInt64(m.ready, one(s.Ready), at)
		o.ObserveInt64(m.ill, one(!s.Ready || len(s.StoreErrors) > 0 || len(s.Stuck) > 0), at)
		for _, p := range s.Pauses {
			by := "operator"
			if p.By.Relay {
				by = "relay"
			}
			o.ObserveInt64(m.paused, 1, metric.WithAttributes(attribute.String("relay", s.Name),
				attribute.String("destination", m.labels.destination(p.Destination)), attribute.String("by", by)))
		}
	}
	return nil
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// builder makes instruments and collects what goes wrong.
type builder struct {
	meter  metric.Meter
	faults []error
}

func note[T any](b *builder, i T, err error) T {
	if err != nil {
		b.faults = append(b.faults, err)
	}
	return i
}

func (b *builder) counter(name, text string) metric.Int64Counter {
	i, err := b.meter.Int64Counter(name, metric.WithDescription(text))
	return note(b, i, err)
}

func (b *builder) gauge(name, text string) metric.Int64Gauge {
	i, err := b.meter.Int64Gauge(name, metric.WithDescription(text))
	return note(b, i, err)
}

func (b *builder) histogram(name, text string, buckets []float64) metric.Float64Histogram {
	i, err := b.meter.Float64Histogram(name, metric.WithDescription(text), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets...))
	return note(b, i, err)
}

func (b *builder) tally(name, text string, buckets []float64) metric.Int64Histogram {
	i, err := b.meter.Int64Histogram(name, metric.WithDescription(text), metric.WithExplicitBucketBoundaries(buckets...))
	return note(b, i, err)
}

func (b *builder) observed(name, text string) metric.Int64ObservableGauge {
	i, err := b.meter.Int64ObservableGauge(name, metric.WithDescription(text))
	return note(b, i, err)
}

func (b *builder) observedSeconds(name, text string) metric.Float64ObservableGauge {
	i, err := b.meter.Float64ObservableGauge(name, metric.WithDescription(text), metric.WithUnit("s"))
	return note(b, i, err)
}
