package inbox

import (
	"strings"
	"testing"

	"github.com/outward-dev/outward/engine"
)

func TestNormal(t *testing.T) {
	id := engine.NewID()
	long := strings.Repeat("é", 255)
	for _, tt := range []struct{ message, want string }{
		{id.String(), id.String()},
		{strings.ToUpper(id.String()), id.String()},
		{"order-1", "order-1"},
		{"Order-1", "Order-1"},
		{" order-1 ", " order-1 "},
		{long, long},
		{long + "e", "sha256:"},
		{"\xff\xfe", "sha256:"},
		{"a\x00b", "sha256:"},
		{"sha256:00", "sha256:"},
	} {
		k, err := Key{Consumer: "billing", Message: tt.message}.Normal()
		if err != nil || k.Consumer != "billing" {
			t.Fatalf("%.40q: %v, %v", tt.message, k, err)
		}
		if tt.want == digest {
			if !strings.HasPrefix(k.Message, digest) || len(k.Message) != len(digest)+64 {
				t.Errorf("%.40q is kept as %q, want a hash", tt.message, k.Message)
			}
			again, err := k.Normal()
			if err != nil || again.Message == k.Message {
				t.Errorf("the hash of %.40q can be sent as an id: %v, %v", tt.message, again, err)
			}
		} else if k.Message != tt.want {
			t.Errorf("%q is kept as %q, want %q", tt.message, k.Message, tt.want)
		}
	}
	a, _ := Key{Consumer: "c", Message: long + "a"}.Normal()
	b, _ := Key{Consumer: "c", Message: long + "b"}.Normal()
	if a == b {
		t.Errorf("two long ids with one beginning are one: %v", a)
	}
}

func TestNormalRefuses(t *testing.T) {
	for _, k := range []Key{{}, {Consumer: "c"}, {Message: "m"}, {Consumer: strings.Repeat("c", 256), Message: "m"}, {Consumer: "c\x00", Message: "m"}} {
		if got, err := k.Normal(); err == nil {
			t.Errorf("%.60q is kept as %v", k, got)
		}
	}
}

func TestInboxKey(t *testing.T) {
	id := engine.NewID()
	for _, tt := range []struct {
		d    Delivery
		want string
	}{
		{Delivery{MessageID: "m"}, "m"},
		{Delivery{Message: engine.Message{ID: id}}, id.String()},
		{Delivery{Message: engine.Message{ID: id}, MessageID: "m"}, "m"},
		{Delivery{}, ""},
	} {
		if got := tt.d.InboxKey("c"); got != (Key{"c", tt.want}) {
			t.Errorf("%+v has the key %v, want %q", tt.d, got, tt.want)
		}
	}
	if Fresh.String() != "fresh" || Repeat.String() != "repeat" || Outcome(0).String() != "none" {
		t.Errorf("outcomes are called %v, %v, %v", Fresh, Repeat, Outcome(0))
	}
}
