package engine

import (
	"context"
	"iter"
	"time"
)

// A Store is what a dialect does for the relay. Durations cross this contract,
// never the caller's "now": the database's clock decides what is due and what has
// expired. Every call is all or nothing: with err != nil the effect is unknown,
// lost is nil, and repeating the call is right. All methods may be called
// concurrently.
type Store interface {
	// Claim leases messages that may go now and returns them in the order of their
	// Seq. Of a key it returns a contiguous run from its head, and no two live
	// claims hold messages of one key. No row makes it fail: one that can't be
	// decoded comes back with Bad set. An empty result means that nothing may go
	// now. The lease runs from the moment the database granted it, so the caller
	// must count it from before the call.
	Claim(ctx context.Context, req ClaimRequest) ([]Claimed, error)

	// Settle says what became of claimed messages, in one transaction, confirmations
	// first. It returns the receipts whose lease was lost: those settlements changed
	// nothing, and the caller must stop work on them. A row that is gone while its
	// token still stands was settled by this holder and is not lost. Settlements of
	// several claims may be mixed. When every message of a claim has been answered
	// its lanes are free at once.
	Settle(ctx context.Context, ss ...Settlement) (lost []Receipt, err error)

	// Extend sets the leases behind the receipts to the database's now plus lease;
	// it never adds to an old deadline. It returns the receipts that no longer hold.
	Extend(ctx context.Context, rs []Receipt, lease time.Duration) (lost []Receipt, err error)

	// Describe says what this store is. It does no I/O.
	Describe() StoreInfo
}

// StoreInfo is what differs between stores in degree.
type StoreInfo struct {
	Dialect string // "postgres", "memory", …
	Table   string // the table of messages, for logs and errors
}

// ClaimRequest asks for messages.
type ClaimRequest struct {
	Worker string        // who asks, for operators; decides nothing
	Limit  int           // at most so many messages; at least 1
	Lease  time.Duration // how long they stay ours unless extended
	// Idle says that nothing of this process is in flight, so suspects may be
	// handed out: messages that were in the hands of a relay that died.
	Idle bool
	// Paused are topics known to be paused. Their ready rows in the leased lanes are
	// moved out of the ready set, not handed out.
	Paused []string
	// PausedFor names the pause behind a paused topic, as in [Pause.Destination]; a
	// topic that is not in it is paused under its own name.
	PausedFor map[string]string
}

// Claimed is a message in the hands of a relay.
type Claimed struct {
	Message
	Receipt    Receipt
	Attempts   int           // charged attempts so far
	Crashes    int           // relays that died with this message alone in hand
	Resends    int           // times an operator asked for it again (requeue, replay)
	CreatedAt  time.Time     // the database's now when it was enqueued
	FailingFor time.Duration // since the first charged failure, by the database's clock
	// Company: 0 is no suspect; else how many messages of this claim may be in
	// flight together.
	Company int
	// Bad is set where the row could not be decoded; what could be read is in
	// Message. The relay buries it.
	Bad error
}

// A Receipt stands for one message in one claim. It is comparable and opaque to
// all but the dialect that gave it.
type Receipt struct {
	Seq   int64 // the row's insertion number
	Token ID    // the claim's
	Scope int64 // the dialect's own (lane and stamp)
}

// Suspicious is an optional ability of a Store. Suspects reports whether a claim
// since the last idle one met a suspect that it could not hand out because it was
// not Idle. Without it the relay makes itself idle now and then to ask.
type Suspicious interface {
	Suspects() bool
}

// A Notifier is an optional ability of a Store: a hint that there is new work.
type Notifier interface {
	// Listen returns a channel that receives when something was enqueued. It is a
	// hint: signals coalesce, may be missing, and may be wrong; polling is the truth.
	// The channel is closed when ctx ends. A lost connection is made again inside,
	// and one signal is given after that.
	Listen(ctx context.Context) (<-chan struct{}, error)
}

// A Purger is an optional ability of a Store.
type Purger interface {
	// Purge deletes archived rows that are older than the table's retention, at
	// most limit of them, and returns how many went. It never touches a message
	// that is not settled. While another purger is at work it returns 0.
	Purge(ctx context.Context, limit int) (int, error)
}

// A Monitor is an optional ability of a Store.
type Monitor interface {
	// Backlog counts what waits. It is bounded: nothing in it scans the whole table.
	Backlog(ctx context.Context) (Backlog, error)
}

// Backlog is what waits in a table, at one moment of the database's clock.
type Backlog struct {
	Ready, Waiting, Held, Dead Count
	Parked                     Count         // waiting for the end of a pause; also counted in Waiting
	Leased                     int           // lanes or rows under a live lease
	Oldest                     time.Duration // age, by created_at, of the oldest message not settled and not dead; 0: none
	HeldKeys                   Count         // keys that something holds back
	OldestHold                 time.Duration // age of the oldest row that holds back a key; 0: none
}

// A Count is exact up to a cap; past it, N is a floor.
type Count struct {
	N      int
	Capped bool
}

// A Checker is an optional ability of a Store or a Transport.
type Checker interface {
	// Check looks whether the promises can hold here: schema and version, numbering,
	// settings of the broker. No finding means that all is well. It changes nothing.
	Check(ctx context.Context) []Finding
}

// A Finding is one thing that Check found.
type Finding struct {
	Level Level
	Code  string // fixed word, "schema_missing"
	Text  string // what is wrong, and where
	Fix   string // what to do about it
}

// Level says what a finding means to a relay.
type Level uint8

const (
	Note    Level = iota // worth knowing
	Warning              // works, with less than was promised; the text says which promise
	Retry                // could not be checked now: out of reach
	Fatal                // a relay must not run here
)

var levelNames = [...]string{"note", "warning", "retry", "fatal"}

// String returns the level in lower case.
func (l Level) String() string { return levelNames[l] }

// An Operator is an optional ability of a Store: what people do to messages and
// destinations. Every change is recorded with its reason and who asked for it.
type Operator interface {
	// Dead yields dead messages in the order of their Seq, with no lock held between
	// two of them. It stops at the first error, which it yields.
	Dead(ctx context.Context, f Filter) iter.Seq2[Record, error]
	// Requeue makes the dead messages that match ready again, with the same id,
	// attempts and crashes at 0, resends one more, at the place in their key that
	// they had. It returns how many.
	Requeue(ctx context.Context, f Filter, by Actor) (int, error)
	// Discard moves the dead messages that match to the archive with outcome
	// discarded; what they held back goes on. It returns how many.
	Discard(ctx context.Context, f Filter, by Actor) (int, error)
	// Replay enqueues archived messages again, with the same id, as the last of
	// their key. It returns how many.
	Replay(ctx context.Context, f Filter, by Actor) (int, error)

	// Pause makes p.Destination paused, for all relays on the table, until Resume.
	// An operator's pause replaces a relay's; a relay's never replaces an operator's.
	Pause(ctx context.Context, p Pause) error
	// Resume ends the pause of a destination and reports whether there was one that
	// by may end: a relay never lifts an operator's pause. What was parked for it is
	// released in chunks by the relays on the table.
	Resume(ctx context.Context, destination string, by Actor) (bool, error)
	// Pauses lists the pauses in force.
	Pauses(ctx context.Context) ([]Pause, error)
	// TakeProbe moves the probe time of a relay's pause to the database's now plus
	// next, if it has come, and reports whether this call did: that caller probes.
	TakeProbe(ctx context.Context, destination string, next time.Duration) (bool, error)
}

// An Archive is an optional ability of a Store that is an Operator: a look at what
// Replay would take.
type Archive interface {
	// Archived yields the archived messages that match, in the order in which they
	// were settled; of one that was settled several times, the last. It stops at the
	// first error, which it yields.
	Archived(ctx context.Context, f Filter) iter.Seq2[Record, error]
}

// Actor is who did something, and why; both are recorded.
type Actor struct {
	Name   string
	Reason string
	Relay  bool // a relay by itself, not a person
}

// A Pause keeps a destination, a topic or a whole transport from being sent to.
type Pause struct {
	Destination string // as in a route; see [TransportPause] and [TopicPause]
	By          Actor
	Class       Class         // why, for a relay's pause
	ProbeAfter  time.Duration // for a relay's pause: first probe; unused in Pauses
	Since       time.Time     // filled by Pauses
	For         time.Duration // since then, by the database's clock; filled by Pauses
	ProbeIn     time.Duration // until the next probe is due; filled by Pauses
}

// TransportPause is the name under which all destinations of a transport are
// paused; name is [TransportInfo.Name].
func TransportPause(name string) string { return "transport:" + name }

// TopicPause is the name under which one topic is paused, whatever its routes.
func TopicPause(topic string) string { return "topic:" + topic }

// A Filter selects messages; the zero value selects all. Conditions are joined
// by "and".
type Filter struct {
	IDs        []ID
	Topic      string    // exact
	Key        string    // exact
	Type       string    // exact
	ErrorClass string    // last error's class
	From, To   time.Time // created_at for dead messages, settled_at for archived ones: From <= t < To
	Limit      int       // at most so many, lowest Seq first; 0: all
}

// A Record is a message at rest, as an operator sees it.
type Record struct {
	Message
	Seq            int64
	CreatedAt      time.Time
	DeadAt         time.Time
	Attempts       int
	Crashes        int
	Resends        int
	LastError      string
	LastErrorClass string
	HoldsKey       bool // later messages of its key wait for it
	// Of an archived message:
	SettledAt    time.Time
	Discarded    bool // by an operator; else it was published
	MetadataOnly bool // payload and headers were not kept, so it can't be replayed
}
