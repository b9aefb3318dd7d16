package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// ownersSQL locks lanes, in one order, and says who has them. It comes first in every
// transaction that answers for something, and nothing that is decided from other rows
// stands in the statement that takes the lock: it would be decided before the wait.
const ownersSQL = `
SELECT l.lane, l.token, l.handed_total = 0 FROM {lanes} l ` + byKey + ` WHERE l.lane IN (?) ORDER BY l.lane FOR UPDATE`

// standingSQL reads, and locks, the rows of a settlement as they stand.
const standingSQL = `
SELECT m.seq, m.state, m.stamp, m.lease_token FROM {messages} m ` + byKey + ` WHERE m.seq IN (?) ORDER BY m.seq FOR UPDATE`

// publishSQL deletes what was published; fileSQL comes before it, if published
// messages are kept.
const publishSQL = `DELETE m FROM {messages} m ` + byKey + ` WHERE m.seq IN (?)`

// archived are the columns that the archive takes from a message as they are.
const archived = `seq, message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id, content_type,
       occurred_at, created_at, attempts, crashes, resends, first_failed_at, last_attempt_at, dead_at, last_error, last_error_class`

func fileSQL(content bool) string {
	columns := "NULL, NULL, NULL, 0"
	if content {
		columns = "headers, payload, payload_text, 1"
	}
	return `
INSERT INTO {archive} (` + archived + `,
       headers, payload, payload_text, content, outcome, settled_by, reason)
SELECT ` + archived + `,
       ` + columns + `, 'published', CASE WHEN m.state = 0 THEN (SELECT l.worker FROM {lanes} l WHERE l.lane = m.lane) ELSE '' END, ''
  FROM {messages} m ` + byKey + ` WHERE m.seq IN (?) ORDER BY m.seq`
}

// When a row is due after it was settled.
const (
	dueKept    = 0
	dueAfter   = 1
	dueForever = 2
	dueNow     = 3
)

// settleSQL is what becomes of rows that were not published, which standingSQL has
// found to be the claim's. No column is read that another assignment sets: in an
// UPDATE of two tables they may be made in any order.
const settleSQL = `
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
         seq BIGINT PATH '$.seq', state INT PATH '$.state', due INT PATH '$.due', after BIGINT PATH '$.after', charge INT PATH '$.charge',
         failed INT PATH '$.failed', dead INT PATH '$.dead', token VARCHAR(32) PATH '$.token',
         pause VARCHAR(600) CHARACTER SET utf8mb4 PATH '$.pause', error TEXT CHARACTER SET utf8mb4 PATH '$.error',
         class VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.class')) v
  STRAIGHT_JOIN {messages} m ` + byKey + ` ON m.seq = v.seq
   SET m.state = v.state,
       m.available_at = CASE v.due WHEN 1 THEN {now} + INTERVAL v.after MICROSECOND WHEN 2 THEN ` + forever + ` WHEN 3 THEN {now} ELSE m.available_at END,
       m.lease_token = UNHEX(v.token),
       m.paused_for = v.pause,
       m.stamp = m.stamp + 1,
       m.company = CASE WHEN v.failed THEN 0 ELSE m.company END,
       m.attempts = m.attempts + v.charge,
       m.first_failed_at = CASE WHEN v.charge THEN COALESCE(m.first_failed_at, {now}) ELSE m.first_failed_at END,
       m.last_attempt_at = CASE WHEN v.failed THEN {now} ELSE m.last_attempt_at END,
       m.last_error = CASE WHEN v.failed THEN v.error ELSE m.last_error END,
       m.last_error_class = CASE WHEN v.failed THEN v.class ELSE m.last_error_class END,
       m.dead_at = CASE WHEN v.dead THEN {now} ELSE m.dead_at END`

// Settle implements [engine.Store].
func (s *Store) Settle(ctx context.Context, ss ...engine.Settlement) (lost []engine.Receipt, err error) {
	if len(ss) == 0 {
		return nil, nil
	}
	have, err := s.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("mysql: settle: %w", err)
	}
	rs := make([]engine.Receipt, len(ss))
	for i := range ss {
		rs[i] = ss[i].Receipt
	}
	answer := s.book.Begin(rs)
	st := &settling{store: s, ss: ss, freed: answer.Frees}
	switch {
	case have.Retention.Published <= 0:
	case have.Retention.Metadata:
		st.file = s.q.fileMeta
	default:
		st.file = s.q.file
	}
	err = s.write(ctx, st.run)
	for _, o := range answer.End(err == nil) {
		s.freeNow(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("mysql: settle: %w", err)
	}
	return st.lost(), nil
}

// settling is one call of Settle.
type settling struct {
	store *Store
	ss    []engine.Settlement
	freed map[engine.ID][]int16
	file  string // files what was published; empty: nothing is kept

	owners owners
	mine   map[int64]bool // rows that were this claim's although the lane isn't
}

// owners are the tokens of lanes.
type owners struct {
	token [lanes]engine.ID
	freed [lanes]bool
}

// standing reports whether r's lane still has its claim's token.
func (o *owners) standing(r engine.Receipt) bool {
	lane := reading.LaneOf(r)
	return lane >= 0 && lane < lanes && !r.Token.IsZero() && o.token[lane] == r.Token
}

// owners locks lanes and says who has them.
func (s *Store) owners(t *tx, of []int16) (o owners, err error) {
	err = t.query("owners", s.q.owners, func(rows *sql.Rows) error {
		var lane int16
		var token []byte
		var freed bool
		if err := rows.Scan(&lane, &token, &freed); err != nil {
			return err
		}
		if lane >= 0 && lane < lanes {
			copy(o.token[lane][:], token)
			o.freed[lane] = freed
		}
		return nil
	}, of)
	return o, err
}

// A standing is a row of a settlement as it is.
type standing struct {
	state int
	stamp int32
	token engine.ID // of the claim that detached it; zero: none
}

func (s *Store) standing(t *tx, seqs []int64) (map[int64]standing, error) {
	found := make(map[int64]standing, len(seqs))
	err := t.query("standing", s.q.standing, func(rows *sql.Rows) error {
		var seq int64
		var row standing
		var token []byte
		err := rows.Scan(&seq, &row.state, &row.stamp, &token)
		copy(row.token[:], token)
		found[seq] = row
		return err
	}, seqs)
	return found, err
}

// run is the whole transaction. Confirmations come first: a later failure of the
// same key must not find its predecessor still there.
func (st *settling) run(t *tx) (err error) {
	s := st.store
	st.mine = map[int64]bool{}
	all := reading.LanesOf(lanes, len(st.ss), func(i int) engine.Receipt { return st.ss[i].Receipt })
	if st.owners, err = s.owners(t, all); err != nil {
		return err
	}
	seqs := make([]int64, len(st.ss))
	for i := range st.ss {
		seqs[i] = st.ss[i].Receipt.Seq
	}
	rows, err := s.standing(t, seqs)
	if err != nil {
		return err
	}
	b := s.newBudget()
	if err := st.publish(t, rows, b); err != nil {
		return err
	}
	if err := st.rest(t, rows, b); err != nil {
		return err
	}
	for token, ls := range st.freed {
		if _, err := t.exec("free", s.q.free, ls, token); err != nil {
			return err
		}
	}
	return nil
}

// detached reports whether row is one that r's claim has detached.
func (row standing) detachedBy(r engine.Receipt) bool {
	return row.state == 1 && !r.Token.IsZero() && row.token == r.Token
}

// publish deletes the confirmed ones. The stamp is not asked: published is published.
func (st *settling) publish(t *tx, rows map[int64]standing, b *budget) error {
	s := st.store
	var gone []int64
	for i := range st.ss {
		r := st.ss[i].Receipt
		row, found := rows[r.Seq]
		if st.ss[i].Kind != engine.Published || !found {
			continue
		}
		detached := row.detachedBy(r)
		if !detached && !(row.state == 0 && st.owners.standing(r)) {
			continue
		}
		if detached {
			st.mine[r.Seq] = true
		}
		gone = append(gone, r.Seq)
		delete(rows, r.Seq)
	}
	if len(gone) == 0 {
		return nil
	}
	if st.file != "" {
		if _, err := t.exec("file", st.file, gone); err != nil {
			return err
		}
	}
	if _, err := t.exec("publish", s.q.publish, gone); err != nil {
		return err
	}
	return s.unblock(t, gone, b)
}

// change is a row of settleSQL's JSON.
type change struct {
	Seq    int64   `json:"seq"`
	State  int     `json:"state"`
	Due    int     `json:"due"`
	After  int64   `json:"after"`
	Charge int     `json:"charge"`
	Failed int     `json:"failed"`
	Dead   int     `json:"dead"`
	Token  *string `json:"token"`
	Pause  *string `json:"pause"`
	Error  string  `json:"error"`
	Class  string  `json:"class"`
}

// rest is what was not published. The stamp must be the one that was handed out: an
// answer whose own answer was lost is repeated, and by then the row may have been
// retried, promoted, buried and requeued; hearing it twice would charge twice, or undo
// an operator's command. A detached row needs no stamp, for its token goes with the
// answer.
func (st *settling) rest(t *tx, rows map[int64]standing, b *budget) error {
	s := st.store
	var changes []change
	var enter, passed []int64
	for i := range st.ss {
		one := &st.ss[i]
		r := one.Receipt
		row, found := rows[r.Seq]
		if one.Kind == engine.Published || !found {
			continue
		}
		detached := row.detachedBy(r)
		if !detached && !(row.state == 0 && st.owners.standing(r) && row.stamp == reading.StampOf(r)) {
			continue
		}
		if detached && !st.owners.standing(r) {
			st.mine[r.Seq] = true
		}
		delete(rows, r.Seq) // a second answer about it in the same call has no effect
		c := change{Seq: r.Seq}
		switch one.Kind {
		case engine.Retried:
			c.State, c.Failed, c.Charge = 1, 1, bit(one.Charge)
			c.Due, c.After = dueAfter, writing.Microseconds(one.After)
			if one.PausedFor != "" {
				c.Due, c.Pause = dueForever, &one.PausedFor
			}
		case engine.Buried:
			c.State, c.Failed, c.Dead = 3, 1, 1
		case engine.Detached:
			token := fmt.Sprintf("%x", r.Token[:])
			c.State, c.Due, c.After, c.Token = 1, dueAfter, writing.Microseconds(one.After), &token
		default: // released
			if c.Due = dueKept; row.state == 1 {
				c.Due = dueNow
			}
		}
		if c.Failed == 1 {
			c.Error, c.Class = reading.Storable(one.Fault.Text()), one.Fault.Class.String()
		}
		changes = append(changes, c)
		switch {
		case one.Kind == engine.Released:
		case one.Kind == engine.Detached || one.HoldKey:
			enter = append(enter, r.Seq)
		default:
			passed = append(passed, r.Seq)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	doc, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	if _, err := t.exec("settle", s.q.settle, string(doc)); err != nil {
		return err
	}
	if len(enter) > 0 {
		if _, err := t.exec("enter", s.q.enter, enter); err != nil {
			return err
		}
	}
	return s.unblock(t, passed, b)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// lost are the receipts whose lane has another token by now, but for detached rows
// that still had this one. All others were settled, now or before.
func (st *settling) lost() (lost []engine.Receipt) {
	for i := range st.ss {
		if r := st.ss[i].Receipt; !st.owners.standing(r) && !st.mine[r.Seq] {
			lost = append(lost, r)
		}
	}
	return lost
}
