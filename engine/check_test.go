package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outward-dev/outward/engine"
)

func TestCheckReportsEverythingAtOnceAndNoPayload(t *testing.T) {
	m := engine.Message{
		Key:              "a\x00b",
		AggregateID:      "\xff",
		CorrelationID:    strings.Repeat("é", 256),
		AggregateVersion: -1,
		Headers:          map[string]string{"": "x", strings.Repeat("h", 256): "x", "v": "\x00", "\xff": "x"},
		Payload:          []byte("the secret payload"),
		OccurredAt:       time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC),
		Delay:            -time.Second,
	}
	err := m.Check(5)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"topic is empty", "type is empty", "key contains a NUL", "aggregate id is not valid UTF-8",
		"correlation id is 256 characters long", "aggregate version is negative", "a header has an empty name", "256 bytes long",
		`value of header "v"`, `name of header "\xff"`, "payload is 18 bytes long; the limit is 5", "year 10000", "delay is negative"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s", want)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("the payload is in the error")
	}
}

func TestCheckAcceptsWhatFits(t *testing.T) {
	for name, m := range map[string]engine.Message{
		"the least": {Topic: "a", Type: "b"},
		"the most": {Topic: strings.Repeat("é", 255), Type: strings.Repeat("t", 255), Key: strings.Repeat("😀", 255),
			Headers: map[string]string{strings.Repeat("h", 255): "any text, \n too"}, Payload: make([]byte, engine.DefaultMaxPayload), Delay: engine.MaxDelay},
	} {
		if err := m.Check(0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckAllNamesTheMessage(t *testing.T) {
	id := engine.NewID()
	good := engine.Message{ID: id, Topic: "a", Type: "b"}
	registry := errors.New("unknown schema")
	err := engine.CheckAll([]engine.Message{good, {Topic: "a"}, good, {Topic: "c", Type: "b"}}, 0, func(m engine.Message) error {
		if m.Topic == "c" {
			return registry
		}
		return nil
	})
	for _, want := range []string{"message 1: type is empty", "message 2: id " + id.String(), "message 3: unknown schema"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not reported: %s (%v)", want, err)
		}
	}
	if !errors.Is(err, engine.ErrDuplicateID) || !errors.Is(err, registry) {
		t.Errorf("the causes are not wrapped: %v", err)
	}
}

func TestFaultText(t *testing.T) {
	f := engine.Fault{Class: engine.Unavailable, Code: "320", Err: errors.New("line\none\x00\xff " + strings.Repeat("é", 600))}
	text := f.Text()
	if len(text) > 510 || !utf8.ValidString(text) || strings.ContainsAny(text, "\n\x00") || !strings.HasPrefix(text, "unavailable (320): line one") {
		t.Errorf("%d bytes: %.60q", len(text), text)
	}
	for c := engine.Transient; c <= engine.Unavailable; c++ {
		if got, err := engine.ParseClass(c.String()); err != nil || got != c {
			t.Errorf("class %v is read as %v, %v", c, got, err)
		}
	}
	if _, err := engine.ParseClass("bad luck"); err == nil {
		t.Error("an unknown class was read")
	}
}
