package suite

import (
	"fmt"
	"path"
	"runtime"
	"slices"

	"github.com/outward-dev/outward/engine"
)

// A Clause is one thing that every store must do. ID and Sentence are stable: a
// waiver names the ID, and a report shows the Sentence to the author of a dialect.
type Clause struct {
	ID       string // "store.claim.exclusive"
	Sentence string
	Source   string // file and line where it is written
	Needs    []Need // without which it can't be checked
	// Check runs the clause on an empty subject and reports to t what is wrong. It
	// may call t.Fatalf, so it runs in a goroutine that may end there.
	Check func(t T, s *StoreSubject)
}

// A Need is an optional part of a subject that a clause can't do without.
type Need struct {
	Name string
	Has  func(t T, s *StoreSubject) bool
}

// Missing returns the names of what the clause needs and s does not have. A
// clause with something missing is NOT CHECKED, which is no pass.
func (c Clause) Missing(t T, s *StoreSubject) []string {
	var names []string
	for _, n := range c.Needs {
		if !n.Has(t, s) {
			names = append(names, n.Name)
		}
	}
	return names
}

// String returns what a failure shows: the id, the sentence and the source.
func (c Clause) String() string { return fmt.Sprintf("%s: %s (%s)", c.ID, c.Sentence, c.Source) }

// Stores returns the clauses for stores, in the order in which they read best.
func Stores() []Clause {
	return slices.Concat(
		enqueueClauses(), roundTripClauses(), claimClauses(), leaseClauses(), fenceClauses(), settleClauses(),
		repeatClauses(), suspectClauses(), orderClauses(), detachClauses(), pauseClauses(), rowClauses(),
		starveClauses(), operatorClauses(), houseClauses(), concurrencyClauses(), randomClauses(),
	)
}

// clause builds a Clause and notes where it was written.
func clause(id, sentence string, check func(b *bench), needs ...Need) Clause {
	_, file, line, _ := runtime.Caller(1)
	dir, name := path.Split(file)
	return Clause{ID: id, Sentence: sentence, Needs: needs,
		Source: fmt.Sprintf("%s/%s:%d", path.Join(path.Base(path.Dir(path.Clean(dir))), path.Base(dir)), name, line),
		Check:  func(t T, s *StoreSubject) { check(newBench(t, s)) }}
}

// What clauses may need.
var (
	needPlant    = Need{"StoreSubject.Plant", func(_ T, s *StoreSubject) bool { return s.Plant != nil }}
	needSnapshot = Need{"StoreSubject.HoldSnapshot", func(_ T, s *StoreSubject) bool { return s.HoldSnapshot != nil }}
	needOperator = ability[engine.Operator]("engine.Operator")
	needArchive  = ability[engine.Archive]("engine.Archive")
	needPurger   = ability[engine.Purger]("engine.Purger")
	needMonitor  = ability[engine.Monitor]("engine.Monitor")
	needNotifier = ability[engine.Notifier]("engine.Notifier")
	needSuspects = ability[engine.Suspicious]("engine.Suspicious")
)

// ability needs the Store to implement an optional interface.
func ability[A any](name string) Need {
	return Need{name, func(t T, s *StoreSubject) bool {
		_, ok := s.Open(t).(A)
		return ok
	}}
}
