package envelope

import (
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outward-dev/outward/engine"
)

// plain takes the values out of their slices.
func plain(t *testing.T, headers map[string][]string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for name, values := range headers {
		if len(values) != 1 {
			t.Errorf("header %s has %d values", name, len(values))
		}
		got[name] = strings.Join(values, ",")
	}
	return got
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if g, ok := got[name]; !ok || g != value {
			t.Errorf("header %s is %q (there: %v), want %q", name, g, ok, value)
		}
	}
	for name, value := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("header %s: %q should not be there", name, value)
		}
	}
}

func TestForNATS(t *testing.T) {
	m := full()
	m.ContentType = "text/plain; charset=utf-8"
	m.Headers["note"] = " ends in blanks\r\n "
	n := ForNATS(&m, "/orders")
	same(t, plain(t, n.Headers), map[string]string{
		"traceparent":               "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"note":                      "%20ends%20in%20blanks%0D%0A%20",
		"ce-specversion":            "1.0",
		"ce-id":                     "0198c0de-0000-7000-8000-00000000002a",
		"ce-source":                 "/orders",
		"ce-type":                   "order.submitted.v1",
		"ce-time":                   "2026-03-01T12:00:00.000120Z",
		"ce-subject":                "42",
		"ce-partitionkey":           "order-42",
		"ce-datacontenttype":        "text/plain;%20charset=utf-8",
		"outward-topic":             "order.submitted",
		"outward-key":               "order-42",
		"outward-aggregate-type":    "order",
		"outward-aggregate-id":      "42",
		"outward-aggregate-version": "7",
		"outward-correlation-id":    "web-1",
		"outward-created-at":        "2026-03-01T12:00:01.999999Z",
		"outward-resends":           "2",
		"Nats-Msg-Id":               "0198c0de-0000-7000-8000-00000000002a/2",
	})
	if err := n.Check(); err != nil {
		t.Error(err)
	}
	size := len("NATS/1.0\r\n\r\n")
	for name, value := range plain(t, n.Headers) {
		size += len(name + ": " + value + "\r\n")
	}
	if n.Size() != size {
		t.Errorf("Size is %d, want %d", n.Size(), size)
	}
}

// An id that was asked for again is another one to the dedup window and the same
// to every reader.
func TestNATSDedupID(t *testing.T) {
	m := full()
	id := m.ID.String()
	for resends, want := range map[int]string{0: id, 1: id + "/1", 12: id + "/12"} {
		m.Resends = resends
		n := ForNATS(&m, "")
		if got := n.Headers[NATSMsgID][0]; got != want {
			t.Errorf("resends %d: %s is %q, want %q", resends, NATSMsgID, got, want)
		}
		if got := n.Headers["ce-id"][0]; got != id {
			t.Errorf("resends %d: ce-id is %q", resends, got)
		}
	}
}

func TestNATSUserHeaderNeverReplacesOurs(t *testing.T) {
	m := full()
	want := plain(t, ForNATS(&m, "/orders").Headers)
	for name := range want {
		if name != "traceparent" {
			m.Headers[name] = "forged"
			m.Headers[strings.ToUpper(name)] = "forged"
		}
	}
	for _, name := range []string{"Nats-Rollup", "nats-ttl", "NATS-EXPECTED-STREAM", "Nats-", "Status", "status", "Content-Type", "content-type", "ce_id", "cloudEvents:id"} {
		m.Headers[name] = "forged"
	}
	same(t, plain(t, ForNATS(&m, "/orders").Headers), want)
}

func TestReservedNATS(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "traceparent": false, "nats": false, "natsy-x": false, "x-status": false, "statuses": false,
		"nats-x": true, "Nats-Msg-Id": true, "STATUS": true, "CONTENT-type": true, "ce-id": true, "ce-tenant": false,
	} {
		if got := ReservedNATS(name); got != want {
			t.Errorf("ReservedNATS(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestNATSCheck(t *testing.T) {
	for name, ok := range map[string]bool{
		"": false, "a b": false, "a:b": false, "ä": false, "a\r\nb": false, "a\x00": false, "a\x7f": false, "(a)": false,
		"a": true, "X-Y_z.1~!": true,
	} {
		m := full()
		m.Headers = map[string]string{name: "v"}
		n := ForNATS(&m, "/orders")
		if err := n.Check(); (err == nil) != ok {
			t.Errorf("%q: Check says %v", name, err)
		}
	}
}

func TestNATSDecode(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "a%20b": "a b", "%c3%A9": "é", "%41": "A", "Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀",
	} {
		if got, err := NATSDecode(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"%", "a%2", "%zz", "%C0%A0", "%ff", "%+1"} {
		if got, err := NATSDecode(in); err == nil {
			t.Errorf("%q: %q, want an error", in, got)
		}
	}
}

func FuzzNATSEncode(f *testing.F) {
	for _, s := range []string{"", "plain", " a ", "\r\n", "100%", "😀", "\"q\"", "a\x00b", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := NATSEncode(s)
		for i := range len(e) {
			if e[i] <= ' ' || e[i] >= 0x7f || e[i] == '"' {
				t.Fatalf("%q is encoded as %q", s, e)
			}
		}
		d, err := NATSDecode(e)
		if utf8.ValidString(s) && (err != nil || d != s) {
			t.Fatalf("%q is encoded as %q and decoded as %q, %v", s, e, d, err)
		}
		if !utf8.ValidString(s) && err == nil {
			t.Fatalf("%q was decoded from bytes that are no text", d)
		}
	})
}

// The example for NATS in docs/wire-format.md is what is really sent.
func TestTheDocumentedNATSExample(t *testing.T) {
	text, err := os.ReadFile("../../../docs/wire-format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(text), "\nNATS/1.0\n")
	if !found {
		t.Fatal("docs/wire-format.md has no example for NATS")
	}
	documented := map[string]string{}
	for line := range strings.Lines(example) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			break
		}
		documented[name] = value
	}
	m := full()
	m.Resends, m.CreatedAt = 0, time.Date(2026, 3, 1, 12, 0, 0, 731_822_000, time.UTC)
	m.Headers["note"] = "50 % of 2 €"
	n := ForNATS(&m, "/orders")
	same(t, plain(t, n.Headers), documented)
	for name, value := range documented {
		if d, err := NATSDecode(value); err != nil || name == "note" && d != "50 % of 2 €" {
			t.Errorf("%s: %q, %v", name, d, err)
		}
	}
}

func BenchmarkForNATS(b *testing.B) {
	m := full()
	b.ReportAllocs()
	for b.Loop() {
		n := ForNATS(&m, engine.DefaultContentType)
		if n.Size() == 0 {
			b.Fatal("nothing")
		}
	}
}
