package sqlite

import (
	"fmt"
	"testing"

	"github.com/outward-dev/outward/engine"
)

// TestLanes: keys of every usual shape spread over the lanes, and so do rows without
// one; rows of a key share theirs.
func TestLanes(t *testing.T) {
	const n = 1920 // 30 a lane
	for name, key := range map[string]func(i int) string{
		"none":     func(int) string { return "" },
		"numbers":  func(i int) string { return fmt.Sprint(i) },
		"padded":   func(i int) string { return fmt.Sprintf("order-%010d", i) },
		"sevens":   func(i int) string { return fmt.Sprint("customer-", 7*i) },
		"uuids":    func(int) string { return engine.NewID().String() },
		"suffixed": func(i int) string { return fmt.Sprintf("tenant/%d/cart", i) },
		"unicode":  func(i int) string { return fmt.Sprintf("客户%d号", i) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t, nil)
			var msgs []engine.Message
			for i := range n {
				msgs = append(msgs, msg("t", key(i)))
			}
			d.enqueue(msgs...)
			if used := one[int](d, `SELECT count(DISTINCT lane) FROM {messages}`); used < lanes-4 {
				t.Errorf("%d of %d lanes are used", used, lanes)
			}
			if most := one[int](d, `SELECT max(n) FROM (SELECT count(*) AS n FROM {messages} GROUP BY lane)`); most > 4*n/lanes {
				t.Errorf("one lane has %d of %d messages", most, n)
			}
			if wrong := one[int](d, `SELECT count(*) FROM {messages} WHERE lane NOT BETWEEN 0 AND 63`); wrong > 0 {
				t.Errorf("%d rows are in no lane", wrong)
			}
			d.enqueue(msgs[:100]...)
			if split := one[int](d, `SELECT count(*) FROM (SELECT ordering_key FROM {messages} WHERE ordering_key IS NOT NULL GROUP BY ordering_key HAVING count(DISTINCT lane) > 1)`); split > 0 {
				t.Errorf("%d keys are in several lanes", split)
			}
		})
	}
}
