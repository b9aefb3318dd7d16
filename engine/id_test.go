package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/outward-dev/outward/engine"
)

func TestIDText(t *testing.T) {
	const text = "0190b6c1-8d4e-7f3a-9b21-00ff10203040"
	id, err := engine.ParseID(text)
	if err != nil || id.String() != text {
		t.Fatalf("ParseID: %v, %v", id, err)
	}
	if upper, err := engine.ParseID(strings.ToUpper(text)); err != nil || upper != id {
		t.Errorf("upper case: %v, %v", upper, err)
	}
	for _, src := range []any{text, []byte(text), id[:], [16]byte(id)} {
		var got engine.ID
		if err := got.Scan(src); err != nil || got != id {
			t.Errorf("Scan(%T): %v, %v", src, got, err)
		}
	}
	if v, err := id.Value(); err != nil || v != text {
		t.Errorf("Value: %v, %v", v, err)
	}
	for _, bad := range []string{"", text[1:], text + "0", strings.ReplaceAll(text, "-", ""), "{" + text[1:35] + "}", strings.Replace(text, "0190", "g190", 1)} {
		if id, err := engine.ParseID(bad); err == nil || !id.IsZero() {
			t.Errorf("ParseID(%q): %v, %v", bad, id, err)
		}
	}
	var unread engine.ID
	if err := unread.Scan(nil); err == nil {
		t.Error("NULL was read as an id")
	}
}

func TestNewIDsSortInTheOrderInWhichTheyWereMade(t *testing.T) {
	ids := make([]engine.ID, 10_000)
	for i := range ids {
		ids[i] = engine.NewID()
	}
	if !slices.IsSortedFunc(ids, engine.ID.Compare) {
		t.Error("they don't")
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	if !slices.IsSorted(texts) {
		t.Error("their texts don't")
	}
	if len(slices.Compact(ids)) != 10_000 {
		t.Error("two are the same")
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("0190b6c1-8d4e-7f3a-9b21-00ff10203040")
	f.Add("0190b6c18d4e7f3a9b2100ff10203040")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := engine.ParseID(s)
		if err == nil && !strings.EqualFold(id.String(), s) {
			t.Errorf("%q was read as %v", s, id)
		}
	})
}
