package envelope

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

func full() engine.Outgoing {
	id, err := engine.ParseID("0198c0de-0000-7000-8000-00000000002a")
	if err != nil {
		panic(err)
	}
	return engine.Outgoing{
		Message: engine.Message{
			ID: id, Topic: "order.submitted", Key: "order-42", Type: "order.submitted.v1",
			AggregateType: "order", AggregateID: "42", AggregateVersion: 7, CorrelationID: "web-1",
			Headers:    map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
			OccurredAt: time.Date(2026, 3, 1, 13, 0, 0, 120_000, time.FixedZone("", 3600)),
		},
		CreatedAt: time.Date(2026, 3, 1, 12, 0, 1, 999_999_999, time.UTC),
		Resends:   2,
	}
}

func TestForAMQP(t *testing.T) {
	m := full()
	a := ForAMQP(&m, "/orders")
	want := AMQP{
		MessageID: "0198c0de-0000-7000-8000-00000000002a", Type: "order.submitted.v1",
		CorrelationID: "web-1", ContentType: "application/json", AppID: "/orders",
		Timestamp: time.Date(2026, 3, 1, 12, 0, 0, 120_000, time.UTC),
		Headers: map[string]any{
			"traceparent":               "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"cloudEvents:specversion":   "1.0",
			"cloudEvents:id":            "0198c0de-0000-7000-8000-00000000002a",
			"cloudEvents:source":        "/orders",
			"cloudEvents:type":          "order.submitted.v1",
			"cloudEvents:time":          "2026-03-01T12:00:00.000120Z",
			"cloudEvents:subject":       "42",
			"cloudEvents:partitionkey":  "order-42",
			"outward-topic":             "order.submitted",
			"outward-key":               "order-42",
			"outward-aggregate-type":    "order",
			"outward-aggregate-id":      "42",
			"outward-aggregate-version": "7",
			"outward-created-at":        "2026-03-01T12:00:01.999999Z",
			"outward-resends":           "2",
		},
	}
	if !maps.Equal(a.Headers, want.Headers) {
		t.Errorf("headers\n got %v\nwant %v", a.Headers, want.Headers)
	}
	a.Headers, want.Headers = nil, nil
	if a.Timestamp != want.Timestamp || a.MessageID != want.MessageID || a.Type != want.Type ||
		a.CorrelationID != want.CorrelationID || a.ContentType != want.ContentType || a.AppID != want.AppID {
		t.Errorf("properties\n got %+v\nwant %+v", a, want)
	}
}

func TestForAMQPLeavesOutWhatIsNotThere(t *testing.T) {
	m := engine.Outgoing{Message: engine.Message{ID: engine.NewID(), Topic: "t", Type: "t.v1", OccurredAt: time.Unix(-1, 0)}}
	a := ForAMQP(&m, DefaultSource)
	if !a.Timestamp.IsZero() {
		t.Errorf("timestamp is %v for an instant before 1970, which the property can't say", a.Timestamp)
	}
	if got := a.Headers["cloudEvents:time"]; got != "1969-12-31T23:59:59.000000Z" {
		t.Errorf("cloudEvents:time is %v", got)
	}
	for _, name := range []string{"cloudEvents:subject", "cloudEvents:partitionkey", Key, AggregateType, AggregateID, AggregateVersion, CreatedAt, Resends} {
		if v, ok := a.Headers[name]; ok {
			t.Errorf("header %s is %q, want none", name, v)
		}
	}
}

func TestUserHeaderNeverReplacesOurs(t *testing.T) {
	m := full()
	plain := ForAMQP(&m, "/orders")
	for name := range plain.Headers {
		if name != "traceparent" {
			m.Headers[name] = "forged"
			m.Headers[strings.ToUpper(name)] = "forged"
		}
	}
	m.Headers["ce-id"], m.Headers["ce_id"], m.Headers["cloudEvents_id"] = "forged", "forged", "forged"
	m.Headers["Outward-Anything"] = "forged"
	if got := ForAMQP(&m, "/orders"); !maps.Equal(got.Headers, plain.Headers) {
		t.Errorf("headers\n got %v\nwant %v", got.Headers, plain.Headers)
	}
}

func TestReserved(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "traceparent": false, "tracestate": false, "correlation": false, "outward": false, "x-outward-key": false,
		"outward-key": true, "OUTWARD-x": true, "cloudEvents:id": true, "cloudevents:ID": true, "ce_type": true, "ce-source": true,
		"cloudEvents:dataschema": false, "ce_tenant": false, "cloudEvents:datacontenttype": true, "ceid": false, "content-type": false,
	} {
		if got := Reserved(name); got != want {
			t.Errorf("Reserved(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestAMQPCheck(t *testing.T) {
	long := strings.Repeat("é", 128) // 128 characters, 256 bytes
	for name, spoil := range map[string]func(*engine.Outgoing){
		"type":           func(m *engine.Outgoing) { m.Type = long },
		"correlation id": func(m *engine.Outgoing) { m.CorrelationID = long },
		"content type":   func(m *engine.Outgoing) { m.ContentType = long },
		"header":         func(m *engine.Outgoing) { m.Headers = map[string]string{long: "v"} },
		"empty name":     func(m *engine.Outgoing) { m.Headers = map[string]string{"": "v"} },
		"CC":             func(m *engine.Outgoing) { m.Headers = map[string]string{"CC": "q"} },
		"BCC":            func(m *engine.Outgoing) { m.Headers = map[string]string{"BCC": "q"} },
	} {
		m := full()
		spoil(&m)
		a := ForAMQP(&m, "/orders")
		err := a.Check()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: Check says %v", name, err)
		}
	}
	m := full()
	m.Type, m.Headers = strings.Repeat("x", 255), map[string]string{strings.Repeat("é", 127): long, "cc": "q"}
	a := ForAMQP(&m, "/orders")
	if err := a.Check(); err != nil {
		t.Errorf("255 bytes: Check says %v", err)
	}
}

// The example in docs/wire-format.md is what is really sent.
func TestTheDocumentedExample(t *testing.T) {
	text, err := os.ReadFile("../../../docs/wire-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(text), "\nheaders:\n")
	if !found {
		t.Fatal("docs/wire-format.md has no example")
	}
	documented := map[string]any{}
	for line := range strings.Lines(example) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			break
		}
		documented[name] = strings.TrimSpace(value)
	}
	m := full()
	m.Resends, m.CreatedAt = 0, time.Date(2026, 3, 1, 12, 0, 0, 731_822_000, time.UTC)
	if got := ForAMQP(&m, "/orders").Headers; !maps.Equal(got, documented) {
		t.Errorf("headers\n         sent %v\nin the page %v", got, documented)
	}
}

func TestFormatTime(t *testing.T) {
	east := time.FixedZone("east", 5*3600+1800)
	for _, at := range []time.Time{
		{}, time.Unix(0, 0), time.Date(2026, 2, 3, 4, 5, 6, 7_008_999, east), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Date(2024, 2, 29, 23, 59, 59, 999_000, east),
	} {
		if got, want := FormatTime(at), at.UTC().Format(TimeFormat); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
