package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outward-dev/outward/dialects/internal/claims"
	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

const (
	lanesPerClaim = 8
	// chunk is how many rows one transaction moves from state to state at most: more
	// would hold the locks of their lanes for too long.
	chunk = 10_000
	// A Claim that moves rows out of the way without finding one that may go looks
	// again, for so long at most; the next one goes on where it stopped.
	maxRounding = 2 * time.Second
)

// budget is how many rows a transaction may still move.
type budget struct{ left int }

func (s *Store) newBudget() *budget { return &budget{s.chunk} }
func (b *budget) spend(n int)       { b.left -= n }
func (b *budget) over() bool        { return b.left <= 0 }
func (b *budget) cut(n int) int     { return max(min(n, b.left), 0) }

// byKey makes the server find rows by their primary key. In a small table it would
// rather look at all of them, and what it looks at it locks: also a row that somebody
// has inserted and not committed.
const byKey = `FORCE INDEX (PRIMARY)`

// candidatesSQL finds free lanes that have work, the least recently used first. It
// locks nothing: with FOR UPDATE InnoDB would lock every lane that it sorts, and two
// claims could not be made at once.
const candidatesSQL = `
SELECT l.lane FROM {lanes} l
 WHERE l.lease_until <= {now}
   AND (SELECT m.seq FROM {messages} m WHERE m.state = 0 AND m.lane = l.lane ORDER BY m.state, m.lane, m.seq LIMIT 1) IS NOT NULL
 ORDER BY l.used, l.lane LIMIT ?`

// leaseSQL locks those that are still free, by their primary key.
const leaseSQL = `
SELECT l.lane, COALESCE(l.handed, '[]'), l.handed_total FROM {lanes} l ` + byKey + `
 WHERE l.lane IN (?) AND l.lease_until <= {now} ORDER BY l.lane FOR UPDATE SKIP LOCKED`

// suspectSQL marks what a lease that ran out had in hand and did not settle: each
// goes again with half the company at most, and only one that was alone already
// counts a crash. crashes comes first: assignments are made from left to right.
const suspectSQL = `
UPDATE {messages} ` + byKey + `
   SET crashes = crashes + CASE WHEN company = 1 THEN 1 ELSE 0 END, company = ?, stamp = stamp + 1
 WHERE seq IN (?) AND state = 0 AND (seq, stamp) IN (?)`

// seqsSQL is the part of readSQL for one lane.
const seqsSQL = `(SELECT seq FROM {messages} WHERE state = 0 AND lane = ? ORDER BY state, lane, seq LIMIT ?)`

// readSQL reads ready rows of some lanes in the order of their numbers. Each part of
// the UNION is an ordered walk over one lane's range of the index. It is a statement
// of its own, after the lock: one that locked and read would be of the moment before.
// Without body it leaves out what may be large, to look far ahead.
//
// A row waits for its time only if its time was asked for: one that was left to the
// default is due even where the clock was set back since, else the next row of its
// key would overtake it.
func readSQL(body bool) string {
	columns := "NULL, NULL, NULL"
	if body {
		columns = "CAST(m.headers AS CHAR CHARACTER SET utf8mb4), m.payload, m.payload_text"
	}
	return `
SELECT m.seq, m.lane, m.stamp, m.message_id, m.topic, COALESCE(m.ordering_key, ''), m.type,
       COALESCE(m.aggregate_type, ''), COALESCE(m.aggregate_id, ''), COALESCE(m.aggregate_version, 0),
       COALESCE(m.correlation_id, ''), m.content_type, ` + columns + `, ` + micros("m.occurred_at") + `, ` + micros("m.created_at") + `,
       m.attempts, m.crashes, m.resends, m.company, m.available_at > {now} AND m.available_at > m.created_at,
       CASE WHEN m.first_failed_at IS NULL THEN 0 ELSE ` + since("m.first_failed_at", "{now}") + ` END,
       COALESCE((SELECT MIN(b.seq) FROM {blocks} b WHERE b.ordering_key = m.ordering_key), -1),
       EXISTS (SELECT 1 FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq = m.seq),
       COALESCE(LENGTH(m.payload), LENGTH(m.payload_text), 0)
  FROM (SELECT seq FROM (?) a ORDER BY seq LIMIT ?) n
  STRAIGHT_JOIN {messages} m ON m.seq = n.seq
 ORDER BY n.seq`
}

// bodySQL reads what was left out, of the rows that go.
var bodySQL = `
SELECT m.seq, CAST(m.headers AS CHAR CHARACTER SET utf8mb4), m.payload, m.payload_text, ` + micros("m.occurred_at") + `
  FROM {messages} m ` + byKey + ` WHERE m.seq IN (?)`

// parkSQL puts aside rows that are not due yet. They hold nothing back.
const parkSQL = `UPDATE {messages} ` + byKey + ` SET state = 1 WHERE seq IN (?) AND state = 0`

// pauseSQL puts aside rows of a paused topic until the pause ends. Those with a key
// get an entry from enterSQL: their key's next message may be of another topic and
// must not overtake them, which is also why the topic can't be left out when
// reading.
const pauseSQL = `
UPDATE {messages} ` + byKey + ` SET state = 1, available_at = ` + forever + `, paused_for = ?, stamp = stamp + 1 WHERE seq IN (?) AND state = 0`

// enterSQL enters rows among those that hold back their key.
const enterSQL = `
INSERT INTO {blocks} (ordering_key, seq, lane)
SELECT m.ordering_key, m.seq, m.lane FROM {messages} m ` + byKey + ` WHERE m.seq IN (?) AND m.ordering_key <> ''
    ON DUPLICATE KEY UPDATE lane = {blocks}.lane`

// handSQL writes down what is handed out of the lanes that were looked at. One of
// which nothing is stays free; but it was used, and the next claim begins with
// another, and whoever had it before has it no more.
const handSQL = `
UPDATE {lanes} ` + byKey + `
   SET token = ?, worker = ?, used = {now}, handed = CASE lane ? ELSE '[]' END,
       handed_total = CASE WHEN lane IN (?) THEN ? ELSE 0 END,
       lease_until = CASE WHEN lane IN (?) THEN {now} + INTERVAL ? MICROSECOND ELSE '1000-01-01 00:00:00' END
 WHERE lane IN (?)`

// Claim implements [engine.Store]. It looks at up to eight lanes at a time, those
// first that were used longest ago.
func (s *Store) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	if req.Limit < 1 || req.Lease <= 0 {
		return nil, fmt.Errorf("mysql: claim: limit %d and lease %v must be positive", req.Limit, req.Lease)
	}
	if _, err := s.current(ctx); err != nil {
		return nil, fmt.Errorf("mysql: claim: %w", err)
	}
	if req.Idle {
		s.suspects.Store(false)
	}
	s.freeOrphans(ctx)
	start := time.Now()
	for round := 1; ; round++ {
		work, err := s.peek(ctx)
		if err != nil {
			return nil, fmt.Errorf("mysql: claim: %w", err)
		}
		// What waits for an ended pause comes back once in a Claim: a caller may name a
		// pause that has just ended, and what is parked for that comes back each time.
		moved, err := s.bringBack(ctx, work, round == 1)
		if err != nil {
			return nil, fmt.Errorf("mysql: claim: %w", err)
		}
		l := &look{}
		err = s.write(ctx, func(t *tx) error {
			*l = look{req: req, token: engine.NewID(), began: time.Now()}
			return s.claimOnce(t, l)
		})
		if err != nil {
			if errors.Is(err, engine.ErrCommitUnknown) && len(l.choice.Batch) > 0 {
				s.freeNow(ctx, claims.Orphan{Token: l.token, Lanes: l.lanes, Until: time.Now().Add(req.Lease)})
			}
			return nil, fmt.Errorf("mysql: claim: %w", err)
		}
		if l.suspects {
			s.suspects.Store(true)
		}
		if len(l.choice.Batch) > 0 {
			s.book.Add(l.token, l.choice.Lanes(lanes), l.choice.Seqs(), req.Lease, l.began)
			return l.choice.Claimed(), nil
		}
		if l.moved+moved == 0 || time.Since(start) > maxRounding {
			return nil, nil
		}
	}
}

// look is one look at the lanes.
type look struct {
	req   engine.ClaimRequest
	token engine.ID
	began time.Time // before the transaction: the lease must not seem longer than it is

	lanes    []int16
	rows     []reading.Row
	all      bool // there were no more
	choice   reading.Choice
	suspects bool // one was met that could not go
	moved    int  // rows that are out of the way now
}

// claimOnce is one transaction: lanes are locked and read, what may not go is put
// aside, and what goes is written down.
func (s *Store) claimOnce(t *tx, l *look) error {
	if err := s.lease(t, l); err != nil || len(l.lanes) == 0 {
		return err
	}
	b := s.newBudget()
	if err := s.readLanes(t, l, b); err != nil {
		return err
	}
	l.moved = s.chunk - b.left
	return s.hand(t, l)
}

// lease locks lanes, and takes over from those whose lease ran out.
func (s *Store) lease(t *tx, l *look) error {
	var candidates []int16
	if err := t.query("candidates", s.q.candidates, sqlrows.Collect(&candidates), 3*lanesPerClaim); err != nil {
		return err
	}
	l.lanes = nil
	type expired struct {
		handed [][2]int64
		total  int
	}
	var olds []expired
	// Others take the same lanes at the same moment: what they have is skipped, and the
	// next ones are tried.
	for len(candidates) > 0 && len(l.lanes) < lanesPerClaim {
		n := min(lanesPerClaim-len(l.lanes), len(candidates))
		err := t.query("lease", s.q.lease, func(rows *sql.Rows) error {
			var lane int16
			var handed string
			var old expired
			if err := rows.Scan(&lane, &handed, &old.total); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(handed), &old.handed); err != nil {
				return fmt.Errorf("lane %d: what was handed out can't be read: %w", lane, err)
			}
			if l.lanes = append(l.lanes, lane); len(old.handed) > 0 {
				olds = append(olds, old)
			}
			return nil
		}, candidates[:n])
		if err != nil {
			return err
		}
		candidates = candidates[n:]
	}
	for _, old := range olds {
		seqs, pairs := make([]int64, len(old.handed)), make([]string, len(old.handed))
		for i, h := range old.handed {
			seqs[i], pairs[i] = h[0], fmt.Sprintf("(%d,%d)", h[0], h[1])
		}
		if _, err := t.exec("suspect", s.q.suspect, max(old.total/2, 1), seqs, raw(strings.Join(pairs, ","))); err != nil {
			return err
		}
	}
	return nil
}

// readLanes reads the lanes in l until something may go, everything that was read
// had to stay, or the budget is spent.
func (s *Store) readLanes(t *tx, l *look, b *budget) error {
	for {
		limit := l.req.Limit
		if err := s.readOnce(t, "read", s.q.read, true, limit, l); err != nil {
			return err
		}
		c := &l.choice
		if ahead := c.Crowded() || c.Hidden(limit); ahead && limit < s.chunk {
			limit = s.chunk
			if err := s.readOnce(t, "ahead", s.q.ahead, false, limit, l); err != nil {
				return err
			}
			if err := s.readBodies(t, c); err != nil {
				return err
			}
		}
		l.suspects = l.suspects || c.Suspects
		moved, err := s.putAside(t, c, c.Crowded(), b)
		if err != nil {
			return err
		}
		if len(c.Batch) > 0 || moved == 0 || l.all || b.over() {
			return nil
		}
	}
}

func (s *Store) readOnce(t *tx, name, query string, bodies bool, limit int, l *look) error {
	parts := make([]string, len(l.lanes))
	for i, lane := range l.lanes {
		parts[i] = text(s.q.seqs, lane, limit)
	}
	l.rows, l.all = l.rows[:0], true
	size := int64(0)
	err := t.query(name, query, func(rows *sql.Rows) error {
		if err := scanRow(rows, &l.rows, bodies); err != nil {
			return err
		}
		// Those that would not fit into the claim are not kept.
		if size += l.rows[len(l.rows)-1].Size; bodies && size > s.bytes {
			l.all = false
			return sqlrows.ErrEnough
		}
		return nil
	}, raw(strings.Join(parts, " UNION ALL ")), limit)
	l.all = l.all && len(l.rows) < limit
	l.choice = reading.Choose(l.rows, &l.req, l.token, s.bytes)
	return err
}

// readBodies reads the rest of rows that were read without.
func (s *Store) readBodies(t *tx, c *reading.Choice) error {
	if len(c.Batch) == 0 {
		return nil
	}
	bySeq := make(map[int64]*reading.Row, len(c.Batch))
	seqs := make([]int64, len(c.Batch))
	for i, row := range c.Batch {
		seqs[i], bySeq[row.Receipt.Seq] = row.Receipt.Seq, row
	}
	return t.query("body", s.q.body, func(rows *sql.Rows) error {
		var seq int64
		var c content
		if err := rows.Scan(&seq, &c.headers, &c.payload, &c.text, &c.occurred); err != nil {
			return err
		}
		if row := bySeq[seq]; row != nil {
			row.Bad = c.decode(&row.Message)
		}
		return nil
	}, seqs)
}

// putAside moves what may not go now out of the ready set, so that each such row
// is met once. What the budget does not last for stays, and is met again.
//
// The lanes are locked since before the rows were read, and nobody else changes a
// ready row or an entry without that lock; so what was read still holds.
func (s *Store) putAside(t *tx, c *reading.Choice, crowded bool, b *budget) (moved int, err error) {
	had := b.left
	if seqs := c.Later[:b.cut(len(c.Later))]; len(seqs) > 0 {
		if _, err := t.exec("park", s.q.park, seqs); err != nil {
			return 0, err
		}
		b.spend(len(seqs))
	}
	byPause := map[string][]int64{}
	parked := c.Parked[:b.cut(len(c.Parked))]
	for i, seq := range parked {
		byPause[c.Pauses[i]] = append(byPause[c.Pauses[i]], seq)
	}
	for name, seqs := range byPause {
		if _, err := t.exec("pause", s.q.pause, name, seqs); err != nil {
			return 0, err
		}
	}
	if len(parked) > 0 {
		if _, err := t.exec("enter", s.q.enter, parked); err != nil {
			return 0, err
		}
		b.spend(len(parked))
	}
	err = s.hold(t, c, crowded, b)
	return had - b.left, err
}

// hand writes down what goes.
func (s *Store) hand(t *tx, l *look) error {
	handed := map[int16][][2]int64{}
	for _, row := range l.choice.Batch {
		handed[row.Lane] = append(handed[row.Lane], [2]int64{row.Receipt.Seq, int64(row.Stamp)})
	}
	var cases strings.Builder
	with := []int16{}
	for lane, rows := range handed {
		list, err := json.Marshal(rows)
		if err != nil {
			return err
		}
		fmt.Fprintf(&cases, "WHEN %d THEN '%s' ", lane, list)
		with = append(with, lane)
	}
	if len(with) == 0 {
		cases.WriteString("WHEN -1 THEN '[]' ") // CASE wants one
	}
	_, err := t.exec("hand", s.q.hand, l.token, reading.Storable(l.req.Worker), raw(cases.String()),
		with, len(l.choice.Batch), with, writing.Microseconds(l.req.Lease), l.lanes)
	return err
}

// freeSQL frees the lanes of claims. The token stays: who repeats a settlement
// whose answer was lost must still be told that it was done.
const freeSQL = `
UPDATE {lanes} ` + byKey + ` SET lease_until = '1000-01-01 00:00:00', handed = '[]', handed_total = 0 WHERE lane IN (?) AND token = ?`

// freeOrphans frees what earlier claims left leased without knowing.
func (s *Store) freeOrphans(ctx context.Context) {
	for _, o := range s.book.TakeOrphans(time.Now()) {
		s.freeNow(ctx, o)
	}
}

// freeNow frees a claim's lanes in a transaction of its own, also when the
// caller's ctx is over. If that fails the next Claim tries it again, and at the
// latest the end of the lease does it.
func (s *Store) freeNow(ctx context.Context, o claims.Orphan) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := s.write(ctx, func(t *tx) error {
		if _, err := s.owners(t, o.Lanes); err != nil { // in the one order of locks
			return err
		}
		_, err := t.exec("free", s.q.free, o.Lanes, o.Token)
		return err
	})
	if err != nil {
		s.later(ctx, "free lanes", err)
		s.book.KeepOrphan(o)
	}
}
