package judge

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outward-dev/outward/engine"
)

// A Code names a kind of finding. Codes are stable.
type Code string

// What can be found.
const (
	Lost             Code = "lost"              // committed, and neither at the broker nor in the table
	Torn             Code = "torn"              // of one transaction some messages are there and some are not
	Invented         Code = "invented"          // nobody committed it
	Changed          Code = "changed"           // it is not as it was written
	OutOfOrder       Code = "out_of_order"      // a later message of its key came first
	Duplicate        Code = "duplicate"         // it came again, and nothing explains it
	ChargedForNought Code = "charged"           // an attempt or a crash was counted, and the message is not at fault
	DeadForNought    Code = "dead"              // dead, and not at fault
	Left             Code = "left"              // not delivered, still in the table
	LeaseLeft        Code = "lease_left"        // lanes or rows are leased, and nobody is at work
	ConnectionLeaked Code = "connection_leaked" // more connections than before
	GoroutineLeaked  Code = "goroutine_leaked"  // more goroutines than before
)

// A Finding is one promise that was not kept.
type Finding struct {
	Code Code
	ID   engine.ID // the message; zero where it is about none, or about one that nobody wrote
	Text string    // a sentence; it never has a payload
}

// String returns code and sentence.
func (f Finding) String() string { return string(f.Code) + ": " + f.Text }

// A Summary counts what was judged, for a table.
type Summary struct {
	Committed, RolledBack, Unknown int // messages, by the ledger
	Delivered                      int // messages that the broker has at least once
	Repeats                        int // deliveries beyond a message's first
	Explained                      int // of these, those that the incidents explain
	Late                           int // of the repeats, those behind a later message of their key
	Charged                        int // messages with an attempt or a crash counted, at fault or not
	Dead                           int // likewise
	Left                           int // not delivered, not dead, and still in the table
}

// A Verdict is what Judge found.
type Verdict struct {
	Summary
	Findings []Finding
}

// Has counts the findings of a code.
func (v Verdict) Has(c Code) (n int) {
	for _, f := range v.Findings {
		if f.Code == c {
			n++
		}
	}
	return n
}

// shown is how many findings of one code an error prints.
const shown = 5

// Err returns nil if nothing was found, and else an error that shows the first
// findings of each code and counts the rest.
func (v Verdict) Err() error {
	if len(v.Findings) == 0 {
		return nil
	}
	var text strings.Builder
	count := map[Code]int{}
	for _, f := range v.Findings {
		if count[f.Code]++; count[f.Code] <= shown {
			fmt.Fprintf(&text, "\n  %v", f)
		}
	}
	for _, c := range slices.Sorted(maps.Keys(count)) {
		if more := count[c] - shown; more > 0 {
			fmt.Fprintf(&text, "\n  %s: %d more", c, more)
		}
	}
	return fmt.Errorf("%d findings (%+v):%s", len(v.Findings), v.Summary, text.String())
}

// Judge compares what was written with what was seen. Nothing may be committed
// between gathering the evidence and this call. Where relays are at work meanwhile,
// the rows are to be gathered before the deliveries: a message goes from the table
// to the broker, and would else be seen in neither.
func Judge(l *Ledger, e Evidence) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &court{Evidence: e, entries: l.entries, first: map[string]int{}, count: map[string]int{}, rows: map[string][]Row{}}
	for _, r := range e.Rows {
		name := r.ID.String()
		c.rows[name] = append(c.rows[name], r)
	}
	// In the order in which they were logged, so that findings are the same each time.
	c.all = slices.SortedFunc(maps.Values(l.entries), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.tx, b.tx), cmp.Compare(a.number, b.number), a.id.Compare(b.id))
	})
	c.deliveries()
	c.presence()
	c.order()
	c.repeats()
	c.charges()
	c.leftovers()
	return c.Verdict
}

// A court is one judgement on its way.
type court struct {
	Evidence
	Verdict
	entries map[string]*entry
	all     []*entry
	rows    map[string][]Row
	first   map[string]int // where a message was first delivered
	count   map[string]int // how often it was
}

func (c *court) find(code Code, id engine.ID, format string, args ...any) {
	c.Findings = append(c.Findings, Finding{code, id, fmt.Sprintf(format, args...)})
}

// deliveries looks at each: whether somebody committed it, and as it came.
func (c *court) deliveries() {
	for i, d := range c.Deliveries {
		e := c.entries[d.ID]
		if c.count[d.ID]++; c.count[d.ID] > 1 {
			c.Repeats++
		} else {
			c.first[d.ID] = i
			switch {
			case e == nil:
				c.find(Invented, engine.ID{}, "delivery %d has the id %q, which nobody wrote", i, d.ID)
			case e.fate == RolledBack:
				c.find(Invented, e.id, "message %s was delivered, and its transaction was rolled back", e.id)
			default:
				c.Delivered++
			}
		}
		if e == nil {
			continue
		}
		if diff := e.differs(d); len(diff) > 0 {
			c.find(Changed, e.id, "message %s came with another %s (delivery %d)", e.id, strings.Join(diff, " and another "), i)
		}
	}
}

// differs names what is not as it was written.
func (e *entry) differs(d Delivery) (what []string) {
	for _, f := range []struct {
		name      string
		got, want string
	}{{"topic", d.Topic, e.msg.Topic}, {"key", d.Key, e.msg.Key}, {"type", d.Type, e.msg.Type}} {
		if f.got != f.want {
			what = append(what, f.name)
		}
	}
	if sha256.Sum256(d.Payload) != e.sum {
		what = append(what, fmt.Sprintf("payload (%d bytes, %d were written)", len(d.Payload), e.size))
	}
	if d.Headers == nil {
		return what
	}
	for _, name := range slices.Sorted(maps.Keys(e.msg.Headers)) {
		if got, has := d.Headers[name]; !has || got != e.msg.Headers[name] {
			what = append(what, fmt.Sprintf("header %q", name))
		}
	}
	return what
}

// presence looks for each message that should be somewhere, and at what is in the
// table although it should not.
func (c *court) presence() {
	present := map[int]int{} // by transaction: messages that are there
	for _, e := range c.all {
		name := e.id.String()
		if c.count[name] > 0 || len(c.rows[name]) > 0 {
			present[e.tx]++
		}
	}
	for _, e := range c.all {
		name := e.id.String()
		rows := c.rows[name]
		switch e.fate {
		case Committed:
			c.Committed++
		case RolledBack:
			c.RolledBack++
			if len(rows) > 0 && c.count[name] == 0 {
				c.find(Invented, e.id, "message %s is in the table, and its transaction was rolled back", e.id)
			}
			continue
		case Unknown:
			c.Unknown++
			if present[e.tx] == 0 {
				continue
			}
		}
		open := slices.IndexFunc(rows, func(r Row) bool { return !r.settled() && r.State != Dead })
		switch {
		case c.count[name] > 0 && open >= 0:
			if !c.Interim {
				c.find(Left, e.id, "message %s was delivered and is still in the table, %s: it would go again", e.id, rows[open].State)
			}
		case c.count[name] > 0:
		case len(rows) == 0 && e.fate == Unknown:
			if !c.Interim {
				c.find(Torn, e.id, "message %s is nowhere, and %d others of its transaction are there", e.id, present[e.tx])
			}
		case len(rows) == 0:
			c.find(Lost, e.id, "message %s was committed, was never delivered, and is not in the table", e.id)
		case has(rows, Dead), has(rows, Discarded): // an operator sees it, or saw it
		case open < 0:
			c.find(Lost, e.id, "message %s is published by the table, and the broker never had it", e.id)
		default:
			c.Left++
			if !c.Interim {
				c.find(Left, e.id, "message %s was not delivered and is still in the table, %s", e.id, rows[open].State)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.rows)) {
		if c.entries[name] == nil && c.count[name] == 0 {
			c.find(Invented, c.rows[name][0].ID, "message %s is in the table, and nobody wrote it", name)
		}
	}
}

func has(rows []Row, s State) bool {
	return slices.ContainsFunc(rows, func(r Row) bool { return r.State == s })
}

// order looks at the first deliveries of each key, and at what was overtaken and is
// not delivered yet.
func (c *court) order() {
	keys := map[string][]*entry{}
	for _, e := range c.all {
		if e.ordered() && e.fate != RolledBack {
			keys[e.msg.Key] = append(keys[e.msg.Key], e)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		es := slices.SortedFunc(slices.Values(keys[key]), func(a, b *entry) int { return cmp.Compare(a.number, b.number) })
		// From the last to the first: what came soonest of all that is later.
		var soonest *entry
		at := len(c.Deliveries)
		for _, e := range slices.Backward(es) {
			name := e.id.String()
			came, is := c.first[name]
			overtaken := is && at < came || !is && soonest != nil && c.holds(e)
			if e.blamed != "" {
				continue
			}
			if overtaken {
				c.find(OutOfOrder, e.id, "message %s is number %d of its key, and number %d, %s, was delivered before it", e.id, e.number, soonest.number, soonest.id)
			}
			if is && came < at {
				soonest, at = e, came
			}
		}
	}
	last := map[string]int{} // by key: the highest number that has come
	for i, d := range c.Deliveries {
		e := c.entries[d.ID]
		if e == nil || !e.ordered() {
			continue
		}
		if c.first[d.ID] != i && last[e.msg.Key] > e.number {
			c.Late++
		}
		last[e.msg.Key] = max(last[e.msg.Key], e.number)
	}
}

// holds reports whether a message that was not delivered holds back its key.
func (c *court) holds(e *entry) bool {
	return slices.ContainsFunc(c.rows[e.id.String()], func(r Row) bool {
		return !r.settled() && (r.State != Dead || r.HoldsKey)
	})
}

// repeats looks for the explanation of what came more than once. An incident
// explains one repeat of a message, and as many as were in flight.
func (c *court) repeats() {
	named := map[string]int{} // repeats of one message that are explained by name
	var room []int            // of the incidents that only have a number
	for _, i := range c.Incidents {
		for _, id := range i.IDs {
			named[id.String()]++
		}
		if len(i.IDs) == 0 && i.InFlight > 0 {
			room = append(room, i.InFlight)
		}
	}
	type repeated struct {
		id   string
		open int
	}
	var rest []repeated
	for name, n := range c.count {
		if e := c.entries[name]; e == nil || e.fate == RolledBack {
			continue // it should not have come at all, which is said already
		}
		again, resends := n-1, 0
		for _, r := range c.rows[name] {
			resends = max(resends, r.Resends)
		}
		explained := min(again, named[name]+resends)
		c.Explained += explained
		if again > explained {
			rest = append(rest, repeated{name, again - explained})
		}
	}
	// The most often repeated first, each from the incidents with the most room: no
	// other order explains more.
	slices.SortFunc(rest, func(a, b repeated) int {
		return cmp.Or(cmp.Compare(b.open, a.open), strings.Compare(a.id, b.id))
	})
	for _, r := range rest {
		slices.SortFunc(room, func(a, b int) int { return cmp.Compare(b, a) })
		for i := range room {
			if r.open == 0 || room[i] == 0 {
				break
			}
			r.open--
			room[i]--
			c.Explained++
		}
		if r.open == 0 {
			continue
		}
		c.find(Duplicate, c.entries[r.id].id, "message %s came %d times, and nothing explains %d of them%s", r.id, c.count[r.id], r.open, c.happened())
	}
}

// happened lists the incidents.
func (c *court) happened() string {
	var parts []string
	for _, i := range c.Incidents {
		text := cmp.Or(i.What, "incident")
		if i.Relay != "" {
			text += " (" + i.Relay + ")"
		}
		if !i.At.IsZero() {
			text += i.At.Format(" 15:04:05.000")
		}
		parts = append(parts, fmt.Sprintf("%s, %d in flight", text, cmp.Or(len(i.IDs), i.InFlight)))
		if len(parts) == shown {
			parts = append(parts, fmt.Sprintf("%d in all", len(c.Incidents)))
			break
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; what happened: " + strings.Join(parts, "; ")
}

// charges looks at attempts, crashes and deaths.
func (c *court) charges() {
	for _, e := range c.all {
		rows := c.rows[e.id.String()]
		var attempts, crashes int
		for _, r := range rows {
			attempts, crashes = max(attempts, r.Attempts), max(crashes, r.Crashes)
		}
		if attempts+crashes > 0 {
			c.Charged++
		}
		dead := has(rows, Dead)
		if dead {
			c.Dead++
		}
		if e.blamed != "" {
			continue
		}
		may := 0
		for i := range c.Incidents {
			if c.Incidents[i].mayCount(e.id) {
				may++
			}
		}
		switch {
		case dead:
			c.find(DeadForNought, e.id, "message %s is dead with %d attempts and %d crashes, and is not at fault", e.id, attempts, crashes)
		case attempts > 0:
			c.find(ChargedForNought, e.id, "message %s has %d attempts, and is not at fault", e.id, attempts)
		case crashes > may:
			c.find(ChargedForNought, e.id, "message %s is counted %d crashes, and was alone in hand in %d at most", e.id, crashes, may)
		}
	}
}

// leftovers looks at what should have ended with the relays.
func (c *court) leftovers() {
	if !c.Interim {
		leased := 0
		for _, r := range c.Rows {
			if r.Leased {
				leased++
			}
		}
		if c.Leases+leased > 0 {
			c.find(LeaseLeft, engine.ID{}, "%d leases are live, and %d rows have one of their own", c.Leases, leased)
		}
	}
	for _, l := range []struct {
		code Code
		name string
		Change
	}{{ConnectionLeaked, "connections", c.Connections}, {GoroutineLeaked, "goroutines", c.Goroutines}} {
		if l.grew() > 0 {
			c.find(l.code, engine.ID{}, "%d %s are open, %d more than before", l.After, l.name, l.grew())
		}
	}
}
