package matrix

import (
	"github.com/outward-dev/outward/conformance/judge"
	"github.com/outward-dev/outward/engine"
)

// evidence is what the tables say, beside what the broker had.
func (p *pair) evidence(ds []delivery) judge.Evidence {
	p.t.Helper()
	e := judge.Evidence{Rows: p.rows(), Leases: p.leases()}
	for _, d := range ds {
		e.Deliveries = append(e.Deliveries, judge.Delivery{ID: d.id, Topic: d.topic, Key: d.key, Type: d.kind, Payload: d.payload, Headers: d.headers})
	}
	return e
}

var stateNames = [...]judge.State{judge.Ready, judge.Waiting, judge.Held, judge.Dead}

// rows reads the table and its archive.
func (p *pair) rows() (rows []judge.Row) {
	p.t.Helper()
	held := map[string]bool{}
	query := func(sql string, row func(scan func(...any) error) error) {
		if err := p.outbox.query(p.t.Context(), sql, row); err != nil {
			p.t.Fatalf("%s: %v", sql, err)
		}
	}
	add := func(id string, r judge.Row) error {
		var err error
		r.ID, err = engine.ParseID(id)
		rows = append(rows, r)
		return err
	}
	query("SELECT CAST(m.message_id AS text) FROM {p}messages m JOIN {p}blocks b ON b.ordering_key = m.ordering_key AND b.seq = m.seq", func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		held[id] = true
		return err
	})
	query("SELECT CAST(message_id AS text), state, attempts, crashes, resends, lease_token IS NOT NULL FROM {p}messages", func(scan func(...any) error) error {
		var id string
		var state int
		var r judge.Row
		if err := scan(&id, &state, &r.Attempts, &r.Crashes, &r.Resends, &r.Leased); err != nil {
			return err
		}
		r.State, r.HoldsKey = stateNames[state], held[id]
		return add(id, r)
	})
	query("SELECT CAST(message_id AS text), outcome, attempts, crashes, resends FROM {p}archive", func(scan func(...any) error) error {
		var id, outcome string
		var r judge.Row
		if err := scan(&id, &outcome, &r.Attempts, &r.Crashes, &r.Resends); err != nil {
			return err
		}
		r.State = judge.State(outcome)
		return add(id, r)
	})
	return rows
}

// leases counts those that are live.
func (p *pair) leases() int {
	p.t.Helper()
	b, err := p.outbox.store.(engine.Monitor).Backlog(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return b.Leased
}
