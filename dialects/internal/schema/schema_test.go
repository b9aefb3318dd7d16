package schema_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outward-dev/outward/dialects/internal/schema"
	"github.com/outward-dev/outward/engine"
)

// Settings that are known are asked for again after half a minute, by one of those
// who need them, and what can't be read or used is not kept.
func TestKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k schema.Known
		asked := 0
		have, failure := schema.Settings{Version: 1, MinClient: 1}, error(nil)
		read := func(context.Context) (schema.Settings, error) { asked++; return have, failure }
		current := func() (schema.Settings, error) { return k.Current(t.Context(), "t", read) }

		failure = errors.New("away")
		if _, err := current(); !errors.Is(err, failure) {
			t.Errorf("%v; want %v", err, failure)
		}
		failure = nil
		for range 3 {
			if got, err := current(); err != nil || got.Version != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if asked != 2 {
			t.Errorf("asked %d times; once in vain and once is right", asked)
		}
		have.Version = 2
		time.Sleep(31 * time.Second)
		if got, err := current(); err != nil || got.Version != 2 {
			t.Errorf("after half a minute: %+v, %v", got, err)
		}
		time.Sleep(31 * time.Second)
		slow := make(chan struct{})
		done := make(chan schema.Settings)
		go func() {
			got, _ := k.Current(t.Context(), "t", func(context.Context) (schema.Settings, error) { <-slow; return have, nil })
			done <- got
		}()
		synctest.Wait()
		if got, err := k.Current(t.Context(), "t", func(context.Context) (schema.Settings, error) { t.Error("a second one asks"); return have, nil }); err != nil || got.Version != 2 {
			t.Errorf("beside one who asks: %+v, %v", got, err)
		}
		close(slow)
		<-done
		time.Sleep(31 * time.Second)
		have.MinClient = schema.Version + 1
		if _, err := current(); !errors.Is(err, schema.ErrVersion) {
			t.Errorf("a schema that needs a newer client: %v", err)
		}
	})
}

func TestCheck(t *testing.T) {
	keep := schema.Default
	other := schema.Retention{Discarded: time.Hour}
	for _, c := range []struct {
		name  string
		have  schema.Settings
		err   error
		codes string
		stop  bool
	}{
		{"fine", schema.Settings{Version: schema.Version, MinClient: 1, Retention: keep}, nil, "", false},
		{"older", schema.Settings{Version: 1, MinClient: 1, Retention: keep}, nil, "schema_older:note", false},
		{"other retention", schema.Settings{Version: schema.Version, Retention: other}, nil, "retention:fatal", false},
		{"too new", schema.Settings{Version: 9, MinClient: 9}, nil, "schema_version:fatal", true},
		{"too old", schema.Settings{}, nil, "schema_version:fatal", true},
		{"missing", schema.Settings{}, schema.ErrNone, "schema_missing:fatal", true},
		{"failed", schema.Settings{}, errors.New("away"), "failed:retry", true},
	} {
		stop := false
		found := schema.Findings(func(add schema.Adder) bool {
			stop = schema.Check(add, c.have, c.err, &keep, "t", func(err error) { add(engine.Retry, "failed", "", "%v", err) })
			return stop
		})
		var codes []string
		for _, f := range found {
			codes = append(codes, f.Code+":"+strings.ToLower(f.Level.String()))
		}
		if got := strings.Join(codes, " "); got != c.codes || stop != c.stop {
			t.Errorf("%s: %q, stop %v; want %q, %v", c.name, got, stop, c.codes, c.stop)
		}
	}
}

// Each step is asked for by the version that was found, also when another migration
// did it meanwhile; a dry run asks once.
func TestRun(t *testing.T) {
	ms := schema.Migrations([]schema.Step{{Name: "a", MinClient: 1, SQL: "A {x};"}, {Name: "b", MinClient: 1, SQL: "B;"}, {Name: "c", MinClient: 2, SQL: "C;"}},
		strings.NewReplacer("{x}", "filled", "{schema_}", "s").Replace, schema.Default, func(us int64) string { return "us" })
	if len(ms) != 3 || !strings.HasPrefix(ms[0].SQL, "A filled;\nINSERT INTO s") || !strings.Contains(ms[2].SQL, "UPDATE s SET version = 3, min_client = 2;") {
		t.Fatalf("%+v", ms)
	}
	version := 1
	r, err := schema.Run(ms, false, func(ms []schema.Migration, dry bool) (int, error) {
		found := version
		version = min(version+1, len(ms))
		return found, nil
	})
	if err != nil || r.From != 1 || r.To != 3 || len(r.Applied) != 2 || r.Applied[0].Name != "b" {
		t.Errorf("%+v, %v", r, err)
	}
	calls := 0
	r, err = schema.Run(ms, true, func([]schema.Migration, bool) (int, error) { calls++; return 0, nil })
	if err != nil || r.To != 3 || len(r.Applied) != 3 || calls != 1 {
		t.Errorf("dry: %+v, %v, %d calls", r, err, calls)
	}
	failure := errors.New("full")
	version = 0
	r, err = schema.Run(ms, false, func([]schema.Migration, bool) (int, error) {
		if version == 1 {
			return 1, failure
		}
		version++
		return 0, nil
	})
	if !errors.Is(err, failure) || len(r.Applied) != 1 || r.To != 1 {
		t.Errorf("after an error: %+v, %v", r, err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ prefix, inbox, want string }{
		{"outbox_", "inbox_", ""},
		{"a", "A", "would have the same names"},
		{"1a", "b", "not beginning with a digit"},
		{"a-b", "b", "letters, digits and underscores only"},
		{strings.Repeat("a", 33), "b", "32 is the limit"},
		{"", "b", "letters"},
	} {
		err := schema.CheckPrefixes(c.prefix, c.inbox)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q: %v; want %q", c.prefix, c.inbox, err, c.want)
		}
	}
	r := schema.Names("o_", "i_", func(n string) string { return "<" + n + ">" }, "{now}", "NOW")
	if got := r.Replace("{messages} {schema_} {inbox} {p} {ip} {now}"); got != "<o_messages> <o_schema> <i_messages> o_ i_ NOW" {
		t.Error(got)
	}
}
