package suite

import (
	"bytes"
	"cmp"
	"maps"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
)

// Text that has been lost, cut or changed somewhere before.
var awkward = []string{
	`quotes ' " and \ backslashes \u00e9 \n`,
	"line\nbreak\r\n\ttab",
	"é è ü ß Ω Ж 漢字 \u200fעברית\u200f العربية",
	"emoji 😀 👩\u200d👩\u200d👧 and é",
	" blanks around ",
	"{\"json\": [1, null]}",
	"%s %d $1 ? :name @p1 {{x}} --",
	"𝕏 beyond the first plane 𐍈",
}

// fill makes text of exactly n characters.
func fill(s string, n int) string {
	r := []rune(strings.Repeat(s, n))
	return string(r[:n])
}

// carries checks that c is m as it was enqueued.
func (b *bench) carries(c engine.Claimed, m engine.Message) {
	b.Helper()
	text := func(field, got, want string) {
		b.Helper()
		if got != want {
			b.Errorf("%s is %q, was %q", field, got, want)
		}
	}
	text("Topic", c.Topic, m.Topic)
	text("Key", c.Key, m.Key)
	text("Type", c.Type, m.Type)
	text("AggregateType", c.AggregateType, m.AggregateType)
	text("AggregateID", c.AggregateID, m.AggregateID)
	text("CorrelationID", c.CorrelationID, m.CorrelationID)
	text("ContentType", c.ContentType, cmp.Or(m.ContentType, engine.DefaultContentType))
	if c.Bad != nil {
		b.Errorf("Bad is set: %v", c.Bad)
	}
	if c.AggregateVersion != m.AggregateVersion {
		b.Errorf("AggregateVersion is %d, was %d", c.AggregateVersion, m.AggregateVersion)
	}
	if len(c.Headers)+len(m.Headers) > 0 && !maps.Equal(c.Headers, m.Headers) {
		b.Errorf("Headers are %q, were %q", c.Headers, m.Headers)
	}
	if !bytes.Equal(c.Payload, m.Payload) {
		b.Errorf("Payload of %d bytes came back as %d bytes, or with others in them", len(m.Payload), len(c.Payload))
	}
	if want := m.OccurredAt.Truncate(time.Microsecond); !m.OccurredAt.IsZero() && !c.OccurredAt.Equal(want) {
		b.Errorf("OccurredAt is %v, was %v", c.OccurredAt, want)
	}
}

func roundTripClauses() []Clause {
	return []Clause{
		clause("store.roundtrip.text", "Every text field comes back character for character: quotes, line breaks, every plane of Unicode, 255 characters.", func(b *bench) {
			w := b.worker()
			var msgs []engine.Message
			for _, s := range awkward {
				msgs = append(msgs, engine.Message{Topic: s, Key: "k" + s, Type: s, AggregateType: s, AggregateID: s, CorrelationID: s,
					ContentType: s, Headers: map[string]string{s: s, "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "empty": ""}})
				long := fill(s, engine.MaxNameLength)
				msgs = append(msgs, engine.Message{Topic: long, Key: long, Type: long, AggregateType: long, AggregateID: long,
					CorrelationID: long, ContentType: long})
			}
			byID := map[engine.ID]engine.Message{}
			ids := b.enqueue(msgs...)
			for i, id := range ids {
				byID[id] = msgs[i]
			}
			for _, c := range w.drained(ids) {
				b.carries(c, byID[c.ID])
			}
		}),

		clause("store.roundtrip.numbers", "The aggregate's version and the instant of occurrence come back exactly, times to the microsecond and from any zone.", func(b *bench) {
			w := b.worker()
			tokyo := time.FixedZone("Tokyo", 9*3600)
			for _, at := range []time.Time{
				time.Date(2026, 3, 29, 2, 30, 0, 123456000, time.FixedZone("", -11*3600)),
				time.Date(2026, 10, 25, 1, 30, 0, 999999999, tokyo),
				time.Date(1969, 12, 31, 23, 59, 59, 1000, time.UTC),
				time.Date(2261, 1, 1, 0, 0, 0, 1000, time.UTC),
				time.Date(1800, 5, 17, 12, 0, 0, 0, time.UTC),
			} {
				for _, version := range []int64{0, 1, 1<<63 - 1} {
					m := message("k")
					m.OccurredAt, m.AggregateVersion = at, version
					for _, c := range w.drained(b.enqueue(m)) {
						b.carries(c, m)
					}
				}
			}
		}),

		clause("store.roundtrip.payload", "A payload comes back byte for byte, of all byte values and from 1 B to 8 MiB.", func(b *bench) {
			w := b.worker()
			all := make([]byte, 256)
			for i := range all {
				all[i] = byte(i)
			}
			for _, p := range [][]byte{{0}, []byte("'\\"), all, bytes.Repeat(all, 256), bytes.Repeat(all, 8<<20/256)} {
				m := message("k")
				m.Payload = p
				ids := b.enqueue(m)
				for _, c := range w.drained(ids) {
					b.carries(c, m)
				}
			}
		}),

		clause("store.roundtrip.empty", "A payload of no bytes is not the same as none: each comes back as it was.", func(b *bench) {
			w := b.worker()
			m := message("k")
			m.Payload = nil
			none := b.enqueue(m)
			m.Payload = []byte{}
			empty := b.enqueue(m)
			cs := w.take(none[0], empty[0])
			if cs[0].Payload != nil {
				b.Errorf("a nil payload came back as %q", cs[0].Payload)
			}
			if cs[1].Payload == nil || len(cs[1].Payload) > 0 {
				b.Errorf("an empty payload came back as %#v", cs[1].Payload)
			}
		}),

		clause("store.roundtrip.defaults", "Fields left out have their stated defaults, and created-at is the database's now.", func(b *bench) {
			ids := b.enqueue(engine.Message{Topic: "orders", Type: "order.submitted.v1"})
			b.pass(time.Hour)
			more := b.enqueue(engine.Message{Topic: "orders", Type: "order.submitted.v1"})
			cs := b.worker().take(ids[0], more[0])
			for _, c := range cs {
				b.carries(c, engine.Message{Topic: "orders", Type: "order.submitted.v1"})
				if c.Payload != nil || c.Delay != 0 || c.Attempts != 0 || c.Crashes != 0 || c.Resends != 0 || c.FailingFor != 0 || c.Company != 0 {
					b.Errorf("a fresh message has payload %q, delay %v, attempts %d, crashes %d, resends %d, failing for %v, company %d",
						c.Payload, c.Delay, c.Attempts, c.Crashes, c.Resends, c.FailingFor, c.Company)
				}
				if d := c.OccurredAt.Sub(c.CreatedAt).Abs(); d > time.Second {
					b.Errorf("occurred at %v, created at %v", c.OccurredAt, c.CreatedAt)
				}
			}
			// Whether Shift moves rows back or the clock ahead, an hour lies between the two.
			if d := cs[1].CreatedAt.Sub(cs[0].CreatedAt); d < time.Hour || d > time.Hour+lease {
				b.Errorf("created at %v and, an hour later, at %v", cs[0].CreatedAt, cs[1].CreatedAt)
			}
		}),

		clause("store.roundtrip.shared", "A message that was enqueued or claimed does not share its headers and payload with the caller.", func(b *bench) {
			m := message("k")
			m.Headers = map[string]string{"h": "before"}
			m.Payload = []byte("before")
			ids := b.enqueue(m)
			m.Headers["h"], m.Payload[0] = "after", 'X'
			w := b.worker()
			for range 2 {
				c := w.take(ids...)[0]
				if c.Headers["h"] != "before" || string(c.Payload) != "before" {
					b.Fatalf("the message changed to %q %q", c.Headers, c.Payload)
				}
				c.Headers["h"], c.Payload[0] = "after", 'X'
				w.settle(release(c))
			}
		}),

		clause("store.roundtrip.keys", "Keys that differ in case, accents, width or blanks at the end are different keys.", func(b *bench) {
			w := b.worker()
			head := b.enqueue(message("a"))
			w.settle(bury(w.take(head...)[0]))
			var others []engine.ID
			for _, key := range []string{"A", "a ", " a", "á", "a\u0301", "ａ", "ª", "a\t", "a.", "aa", "\u00adа"} {
				others = append(others, b.enqueue(message(key))...)
			}
			behind := b.enqueue(message("a"))
			w.drained(others)
			b.is(Held, behind...)
		}),
	}
}
