package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// check says what must hold and whether it does. It returns how much is wrong.
func check(ctx context.Context, say func(string, ...any), shop *shop, warehouse *warehouse, all []stored, killed string) (wrong int) {
	verdict := func(ok bool, format string, args ...any) {
		word := "   ok     "
		if !ok {
			word = "   WRONG  "
			wrong++
		}
		say(word+format, args...)
	}
	count := func(query string, args ...any) int {
		n, err := shop.count(ctx, query, args...)
		if err != nil {
			verdict(false, "%v", err)
		}
		return n
	}
	committed := count(`SELECT count(*) FROM orders`)
	verdict(committed == len(orders)-1 && count(`SELECT count(*) FROM orders WHERE number = ?`, refused) == 0,
		"%d orders were committed, and the one that was rolled back is not there", committed)

	byID := map[string][]stored{}
	for _, m := range all {
		byID[m.id] = append(byID[m.id], m)
	}
	missing, foreign := 0, 0
	for id := range shop.sent {
		if len(byID[id]) == 0 {
			missing++
		}
	}
	for id := range byID {
		if o, ok := shop.sent[id]; !ok || o.Number == refused {
			foreign++
		}
	}
	verdict(missing == 0, "each of their %d messages is in the stream (%d missing)", len(shop.sent), missing)
	verdict(foreign == 0, "and no other (%d that nobody committed)", foreign)

	twice := byID[killed]
	verdict(len(twice) == 2 && len(all) == len(byID)+1,
		"the stream has %d messages with %d ids: only the one that was in the relay's hands came again", len(all), len(byID))
	if len(twice) == 2 {
		apart := twice[1].storedAt.Sub(twice[0].storedAt)
		verdict(apart > dedupWindow && twice[0].payload == twice[1].payload,
			"  with the same id and the same content, %.1f s later: the stream, which looks back %v, did not recognise it", apart.Seconds(), dedupWindow)
	}
	verdict(inOrder(all, shop), "for each customer the orders first arrived in their order")
	left, archived := count(waiting), count(published)
	verdict(left == 0 && archived == len(shop.sent), "the outbox is empty (%d), and its archive has %d published messages", left, archived)
	dead := count(`SELECT count(*) FROM outbox_messages WHERE state = 3`)
	charged := count(`SELECT count(*) FROM outbox_archive WHERE attempts > 0`)
	verdict(dead == 0 && charged == 0, "no message is dead (%d), and none was charged for the kill (%d)", dead, charged)

	repeats := warehouse.repeated()
	verdict(slices.Equal(repeats, []string{killed}), "the warehouse's inbox recognised %d repeat: the same message", len(repeats))
	shipped, cents, err := warehouse.shipped(ctx)
	want := 0
	for _, o := range shop.sent {
		if o.Number != refused {
			want += o.Cents
		}
	}
	switch {
	case err != nil:
		verdict(false, "%v", err)
	default:
		verdict(len(shipped) == len(orders)-1 && len(slices.Compact(slices.Clone(shipped))) == len(shipped) && cents == want,
			"each order was shipped once: %s; worth %.2f of %.2f", join(shipped), float64(cents)/100, float64(want)/100)
	}
	return wrong
}

// inOrder looks at the first time that each message arrived.
func inOrder(all []stored, shop *shop) bool {
	last, seen := map[string]int{}, map[string]bool{}
	for _, m := range all {
		o := shop.sent[m.id]
		if seen[m.id] {
			continue
		}
		seen[m.id] = true
		if m.key != o.Customer || o.Number <= last[m.key] {
			return false
		}
		last[m.key] = o.Number
	}
	return true
}

func (w *warehouse) repeated() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.repeats)
}

// shipped lists the numbers of the shipped orders, and what they are worth.
func (w *warehouse) shipped(ctx context.Context) (numbers []int, cents int, err error) {
	rows, err := w.db.QueryContext(ctx, `SELECT order_number, cents FROM shipments ORDER BY order_number`)
	if err != nil {
		return nil, 0, fmt.Errorf("warehouse: %w", err)
	}
	defer rows.Close() //nolint:errcheck // its error is in rows.Err
	for rows.Next() {
		var n, c int
		if err := rows.Scan(&n, &c); err != nil {
			return nil, 0, fmt.Errorf("warehouse: %w", err)
		}
		numbers, cents = append(numbers, n), cents+c
	}
	return numbers, cents, rows.Err()
}

func join(numbers []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}
