package judge_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance/judge"
	"github.com/outward-dev/outward/engine"
)

// A world is a run of an outbox in which all went well: messages of two keys and of
// none, committed in several transactions, one rolled back, two unknown.
type world struct {
	judge.Ledger
	judge.Evidence
	msgs map[string][]written // by fate, or "absent" and "there" of what is unknown
}

type written struct {
	id engine.ID
	engine.Message
}

func newWorld() *world {
	w := &world{msgs: map[string][]written{}}
	w.write(judge.Committed, "committed", "a", "a", "", "b")
	w.write(judge.RolledBack, "rolled back", "a", "", "b")
	w.write(judge.Unknown, "there", "a", "b")
	w.write(judge.Unknown, "absent", "a", "b")
	w.write(judge.Committed, "committed", "a", "b", "")
	for i, m := range w.delivered() {
		w.Deliveries = append(w.Deliveries, m.delivery())
		if i%2 == 0 { // the others are gone: nothing is kept of them
			w.Rows = append(w.Rows, judge.Row{ID: m.id, State: judge.Published})
		}
	}
	return w
}

// write logs one transaction with a message for each key.
func (w *world) write(f judge.Fate, as string, keys ...string) {
	var ids []engine.ID
	var msgs []engine.Message
	for i, key := range keys {
		m := engine.Message{Topic: "orders", Type: "order.v1", Key: key, Payload: fmt.Appendf(nil, "secret %s %d", as, i), Headers: map[string]string{"tenant": "7"}}
		id := engine.NewID()
		ids, msgs = append(ids, id), append(msgs, m)
		w.msgs[as] = append(w.msgs[as], written{id, m})
	}
	w.Log(f, ids, msgs)
}

func (w *world) delivered() []written {
	return slices.Concat(w.msgs["committed"][:4], w.msgs["there"], w.msgs["committed"][4:])
}

func (m written) delivery() judge.Delivery {
	return judge.Delivery{ID: m.id.String(), Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload,
		Headers: map[string]string{"tenant": "7", "outward-topic": m.Topic}}
}

// remove takes what the broker and the table have of a message out of the evidence.
func (w *world) remove(id engine.ID) {
	w.Deliveries = slices.DeleteFunc(w.Deliveries, func(d judge.Delivery) bool { return d.ID == id.String() })
	w.Rows = slices.DeleteFunc(w.Rows, func(r judge.Row) bool { return r.ID == id })
}

// set puts a row in the place of what the table and the archive have of it.
func (w *world) set(r judge.Row) {
	w.Rows = append(slices.DeleteFunc(w.Rows, func(o judge.Row) bool { return o.ID == r.ID }), r)
}

// again delivers a message once more, at the end.
func (w *world) again(m written) { w.Deliveries = append(w.Deliveries, m.delivery()) }

var planted = []struct {
	name  string
	fault func(w *world)
	want  []judge.Code
}{
	{"nothing", func(*world) {}, nil},

	{"committed and nowhere", func(w *world) { w.remove(w.msgs["committed"][2].id) }, []judge.Code{judge.Lost}},
	{"settled and never at the broker", func(w *world) {
		w.remove(w.msgs["committed"][2].id)
		w.set(judge.Row{ID: w.msgs["committed"][2].id, State: judge.Published})
	}, []judge.Code{judge.Lost}},
	{"lost, and looked at in the middle", func(w *world) { w.Interim = true; w.remove(w.msgs["committed"][2].id) }, []judge.Code{judge.Lost}},
	{"lost, and at fault", func(w *world) {
		w.Blame("poison", w.msgs["committed"][2].id)
		w.remove(w.msgs["committed"][2].id)
	}, []judge.Code{judge.Lost}},
	{"discarded by an operator", func(w *world) {
		w.remove(w.msgs["committed"][2].id)
		w.set(judge.Row{ID: w.msgs["committed"][2].id, State: judge.Discarded})
	}, nil},

	{"half of an unknown transaction", func(w *world) { w.remove(w.msgs["there"][0].id) }, []judge.Code{judge.Torn}},
	{"half of it in the table", func(w *world) { w.set(judge.Row{ID: w.msgs["absent"][0].id, State: judge.Published}) },
		[]judge.Code{judge.Lost, judge.Torn}},
	{"an unknown transaction that was not there", func(w *world) { w.remove(w.msgs["there"][0].id); w.remove(w.msgs["there"][1].id) }, nil},

	{"rolled back and delivered", func(w *world) { w.again(w.msgs["rolled back"][0]) }, []judge.Code{judge.Invented}},
	{"rolled back and delivered twice", func(w *world) { w.again(w.msgs["rolled back"][0]); w.again(w.msgs["rolled back"][0]) }, []judge.Code{judge.Invented}},
	{"rolled back and in the table", func(w *world) { w.set(judge.Row{ID: w.msgs["rolled back"][0].id, State: judge.Ready}) }, []judge.Code{judge.Invented}},
	{"an id that nobody wrote", func(w *world) { w.again(written{engine.NewID(), engine.Message{Topic: "orders"}}) }, []judge.Code{judge.Invented}},
	{"an id that is none", func(w *world) { w.Deliveries = append(w.Deliveries, judge.Delivery{ID: "x"}) }, []judge.Code{judge.Invented}},
	{"an id written otherwise", func(w *world) { w.Deliveries[0].ID = strings.ToUpper(w.Deliveries[0].ID); w.Rows = w.Rows[1:] },
		[]judge.Code{judge.Invented, judge.Lost}},
	{"a row that nobody wrote", func(w *world) { w.set(judge.Row{ID: engine.NewID(), State: judge.Published}) }, []judge.Code{judge.Invented}},

	{"another payload", func(w *world) { w.Deliveries[2].Payload = []byte("secret too") }, []judge.Code{judge.Changed}},
	{"no payload", func(w *world) { w.Deliveries[2].Payload = nil }, []judge.Code{judge.Changed}},
	{"another topic", func(w *world) { w.Deliveries[2].Topic = "order" }, []judge.Code{judge.Changed}},
	{"another key", func(w *world) { w.Deliveries[2].Key = "b" }, []judge.Code{judge.Changed}},
	{"another type", func(w *world) { w.Deliveries[2].Type = "order.v2" }, []judge.Code{judge.Changed}},
	{"a header gone", func(w *world) { w.Deliveries[2].Headers = map[string]string{} }, []judge.Code{judge.Changed}},
	{"a header changed", func(w *world) { w.Deliveries[2].Headers["tenant"] = "8" }, []judge.Code{judge.Changed}},
	{"headers not looked at", func(w *world) { w.Deliveries[2].Headers = nil }, nil},
	{"a repeat that is changed", func(w *world) {
		w.again(w.msgs["committed"][2])
		w.Deliveries[len(w.Deliveries)-1].Payload = nil
		w.Incidents = []judge.Incident{{InFlight: 1}}
	}, []judge.Code{judge.Changed}},

	{"two of a key the other way round", func(w *world) { w.Deliveries[0], w.Deliveries[1] = w.Deliveries[1], w.Deliveries[0] }, []judge.Code{judge.OutOfOrder}},
	{"an unknown one too late", func(w *world) { w.Deliveries[5], w.Deliveries[7] = w.Deliveries[7], w.Deliveries[5] }, []judge.Code{judge.OutOfOrder}},
	{"another key's come first", func(w *world) { w.Deliveries[0], w.Deliveries[3] = w.Deliveries[3], w.Deliveries[0] }, []judge.Code{judge.OutOfOrder}},
	{"two without a key the other way round", func(w *world) { w.Deliveries[2], w.Deliveries[8] = w.Deliveries[8], w.Deliveries[2] }, nil},
	{"overtaken while it waits", func(w *world) {
		w.Interim = true
		w.remove(w.msgs["committed"][0].id)
		w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Waiting})
	}, []judge.Code{judge.OutOfOrder}},
	{"dead, and holds back its key", func(w *world) {
		w.remove(w.msgs["committed"][0].id)
		w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Dead, HoldsKey: true})
	}, []judge.Code{judge.OutOfOrder, judge.DeadForNought}},
	{"the last of its key waits", func(w *world) {
		w.Interim = true
		w.remove(w.msgs["committed"][5].id)
		w.set(judge.Row{ID: w.msgs["committed"][5].id, State: judge.Waiting})
	}, nil},

	{"came again for no reason", func(w *world) { w.again(w.msgs["committed"][6]) }, []judge.Code{judge.Duplicate}},
	{"came again behind a later one for no reason", func(w *world) { w.again(w.msgs["committed"][0]) }, []judge.Code{judge.Duplicate}},
	{"came again after a crash", func(w *world) {
		w.again(w.msgs["committed"][0])
		w.again(w.msgs["committed"][1])
		w.Incidents = []judge.Incident{{What: "relay killed", Relay: "one", At: time.Now(), InFlight: 2}}
	}, nil},
	{"one more than were in flight", func(w *world) {
		for i := range 3 {
			w.again(w.msgs["committed"][i])
		}
		w.Incidents = []judge.Incident{{What: "relay killed", InFlight: 2}}
	}, []judge.Code{judge.Duplicate}},
	{"twice after one crash", func(w *world) {
		w.again(w.msgs["committed"][0])
		w.again(w.msgs["committed"][0])
		w.Incidents = []judge.Incident{{What: "relay killed", InFlight: 100}}
	}, []judge.Code{judge.Duplicate}},
	{"twice after two crashes, and others once", func(w *world) {
		w.again(w.msgs["committed"][1])
		w.again(w.msgs["committed"][2])
		w.again(w.msgs["committed"][0])
		w.again(w.msgs["committed"][0])
		w.Incidents = []judge.Incident{{InFlight: 1}, {InFlight: 3}}
	}, nil},
	{"another than the one in flight", func(w *world) {
		w.again(w.msgs["committed"][0])
		w.Incidents = []judge.Incident{{InFlight: 5, IDs: []engine.ID{w.msgs["committed"][1].id}}}
	}, []judge.Code{judge.Duplicate}},
	{"the one in flight", func(w *world) {
		w.again(w.msgs["committed"][1])
		w.Incidents = []judge.Incident{{IDs: []engine.ID{w.msgs["committed"][1].id}}}
	}, nil},
	{"replayed by an operator", func(w *world) {
		w.again(w.msgs["committed"][1])
		w.set(judge.Row{ID: w.msgs["committed"][1].id, State: judge.Published, Resends: 1})
	}, nil},

	{"an attempt", func(w *world) { w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Published, Attempts: 1}) }, []judge.Code{judge.ChargedForNought}},
	{"an attempt of one at fault", func(w *world) {
		w.Blame("poison", w.msgs["committed"][0].id)
		w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Published, Attempts: 1})
	}, nil},
	{"a crash", func(w *world) { w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Published, Crashes: 1}) }, []judge.Code{judge.ChargedForNought}},
	{"a crash of one that was alone", func(w *world) {
		w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Published, Crashes: 1})
		w.Incidents = []judge.Incident{{IDs: []engine.ID{w.msgs["committed"][0].id}}}
	}, nil},
	{"a crash of one that was not alone", func(w *world) {
		w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Published, Crashes: 1})
		w.Incidents = []judge.Incident{{IDs: []engine.ID{w.msgs["committed"][0].id, w.msgs["committed"][1].id}}}
	}, []judge.Code{judge.ChargedForNought}},
	{"a bystander's crash", func(w *world) {
		w.Blame("kills its relay", w.msgs["committed"][1].id)
		w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Published, Crashes: 1})
		w.Incidents = []judge.Incident{{InFlight: 9, Culprit: w.msgs["committed"][1].id}}
	}, []judge.Code{judge.ChargedForNought}},
	{"more crashes than there were", func(w *world) {
		w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Published, Crashes: 2})
		w.Incidents = []judge.Incident{{InFlight: 9}}
	}, []judge.Code{judge.ChargedForNought}},

	{"dead for nothing", func(w *world) {
		w.remove(w.msgs["committed"][6].id)
		w.set(judge.Row{ID: w.msgs["committed"][6].id, State: judge.Dead, Attempts: 25})
	}, []judge.Code{judge.DeadForNought}},
	{"dead, and at fault", func(w *world) {
		w.Blame("poison", w.msgs["committed"][0].id)
		w.remove(w.msgs["committed"][0].id)
		w.set(judge.Row{ID: w.msgs["committed"][0].id, State: judge.Dead, Attempts: 25})
	}, nil},

	{"still ready", func(w *world) {
		w.remove(w.msgs["committed"][6].id)
		w.set(judge.Row{ID: w.msgs["committed"][6].id, State: judge.Ready})
	}, []judge.Code{judge.Left}},
	{"delivered and still ready", func(w *world) { w.set(judge.Row{ID: w.msgs["committed"][6].id, State: judge.Ready}) }, []judge.Code{judge.Left}},
	{"still ready in the middle", func(w *world) {
		w.Interim = true
		w.remove(w.msgs["committed"][6].id)
		w.set(judge.Row{ID: w.msgs["committed"][6].id, State: judge.Ready})
	}, nil},

	{"a lease", func(w *world) { w.Leases = 1 }, []judge.Code{judge.LeaseLeft}},
	{"a lease in the middle", func(w *world) { w.Leases, w.Interim = 1, true }, nil},
	{"a row leased", func(w *world) { w.set(judge.Row{ID: w.msgs["committed"][6].id, State: judge.Waiting, Leased: true}) },
		[]judge.Code{judge.Left, judge.LeaseLeft}},
	{"a connection", func(w *world) { w.Connections = judge.Change{Before: 3, After: 4} }, []judge.Code{judge.ConnectionLeaked}},
	{"a goroutine", func(w *world) { w.Goroutines = judge.Change{Before: 30, After: 40} }, []judge.Code{judge.GoroutineLeaked}},
	{"fewer of both", func(w *world) {
		w.Connections, w.Goroutines = judge.Change{Before: 4, After: 3}, judge.Change{Before: 4, After: 3}
	}, nil},
}

// Each fault gives its finding and no other, and no finding says what was in a
// message.
func TestPlantedFaults(t *testing.T) {
	for _, tt := range planted {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.fault(w)
			v := judge.Judge(&w.Ledger, w.Evidence)
			want := slices.Sorted(slices.Values(tt.want))
			if got := codes(v); !slices.Equal(got, want) {
				t.Errorf("found %v, not %v: %v", got, want, v.Err())
			}
			if err := v.Err(); (err != nil) != (len(tt.want) > 0) || err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("as an error: %v", err)
			}
		})
	}
}

// codes gives the codes of the findings, sorted, each once per message.
func codes(v judge.Verdict) (cs []judge.Code) {
	for _, f := range v.Findings {
		cs = append(cs, f.Code)
	}
	slices.Sort(cs)
	return cs
}

func TestSummary(t *testing.T) {
	w := newWorld()
	w.again(w.msgs["committed"][0]) // late
	w.again(w.msgs["committed"][6])
	w.set(judge.Row{ID: w.msgs["committed"][1].id, State: judge.Published, Attempts: 1})
	w.Blame("oversize", w.msgs["committed"][1].id)
	w.remove(w.msgs["committed"][4].id)
	w.set(judge.Row{ID: w.msgs["committed"][4].id, State: judge.Held})
	w.remove(w.msgs["committed"][5].id)
	w.set(judge.Row{ID: w.msgs["committed"][5].id, State: judge.Dead, Crashes: 5})
	w.Incidents = []judge.Incident{{InFlight: 1}}
	got := judge.Judge(&w.Ledger, w.Evidence)
	want := judge.Summary{Committed: 7, RolledBack: 3, Unknown: 4, Delivered: 7, Repeats: 2, Explained: 1, Late: 1, Charged: 2, Dead: 1, Left: 1}
	if got.Summary != want {
		t.Errorf("%+v, not %+v", got.Summary, want)
	}
	for f, n := range map[judge.Fate]int{judge.Committed: 7, judge.RolledBack: 3, judge.Unknown: 4} {
		if got := w.Count(f); got != n {
			t.Errorf("%d %v, not %d", got, f, n)
		}
	}
}

// A message that is tried again is the same message.
func TestLogAgain(t *testing.T) {
	a, b, c := engine.NewID(), engine.NewID(), engine.NewID()
	msg := []engine.Message{{Topic: "orders", Type: "order.v1", Key: "a"}}
	var l judge.Ledger
	l.Log(judge.RolledBack, []engine.ID{a}, msg)
	l.Log(judge.Unknown, []engine.ID{b}, msg)
	l.Log(judge.Committed, []engine.ID{c}, msg)
	l.Log(judge.Committed, []engine.ID{a}, msg)
	l.Log(judge.Committed, []engine.ID{b}, msg) // it had been committed the first time
	l.Log(judge.RolledBack, []engine.ID{c}, msg)
	var e judge.Evidence
	for _, id := range []engine.ID{b, c, a} {
		e.Deliveries = append(e.Deliveries, written{id, msg[0]}.delivery())
	}
	if err := judge.Judge(&l, e).Err(); err != nil {
		t.Error(err)
	}
	slices.Reverse(e.Deliveries)
	if v := judge.Judge(&l, e); len(v.Findings) != 2 || v.Has(judge.OutOfOrder) != 2 {
		t.Errorf("the other way round: %v", v.Err())
	}
}

// A delayed message takes its place when it becomes due.
func TestDelayed(t *testing.T) {
	a, b := engine.NewID(), engine.NewID()
	first := engine.Message{Topic: "orders", Type: "order.v1", Key: "a", Delay: time.Hour}
	second := engine.Message{Topic: "orders", Type: "order.v1", Key: "a"}
	var l judge.Ledger
	l.Log(judge.Committed, []engine.ID{a, b}, []engine.Message{first, second})
	e := judge.Evidence{Deliveries: []judge.Delivery{written{b, second}.delivery(), written{a, first}.delivery()}}
	if err := judge.Judge(&l, e).Err(); err != nil {
		t.Error(err)
	}
}

func TestErrIsBounded(t *testing.T) {
	var l judge.Ledger
	for range 1000 {
		l.Log(judge.Committed, []engine.ID{engine.NewID()}, []engine.Message{{Topic: "orders", Type: "order.v1"}})
	}
	err := judge.Judge(&l, judge.Evidence{}).Err()
	if err == nil || strings.Count(err.Error(), "\n") != 6 || !strings.Contains(err.Error(), "lost: 995 more") {
		t.Errorf("%v", err)
	}
}

// A random run with crashes has no finding, and after one thing was changed it has.
func FuzzJudge(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := &world{msgs: map[string][]written{}}
		for range 2 + r.IntN(20) {
			keys := make([]string, 1+r.IntN(5))
			for i := range keys {
				keys[i] = []string{"", "a", "b", "c"}[r.IntN(4)]
			}
			switch r.IntN(6) {
			case 0:
				w.write(judge.RolledBack, "rolled back", keys...)
			case 1:
				w.write(judge.Unknown, "absent", keys...)
			case 2:
				w.write(judge.Unknown, "there", keys...)
			default:
				w.write(judge.Committed, "there", keys...)
			}
		}
		w.relay(r)
		if err := judge.Judge(&w.Ledger, w.Evidence).Err(); err != nil {
			t.Fatalf("nothing is wrong: %v", err)
		}
		if len(w.Deliveries) == 0 {
			return
		}
		want := w.plant(r)
		v := judge.Judge(&w.Ledger, w.Evidence)
		if v.Has(want) == 0 {
			t.Errorf("%s was planted, and found was %v", want, v.Err())
		}
	})
}

// relay delivers what is there, in batches of which some die after a part was sent:
// then all of the batch goes again.
func (w *world) relay(r *rand.Rand) {
	pending := w.msgs["there"]
	for len(pending) > 0 {
		batch := pending[:1+r.IntN(len(pending))]
		if r.IntN(3) == 0 {
			n := r.IntN(len(batch) + 1)
			for _, m := range batch[:n] {
				w.again(m)
			}
			i := judge.Incident{What: "relay killed", InFlight: n}
			if r.IntN(2) == 0 {
				for _, m := range batch[:n] {
					i.IDs = append(i.IDs, m.id)
				}
			}
			w.Incidents = append(w.Incidents, i)
			continue
		}
		for _, m := range batch {
			w.again(m)
			w.set(judge.Row{ID: m.id, State: judge.Published})
		}
		pending = pending[len(batch):]
	}
}

// plant changes one thing, and returns what is to be found.
func (w *world) plant(r *rand.Rand) judge.Code {
	m := w.msgs["there"][r.IntN(len(w.msgs["there"]))]
	d := &w.Deliveries[r.IntN(len(w.Deliveries))]
	switch r.IntN(6) {
	case 0:
		w.Deliveries = slices.DeleteFunc(w.Deliveries, func(d judge.Delivery) bool { return d.ID == m.id.String() })
		return judge.Lost
	case 1:
		d.Payload = append([]byte("x"), d.Payload...)
		return judge.Changed
	case 2:
		d.ID = engine.NewID().String()
		return judge.Invented
	case 3:
		w.Incidents = append(w.Incidents, judge.Incident{InFlight: len(w.Deliveries)})
		for range len(w.Incidents) + 1 {
			w.again(m)
		}
		return judge.Duplicate
	case 4:
		w.set(judge.Row{ID: m.id, State: judge.Dead})
		return judge.DeadForNought
	default:
		w.set(judge.Row{ID: m.id, State: judge.Published, Attempts: 1})
		return judge.ChargedForNought
	}
}
