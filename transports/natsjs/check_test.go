package natsjs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/engine"
)

// Whatever in a stream's settings takes away from what an acknowledgement means is
// said, with the stream's name.
func TestCheck(t *testing.T) {
	s := dialServer(t)
	for _, c := range []struct {
		name   string
		change func(*jetstream.StreamConfig)
		level  engine.Level
		code   string
	}{
		{"memory", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, engine.Warning, "memory_storage"},
		{"max_msgs", func(c *jetstream.StreamConfig) { c.MaxMsgs = 2 }, engine.Warning, "discard_old"},
		{"max_bytes", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 }, engine.Warning, "discard_old"},
		{"per subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 }, engine.Warning, "discard_old"},
		{"per subject, discard new", func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.MaxMsgs, c.Discard = 2, 10, jetstream.DiscardNew
		}, engine.Warning, "discard_old"},
		{"max_age", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, engine.Note, "max_age"},
		{"interest", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, engine.Warning, "no_consumers"},
		{"work queue", func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, engine.Note, "no_consumers"},
		{"replicas", nil, engine.Note, "one_replica"},
		{"dedup", nil, engine.Note, "dedup_window"},
		{"message size", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }, engine.Note, "max_msg_size"},
		{"no ack", func(c *jetstream.StreamConfig) { c.NoAck = true }, engine.Warning, codeNoAck},
		{"sync", nil, engine.Note, "sync"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := s.stream("check", c.change)
			tr := newTransport(t, serverURL(t), &Options{Destinations: []string{name, name + ".a"}})
			fs := tr.Check(within(t, 10*time.Second))
			if !has(fs, c.level, c.code) {
				t.Errorf("%+v, want %v %s", fs, c.level, c.code)
			}
			named := 0
			for _, f := range fs {
				if f.Level >= engine.Retry {
					t.Errorf("%+v", f)
				}
				if f.Code == c.code && (strings.Contains(f.Text, name) || f.Code == "sync") {
					named++
				}
			}
			if want := 1; named != want && c.code != codeNoAck {
				t.Errorf("%d findings %s that name the stream, want %d: %+v", named, c.code, want, fs)
			}
		})
	}
}

// A stream that keeps everything has nothing against it but what can't be seen.
func TestCheckOfAGoodStream(t *testing.T) {
	s := dialServer(t)
	name := s.stream("good", func(c *jetstream.StreamConfig) {
		c.Discard, c.MaxMsgs, c.Duplicates = jetstream.DiscardNew, 1000, time.Hour
	})
	tr := newTransport(t, serverURL(t), nil)
	wantConfirmed(t, publish(t, within(t, 10*time.Second), tr, name, messages(1))...) // from here it is known
	for _, f := range tr.Check(within(t, 10*time.Second)) {
		if f.Level != engine.Note {
			t.Errorf("%+v", f)
		}
		switch f.Code {
		case "sync", "one_replica", "max_payload":
		default:
			t.Errorf("%+v", f)
		}
	}
}

func TestCheckOfWhatIsMissing(t *testing.T) {
	s := dialServer(t)
	missing, other := unique("missing"), s.stream("other", nil)
	tr := newTransport(t, serverURL(t), &Options{Destinations: []string{missing, other}, Stream: "ORDERS"})
	fs := tr.Check(within(t, 10*time.Second))
	if !has(fs, engine.Warning, codeNoStream) || !has(fs, engine.Warning, codeWrongStream) {
		t.Errorf("%+v", fs)
	}
}

// What a stream that discards does to messages that it has acknowledged: the reason
// for the warnings.
func TestAcknowledgedIsNotAlwaysKept(t *testing.T) {
	s := dialServer(t)
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"discard old": func(c *jetstream.StreamConfig) { c.MaxMsgs = 2 },
		"interest":    func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
	} {
		stream := s.stream("kept", change)
		tr := newTransport(t, serverURL(t), nil)
		wantConfirmed(t, publish(t, within(t, 10*time.Second), tr, stream, messages(5))...)
		if n := s.depth(stream); n > 2 {
			t.Errorf("%s: %d messages kept", name, n)
		}
	}
}

func TestFull(t *testing.T) {
	var st stream
	st.Config.Discard, st.Config.MaxMsgs, st.Config.MaxBytes, st.Config.MaxMsgsPerSubject = "new", -1, -1, -1
	st.State.Msgs, st.State.Bytes = 5, 500
	if why := st.full("a"); why != "" {
		t.Errorf("without limits: %s", why)
	}
	st.Config.MaxBytes = 500
	if why := st.full("a"); !strings.Contains(why, "max_bytes") {
		t.Errorf("bytes: %q", why)
	}
	st.Config.Discard = "old"
	if why := st.full("a"); why != "" {
		t.Errorf("a stream that discards old messages is never full: %s", why)
	}
	var a account
	a.Limits.MaxMemory, a.Limits.MaxStorage = -1, 100
	a.Storage = 100
	if a.full("memory") != "" || a.full("file") == "" {
		t.Errorf("account: %q, %q", a.full("memory"), a.full("file"))
	}
}

func TestVersionOf(t *testing.T) {
	for s, want := range map[string][2]int{"2.15.2": {2, 15}, "2.9.0-beta.1": {2, 9}, "": {0, 0}, "x.y": {0, 0}, "2": {0, 0}} {
		if major, minor := versionOf(s); major != want[0] || minor != want[1] {
			t.Errorf("%q: %d.%d", s, major, minor)
		}
	}
}

// Check gives up with its context.
func TestCheckIsBounded(t *testing.T) {
	p, via := newProxy(t)
	tr := newTransport(t, via, &Options{Destinations: []string{"outward-test-a", "outward-test-b"}})
	wantWell(t, tr, "")
	p.Deaf(true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	fs := tr.Check(ctx)
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("took %v", d)
	}
	if !has(fs, engine.Retry, codeTimeout) {
		t.Errorf("%+v", fs)
	}
}
