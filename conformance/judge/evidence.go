package judge

import (
	"time"

	"github.com/outward-dev/outward/engine"
)

// Evidence is what a test saw. Whatever is left out is not judged.
type Evidence struct {
	// Deliveries are what the broker took, each time that it took it, in its order:
	// the queue's content as it lies there, not as several consumers got it.
	Deliveries []Delivery
	// Rows are what the table and its archive have, in any order. Without them only
	// the deliveries speak.
	Rows []Row
	// Leases is how many are live, of lanes and of rows, as in [engine.Backlog].
	Leases int
	// Interim says that the relays are not done, or were just killed: what is in the
	// table may stay there, leases may be live, and a transaction whose fate is
	// unknown may be half on its way. What is lost, invented, changed, out of order,
	// charged or sent too often is so at any time.
	Interim bool
	// Incidents are what happened to relays, servers and connections, and explains
	// that messages come again.
	Incidents []Incident
	// Connections and Goroutines as they were before the relays began and are after
	// they ended.
	Connections, Goroutines Change
}

// A Delivery is a message as the broker has it.
type Delivery struct {
	ID      string // as it stands there
	Topic   string
	Key     string
	Type    string
	Payload []byte
	// Headers holds what the message's producer gave along, and may hold more; nil:
	// not looked at. Names that Outward keeps for itself are never sent, so a test
	// does not use them.
	Headers map[string]string
}

// A State is where a row stands.
type State string

// The states of a row in the table, and the two ways to be in the archive.
const (
	Ready     State = "ready"
	Waiting   State = "waiting"
	Held      State = "held"
	Dead      State = "dead"
	Published State = "published"
	Discarded State = "discarded"
)

// A Row is what the table or the archive has of a message.
type Row struct {
	ID       engine.ID
	State    State
	Attempts int
	Crashes  int
	Resends  int  // each explains one delivery more
	Leased   bool // by itself: it was slow and left its lane
	HoldsKey bool // dead, and the later ones of its key wait
}

func (r Row) settled() bool { return r.State == Published || r.State == Discarded }

// An Incident is something that happened, on purpose or as was seen, after which
// messages may come again: a relay that was killed, an answer of the broker that
// was lost, a settlement that came too late. It explains at most one repeat of a
// message, and of those only that were in flight: claimed, and the broker may have
// had them before.
type Incident struct {
	What  string // "relay killed", "connection cut"
	Relay string
	At    time.Time
	// InFlight is how many messages were in flight. It is not read where IDs are
	// given.
	InFlight int
	// IDs are the messages that were in flight, where they are known; then no other
	// may come again for it. One that is there twice may come again twice.
	IDs []engine.ID
	// Culprit is the message that is known to have killed the relay; then no other
	// may be counted a crash for it.
	Culprit engine.ID
}

// mayCount reports whether a message that is itself well may have been counted a
// crash for the incident: it was, or may have been, alone in hand.
func (i *Incident) mayCount(id engine.ID) bool {
	if !i.Culprit.IsZero() {
		return i.Culprit == id
	}
	return len(i.IDs) == 0 && i.InFlight > 0 || len(i.IDs) == 1 && i.IDs[0] == id
}

// A Change is a number before and after; the zero value was not counted.
type Change struct{ Before, After int }

func (c Change) grew() int { return max(c.After-c.Before, 0) }
