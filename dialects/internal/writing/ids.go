package writing

import "github.com/outward-dev/outward/engine"

// IDs gives the messages of one transaction their ids: the same ones again, in the
// order of the calls, when the transaction has to be run again. A nil *IDs gives new
// ones. It is for one goroutine.
type IDs struct {
	list  []engine.ID
	next  int
	wrote bool
}

// Again is the source for the next run of the transaction.
func (s *IDs) Again() *IDs {
	if s == nil {
		return &IDs{}
	}
	return &IDs{list: s.list}
}

// New returns the next id.
func (s *IDs) New() engine.ID {
	if s == nil {
		return engine.NewID()
	}
	if s.next == len(s.list) {
		s.list = append(s.list, engine.NewID())
	}
	s.next++
	return s.list[s.next-1]
}

// Wrote notes that something was enqueued.
func (s *IDs) Wrote() {
	if s != nil {
		s.wrote = true
	}
}

// DidWrite reports whether something was.
func (s *IDs) DidWrite() bool { return s != nil && s.wrote }
