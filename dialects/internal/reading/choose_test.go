package reading

import (
	"slices"
	"testing"

	"github.com/outward-dev/outward/engine"
)

// row is one of a key, with the smallest entry of that key.
func row(seq int64, key string, low int64) Row {
	return Row{Claimed: engine.Claimed{Message: engine.Message{Key: key, Topic: "t"}, Receipt: engine.Receipt{Seq: seq}}, Low: low, Size: 10}
}

func TestChoose(t *testing.T) {
	type result struct {
		batch, later, parked, behind []int64
		suspects                     bool
	}
	with := func(r Row, change func(*Row)) Row {
		change(&r)
		return r
	}
	suspect := func(r Row, company int) Row { return with(r, func(r *Row) { r.Company = company }) }
	for name, tt := range map[string]struct {
		req  engine.ClaimRequest
		rows []Row
		want result
	}{
		"a run": {engine.ClaimRequest{Limit: 9}, []Row{row(1, "k", -1), row(2, "k", -1), row(3, "", -1)}, result{batch: []int64{1, 2, 3}}},
		"the limit cuts, and every key behind it": {engine.ClaimRequest{Limit: 2}, []Row{row(1, "a", -1), row(2, "b", -1), row(3, "a", -1), row(4, "", -1)},
			result{batch: []int64{1, 2}}},
		"not due holds nothing back": {engine.ClaimRequest{Limit: 9}, []Row{with(row(1, "k", -1), func(r *Row) { r.Later = true }), row(2, "k", -1)},
			result{batch: []int64{2}, later: []int64{1}}},
		"behind an entry": {engine.ClaimRequest{Limit: 9}, []Row{row(5, "k", 3), row(6, "k", 3), row(7, "j", -1)},
			result{batch: []int64{7}, behind: []int64{5, 6}}},
		"a drain marker holds back and is not held": {engine.ClaimRequest{Limit: 9}, []Row{row(5, "k", 0)}, result{}},
		"a head that failed goes alone":             {engine.ClaimRequest{Limit: 9}, []Row{row(5, "k", 5), row(6, "j", -1)}, result{batch: []int64{5, 6}}},
		"a paused topic is parked, and closes its key": {engine.ClaimRequest{Limit: 9, Paused: []string{"p"}},
			[]Row{with(row(1, "k", -1), func(r *Row) { r.Topic = "p" }), row(2, "k", -1), row(3, "j", -1)},
			result{batch: []int64{3}, parked: []int64{1}}},
		"a suspect waits for idleness, and its key": {engine.ClaimRequest{Limit: 9}, []Row{suspect(row(1, "k", -1), 4), row(2, "k", -1), row(3, "", -1)},
			result{batch: []int64{3}, suspects: true}},
		"a suspect limits its company": {engine.ClaimRequest{Limit: 9, Idle: true}, []Row{suspect(row(1, "", -1), 2), row(2, "", -1), row(3, "", -1)},
			result{batch: []int64{1, 2}}},
		"a suspect that the batch is too large for": {engine.ClaimRequest{Limit: 9, Idle: true}, []Row{row(1, "", -1), row(2, "", -1), suspect(row(3, "", -1), 2), row(4, "", -1)},
			result{batch: []int64{1, 2}}},
		"payloads cut, and one that is too large goes alone": {engine.ClaimRequest{Limit: 9},
			[]Row{with(row(1, "", -1), func(r *Row) { r.Size = 1000 }), row(2, "", -1)}, result{batch: []int64{1}}},
	} {
		t.Run(name, func(t *testing.T) {
			token := engine.NewID()
			c := Choose(tt.rows, &tt.req, token, 100)
			seqs := func(rows []*Row) (seqs []int64) {
				for _, r := range rows {
					seqs = append(seqs, r.Receipt.Seq)
				}
				return seqs
			}
			if !slices.Equal(seqs(c.Batch), tt.want.batch) || !slices.Equal(c.Later, tt.want.later) || !slices.Equal(c.Parked, tt.want.parked) ||
				!slices.Equal(seqs(c.Behind), tt.want.behind) || c.Suspects != tt.want.suspects {
				t.Errorf("batch %v, later %v, parked %v, behind %v, suspects %v; want %+v", seqs(c.Batch), c.Later, c.Parked, seqs(c.Behind), c.Suspects, tt.want)
			}
			for _, got := range c.Claimed() {
				if got.Receipt.Token != token {
					t.Errorf("the receipt %v has no token", got.Receipt)
				}
			}
		})
	}
}

func TestLanesOf(t *testing.T) {
	rs := []engine.Receipt{{Scope: Scope(5, 1)}, {Scope: Scope(2, 9)}, {Scope: Scope(5, 2)}, {Scope: Scope(64, 1)}, {Scope: Scope(-1, 1)}}
	if got := LanesOf(64, len(rs), func(i int) engine.Receipt { return rs[i] }); !slices.Equal(got, []int16{2, 5}) {
		t.Errorf("lanes %v", got)
	}
}
