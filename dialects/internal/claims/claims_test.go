package claims

import (
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

func receipts(token engine.ID, seqs ...int64) (rs []engine.Receipt) {
	for _, seq := range seqs {
		rs = append(rs, engine.Receipt{Seq: seq, Token: token})
	}
	return rs
}

// A claim's lanes are freed by whoever answers its last message, once.
func TestLastAnswerFrees(t *testing.T) {
	var b Book
	token := engine.NewID()
	b.Add(token, []int16{1, 2}, []int64{1, 2, 3}, time.Minute, time.Now())
	a := b.Begin(receipts(token, 1, 2))
	if len(a.Frees) != 0 || len(a.End(true)) != 0 {
		t.Error("freed before the last answer")
	}
	a = b.Begin(receipts(token, 3, 1))
	if len(a.Frees[token]) != 2 {
		t.Errorf("the last answer frees %v", a.Frees)
	}
	if len(a.End(false)) != 0 || b.Len() != 1 {
		t.Error("what was not committed is forgotten")
	}
	a = b.Begin(receipts(token, 3))
	if len(a.Frees[token]) != 2 || len(a.End(true)) != 0 || b.Len() != 0 {
		t.Errorf("the repeated last answer frees %v", a.Frees)
	}
	if a := b.Begin(receipts(token, 3)); len(a.Frees) != 0 || len(a.End(true)) != 0 {
		t.Error("freed twice")
	}
}

// Two that answer the last messages at a time: neither may free the lanes in its
// transaction, for the other's may fail; so the later one does afterwards.
func TestTwoLastAnswers(t *testing.T) {
	var b Book
	token := engine.NewID()
	b.Add(token, []int16{1}, []int64{1, 2}, time.Minute, time.Now())
	first, second := b.Begin(receipts(token, 1)), b.Begin(receipts(token, 2))
	if len(first.Frees)+len(second.Frees) != 0 {
		t.Error("freed while another answers")
	}
	if os := first.End(true); len(os) != 0 {
		t.Errorf("unfreed: %v", os)
	}
	if os := second.End(true); len(os) != 1 || os[0].Token != token || len(os[0].Lanes) != 1 {
		t.Errorf("unfreed: %v", os)
	}
}

// What is remembered is bounded: claims that nobody answers are forgotten.
func TestForgotten(t *testing.T) {
	var b Book
	start := time.Now()
	for i := range 1000 {
		b.Add(engine.NewID(), []int16{1}, []int64{1, 2}, time.Second, start.Add(time.Duration(i)*time.Second))
	}
	if n := b.Len(); n > 4 {
		t.Errorf("%d claims of one second each are remembered", n)
	}
	token := engine.NewID()
	b.Add(token, nil, []int64{1}, time.Hour, start)
	n := b.Len()
	if b.Forget(receipts(token, 1)); b.Len() != n-1 {
		t.Error("a lost claim is remembered")
	}
	b.KeepOrphan(Orphan{Until: start.Add(-time.Second)})
	b.KeepOrphan(Orphan{Until: start.Add(time.Hour)})
	if os := b.TakeOrphans(start); len(os) != 1 || len(b.TakeOrphans(start)) != 0 {
		t.Errorf("orphans: %v", os)
	}
}
