package main

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/telemetry"
)

// newMetrics makes the instruments and the page that Prometheus reads. status is
// asked at every reading.
func newMetrics(status func() []engine.Status, log *slog.Logger) (*telemetry.Metrics, http.Handler, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, nil, err
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	metrics, err := telemetry.New(provider, &telemetry.Options{Status: status})
	if err != nil {
		return nil, nil, err
	}
	return metrics, promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}), nil
}
