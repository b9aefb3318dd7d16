package reading

import (
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// FuzzDecode: whatever a foreign writer has put into a row, it is decoded or said
// to be bad, and never half of each.
func FuzzDecode(f *testing.F) {
	for _, h := range []string{`{}`, `{"a": "b"}`, `["a"]`, `null`, `{"a": 1}`, `{"a": null}`, ``, `{"a": {"b": []}}`} {
		f.Add(h, "text", []byte(nil), true)
	}
	f.Fuzz(func(t *testing.T, headers, text string, payload []byte, known bool) {
		m := engine.Message{Topic: "t", Type: "t"}
		var occurred *time.Time
		if known {
			occurred = &time.Time{}
		}
		err := Decode(&m, Body{Headers: &headers, Payload: payload, Text: &text, Occurred: occurred})
		switch {
		case err == nil && (payload != nil || !known):
			t.Error("a bad row was taken for a good one")
		case err == nil && len(m.Headers) == 0 && headers != "{}" && strings.TrimSpace(headers) != "{}" && !strings.HasPrefix(strings.TrimSpace(headers), "{"):
			t.Errorf("headers %q were taken for none", headers)
		case err == nil && string(m.Payload) != text:
			t.Errorf("payload %q", m.Payload)
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("the fault has several lines: %q", err)
		}
	})
}

// FuzzScope: lane and stamp survive the receipt.
func FuzzScope(f *testing.F) {
	f.Add(int16(0), int32(0))
	f.Add(int16(63), int32(1<<31-1))
	f.Fuzz(func(t *testing.T, lane int16, stamp int32) {
		r := engine.Receipt{Scope: Scope(lane, stamp)}
		if LaneOf(r) != lane || StampOf(r) != stamp {
			t.Errorf("%d %d came back as %d %d", lane, stamp, LaneOf(r), StampOf(r))
		}
	})
}

func TestHeaders(t *testing.T) {
	for text, good := range map[string]bool{`{"a": "b"}`: true, `{"a": "null"}`: true, `{}`: true,
		`{"a": null}`: false, `null`: false, `[]`: false, `"a"`: false, `{"a": 1}`: false, `{"a": {}}`: false, ``: false} {
		if h, err := headersOf(text); (err == nil) != good {
			t.Errorf("%s: %v %v", text, h, err)
		}
	}
}
