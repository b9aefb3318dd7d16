package sqlite

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
	// would keep every other writer of the file waiting for too long.
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

// leaseSQL finds free lanes that have work, the least recently used first. The probe
// for work is a scalar subquery: SQLite makes a join of an EXISTS, and sorted every
// ready row of every lane, which took fifty times as long.
const leaseSQL = `
SELECT l.lane, l.handed <> '[]' FROM {lanes} l
 WHERE l.lease_until <= {now} AND l.lane NOT IN (SELECT j.value FROM json_each(?1) j)
   AND (SELECT m.seq FROM {messages} m WHERE m.lane = l.lane AND m.state = 0 ORDER BY m.lane, m.seq LIMIT 1) IS NOT NULL
 ORDER BY l.used, l.lane LIMIT ?2`

// suspectSQL marks what a lease that ran out had in hand and did not settle: each
// goes again with half the company at most, and only one that was alone already
// counts a crash. MATERIALIZED, so that the rows are found by their numbers and not
// by a walk over all that are ready.
var suspectSQL = `
WITH h AS MATERIALIZED (
  SELECT l.handed_total AS total, json_extract(j.value, '$[0]') AS seq, json_extract(j.value, '$[1]') AS stamp
    FROM {lanes} l CROSS JOIN json_each(l.handed) j WHERE l.lane IN (SELECT o.value FROM json_each(?1) o))
UPDATE {messages} AS m
   SET crashes = m.crashes + CASE WHEN m.company = 1 THEN 1 ELSE 0 END, company = max(h.total / 2, 1), stamp = m.stamp + 1
  FROM h WHERE m.seq = h.seq AND ` + ready("m.") + ` AND m.stamp = h.stamp`

// readSQL reads ready rows of so many lanes in the order of their numbers. Each part
// of the UNION is an ordered walk over one lane's range of the partial index, and
// merging them reads as many entries as are wanted and a few; asking for the lanes
// with IN would sort all that they have. Without body it leaves out what may be
// large, to look far ahead.
//
// A row waits for its time only if its time was asked for: one that was left to
// the default is due even where the clock was set back since, else the next row of
// its key would overtake it.
func readSQL(lanes int, body bool) string {
	columns := "NULL, 0, NULL, NULL"
	if body {
		columns = "m.headers, m.payload IS NOT NULL, CAST(m.payload AS BLOB), m.payload_text"
	}
	var parts []string
	for i := range lanes {
		parts = append(parts, fmt.Sprintf("SELECT seq FROM {messages} WHERE lane = ?%d AND state = 0", i+2))
	}
	return `
SELECT m.seq, m.lane, m.stamp, m.message_id, m.topic, coalesce(m.ordering_key, ''), m.type,
       coalesce(m.aggregate_type, ''), coalesce(m.aggregate_id, ''), CAST(coalesce(m.aggregate_version, 0) AS INTEGER),
       coalesce(m.correlation_id, ''), m.content_type, ` + columns + `, ` + whole("m.occurred_at") + `, ` + whole("m.created_at") + `,
       m.attempts, m.crashes, m.resends, m.company, m.available_at > {now} AND m.available_at > m.created_at,
       CASE WHEN m.first_failed_at IS NULL THEN 0 ELSE {now} - m.first_failed_at END,
       coalesce((SELECT min(b.seq) FROM {blocks} b WHERE b.ordering_key = m.ordering_key), -1),
       EXISTS (SELECT 1 FROM {blocks} b WHERE b.ordering_key = m.ordering_key AND b.seq = m.seq),
       coalesce(length(m.payload), length(m.payload_text), 0)
  FROM (` + strings.Join(parts, "\n        UNION ALL ") + `
         ORDER BY seq LIMIT ?1) n
  CROSS JOIN {messages} m ON m.seq = n.seq
 ORDER BY n.seq`
}

// bodySQL reads what aheadSQL left out, of the rows that go.
var bodySQL = `
SELECT m.seq, m.message_id, m.headers, m.payload IS NOT NULL, CAST(m.payload AS BLOB), m.payload_text, ` + whole("m.occurred_at") + `
  FROM {messages} m WHERE m.seq IN (SELECT j.value FROM json_each(?1) j)`

// ready says of rows that are found by their numbers that they are ready. With the
// plain condition SQLite walks the index of all that are ready instead, where its
// statistics are of a moment at which there were none.
func ready(alias string) string { return "+" + alias + "state = 0" }

// parkSQL puts aside rows that are not due yet. They hold nothing back.
var parkSQL = `UPDATE {messages} SET state = 1 WHERE ` + ready("") + ` AND seq IN (SELECT j.value FROM json_each(?1) j)`

// pauseSQL puts aside rows of a paused topic until the pause ends. Those with a key
// get an entry from enterSQL: their key's next message may be of another topic and
// must not overtake them, which is also why the topic can't be left out when
// reading.
var pauseSQL = `
UPDATE {messages} SET state = 1, available_at = ?2, paused_for = ?3, stamp = stamp + 1
 WHERE ` + ready("") + ` AND seq IN (SELECT j.value FROM json_each(?1) j)`

// enterSQL enters rows among those that hold back their key.
const enterSQL = `
INSERT INTO {blocks} (ordering_key, seq, lane)
SELECT m.ordering_key, m.seq, m.lane FROM {messages} m WHERE m.seq IN (SELECT j.value FROM json_each(?1) j) AND m.ordering_key <> ''
    ON CONFLICT DO NOTHING`

// handSQL writes down what is handed out of the lanes that were looked at. One of
// which nothing is stays free; but it was used, and the next claim begins with
// another, and whoever had it before has it no more.
const handSQL = `
UPDATE {lanes} AS l
   SET token = ?2, worker = ?3, used = (SELECT max(u.used) + 1 FROM {lanes} u), handed = h.handed,
       handed_total = CASE WHEN h.handed = '[]' THEN 0 ELSE ?5 END,
       lease_until = CASE WHEN h.handed = '[]' THEN 0 ELSE {now} + ?4 END
  FROM (SELECT json_extract(j.value, '$[0]') AS lane, json_extract(j.value, '$[1]') AS handed FROM json_each(?1) j) AS h
 WHERE l.lane = h.lane`

// Claim implements [engine.Store]. It looks at eight lanes at a time, those first
// that were used longest ago, until something may go.
func (s *Store) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	if req.Limit < 1 || req.Lease <= 0 {
		return nil, fmt.Errorf("sqlite: claim: limit %d and lease %v must be positive", req.Limit, req.Lease)
	}
	if _, err := s.current(ctx); err != nil {
		return nil, fmt.Errorf("sqlite: claim: %w", err)
	}
	if req.Idle {
		s.suspects.Store(false)
	}
	s.freeOrphans(ctx)
	start := time.Now()
	for round := 1; ; round++ {
		// What waits for an ended pause comes back once in a Claim: a caller may name a
		// pause that has just ended, and what is parked for that comes back each time.
		work, err := s.peek(ctx)
		if err != nil {
			return nil, fmt.Errorf("sqlite: claim: %w", err)
		}
		if !work.any(round == 1) {
			return nil, nil
		}
		l := &look{}
		err = s.write(ctx, func(t *tx) error {
			*l = look{req: req, first: round == 1, token: engine.NewID(), began: time.Now()}
			return s.claimOnce(t, work, l)
		})
		if err != nil {
			if errors.Is(err, engine.ErrCommitUnknown) && len(l.choice.Batch) > 0 {
				s.freeNow(ctx, claims.Orphan{Token: l.token, Lanes: l.lanes, Until: time.Now().Add(req.Lease)})
			}
			return nil, fmt.Errorf("sqlite: claim: %w", err)
		}
		if l.suspects {
			s.suspects.Store(true)
		}
		if len(l.choice.Batch) > 0 {
			s.book.Add(l.token, l.choice.Lanes(lanes), l.choice.Seqs(), req.Lease, l.began)
			return l.choice.Claimed(), nil
		}
		if !l.more || time.Since(start) > maxRounding {
			return nil, nil
		}
	}
}

// toDo is what peekSQL found.
type toDo struct{ due, over, draining, ready bool }

func (w *toDo) any(pauses bool) bool { return w.due || w.over && pauses || w.draining || w.ready }

func (s *Store) peek(ctx context.Context) (*toDo, error) {
	w := &toDo{}
	err := retried(ctx, func() error {
		return sqlrows.Query(ctx, s.db, "peek", s.q.peek, func(rows *sql.Rows) error {
			return rows.Scan(&w.due, &w.over, &w.draining, &w.ready)
		})
	})
	return w, err
}

// look is one look at the lanes.
type look struct {
	req   engine.ClaimRequest
	token engine.ID
	first bool      // of this Claim
	began time.Time // before the transaction: the lease must not seem longer than it is

	lanes    []int16 // the last ones looked at
	rows     []reading.Row
	all      bool // there were no more
	choice   reading.Choice
	suspects bool // one was met that could not go
	more     bool // the transaction ended before everything was looked at
}

// claimOnce is the whole claim in one transaction: what is due comes back, lanes
// are chosen and read, what may not go is put aside, and what goes is written down.
func (s *Store) claimOnce(t *tx, work *toDo, l *look) error {
	b := s.newBudget()
	if work.due || work.over {
		if err := s.promote(t, work, b, l.first); err != nil {
			return err
		}
	}
	if work.draining && !b.over() {
		if err := s.drain(t, b); err != nil {
			return err
		}
	}
	seen := []int16{}
	for {
		if b.over() {
			l.more = true
			return nil
		}
		l.choice = reading.Choice{}
		if err := s.lease(t, seen, l); err != nil || len(l.lanes) == 0 {
			return err
		}
		seen = append(seen, l.lanes...)
		if err := s.readLanes(t, l, b); err != nil {
			return err
		}
		if err := s.hand(t, l); err != nil || len(l.choice.Batch) > 0 {
			return err
		}
	}
}

// lease chooses lanes, and takes over from those whose lease ran out.
func (s *Store) lease(t *tx, seen []int16, l *look) error {
	l.lanes = nil
	var expired []int16
	err := t.query("lease", s.q.lease, func(rows *sql.Rows) error {
		var lane int16
		var handed bool
		if err := rows.Scan(&lane, &handed); err != nil {
			return err
		}
		if l.lanes = append(l.lanes, lane); handed {
			expired = append(expired, lane)
		}
		return nil
	}, list(seen), lanesPerClaim)
	if err != nil || len(expired) == 0 {
		return err
	}
	_, err = t.exec("suspect", s.q.suspect, list(expired))
	return err
}

// readLanes reads the lanes in l until something may go, everything that was read
// had to stay, or the budget is spent.
func (s *Store) readLanes(t *tx, l *look, b *budget) error {
	for {
		limit := l.req.Limit
		if err := s.readOnce(t, "read", s.q.read[:], true, limit, l); err != nil {
			return err
		}
		c := &l.choice
		if ahead := c.Crowded() || c.Hidden(limit); ahead && limit < s.chunk {
			limit = s.chunk
			if err := s.readOnce(t, "ahead", s.q.ahead[:], false, limit, l); err != nil {
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
		if len(c.Batch) > 0 || moved == 0 || l.all {
			return nil
		}
		if b.over() {
			l.more = true
			return nil
		}
	}
}

func (s *Store) readOnce(t *tx, name string, queries []string, bodies bool, limit int, l *look) error {
	args := []any{limit}
	for _, lane := range l.lanes {
		args = append(args, lane)
	}
	l.rows = l.rows[:0]
	if cap(l.rows) < limit {
		l.rows = make([]reading.Row, 0, min(limit, s.chunk))
	}
	l.all = true
	size := int64(0)
	err := t.query(name, queries[len(l.lanes)-1], func(rows *sql.Rows) error {
		if err := scanRow(rows, &l.rows); err != nil {
			return err
		}
		// Rows come one by one: those that would not fit into the claim are not fetched.
		if size += l.rows[len(l.rows)-1].Size; bodies && size > s.bytes {
			l.all = false
			return sqlrows.ErrEnough
		}
		return nil
	}, args...)
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
		if err := rows.Scan(&seq, &c.id, &c.headers, &c.some, &c.payload, &c.text, &c.occurred); err != nil {
			return err
		}
		if row := bySeq[seq]; row != nil {
			row.Bad = c.decode(&row.Message)
		}
		return nil
	}, list(seqs))
}

// putAside moves what may not go now out of the ready set, so that each such row
// is met once. What the budget does not last for stays, and is met again.
//
// Nobody has changed anything since the rows were read, so nothing has to be looked
// at again here: the read and this are under one write lock.
func (s *Store) putAside(t *tx, c *reading.Choice, crowded bool, b *budget) (moved int, err error) {
	had := b.left
	if seqs := c.Later[:b.cut(len(c.Later))]; len(seqs) > 0 {
		if _, err := t.exec("park", s.q.park, list(seqs)); err != nil {
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
		if _, err := t.exec("pause", s.q.pause, list(seqs), int64(forever), name); err != nil {
			return 0, err
		}
	}
	if len(parked) > 0 {
		if _, err := t.exec("enter", s.q.enter, list(parked)); err != nil {
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
	all := make([][2]any, len(l.lanes))
	for i, lane := range l.lanes {
		all[i] = [2]any{lane, json.RawMessage(list(handed[lane]))}
	}
	_, err := t.exec("hand", s.q.hand, list(all), l.token.String(), reading.Storable(l.req.Worker), writing.Microseconds(l.req.Lease), len(l.choice.Batch))
	return err
}

// freeSQL frees the lanes of claims. The token stays: who repeats a settlement
// whose answer was lost must still be told that it was done.
const freeSQL = `
UPDATE {lanes} SET lease_until = 0, handed = '[]', handed_total = 0
 WHERE token = ?1 AND lane IN (SELECT j.value FROM json_each(?2) j)`

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
		_, err := t.exec("free", s.q.free, o.Token.String(), list(o.Lanes))
		return err
	})
	if err != nil {
		s.later(ctx, "free lanes", err)
		s.book.KeepOrphan(o)
	}
}
