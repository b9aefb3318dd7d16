package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/sqlrows"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// ownersSQL says who has lanes, and whether they were freed. It comes first in every
// transaction that answers for something, and what it says holds to the end of it.
const ownersSQL = `SELECT l.lane, coalesce(l.token, ''), l.handed = '[]' FROM {lanes} l WHERE l.lane IN (SELECT j.value FROM json_each(?1) j)`

// mineSQL is a row that is a claim's: it is ready and its lane has the claim's token
// (?3), or it was detached and has the token itself.
const mineSQL = `m.seq IN (SELECT j.value FROM json_each(?1) j) AND (m.state = 0 AND ?3 OR m.state = 1 AND m.lease_token = ?2)`

// publishSQL deletes what was published. The stamp is not asked: published is
// published. fileSQL comes before it, if published messages are kept.
const publishSQL = `DELETE FROM {messages} AS m WHERE ` + mineSQL + ` RETURNING seq`

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
       headers, payload, payload_text, content, outcome, settled_by)
SELECT ` + archived + `,
       ` + columns + `, 'published', CASE WHEN ?3 THEN (SELECT l.worker FROM {lanes} l WHERE l.lane = m.lane) ELSE '' END
  FROM {messages} m WHERE ` + mineSQL
}

// The kinds of a settlement as settleSQL has them.
const (
	settleRetry  = 1
	settleBury   = 2
	settleFree   = 3 // released
	settleDetach = 4
)

// settleSQL is what becomes of rows that were not published. The stamp must be the
// one that was handed out: an answer whose own answer was lost is repeated, and by
// then the row may have been retried, promoted, buried and requeued; hearing it
// twice would charge twice, or undo an operator's command. A detached row needs no
// stamp, for its token goes with the answer.
const settleSQL = `
WITH v AS MATERIALIZED (
  SELECT json_extract(j.value, '$[0]') AS seq, json_extract(j.value, '$[1]') AS token, json_extract(j.value, '$[2]') AS standing,
         json_extract(j.value, '$[3]') AS stamp, json_extract(j.value, '$[4]') AS kind, json_extract(j.value, '$[5]') AS after,
         json_extract(j.value, '$[6]') AS charge, json_extract(j.value, '$[7]') AS pause,
         json_extract(j.value, '$[8]') AS error, json_extract(j.value, '$[9]') AS class
    FROM json_each(?1) j)
UPDATE {messages} AS m
   SET state = CASE v.kind WHEN 1 THEN 1 WHEN 2 THEN 3 WHEN 3 THEN 0 ELSE 1 END,
       available_at = CASE WHEN v.kind = 1 AND v.pause <> '' THEN ?2
                           WHEN v.kind IN (1, 4) THEN {now} + v.after
                           WHEN v.kind = 3 AND m.state = 1 THEN {now}
                           ELSE m.available_at END,
       lease_token = CASE WHEN v.kind = 4 THEN v.token END,
       paused_for = CASE WHEN v.kind = 1 THEN nullif(v.pause, '') END,
       stamp = m.stamp + 1,
       company = CASE WHEN v.kind IN (1, 2) THEN 0 ELSE m.company END,
       attempts = m.attempts + CASE WHEN v.kind = 1 AND v.charge THEN 1 ELSE 0 END,
       first_failed_at = CASE WHEN v.kind = 1 AND v.charge THEN coalesce(m.first_failed_at, {now}) ELSE m.first_failed_at END,
       last_attempt_at = CASE WHEN v.kind IN (1, 2) THEN {now} ELSE m.last_attempt_at END,
       last_error = CASE WHEN v.kind IN (1, 2) THEN v.error ELSE m.last_error END,
       last_error_class = CASE WHEN v.kind IN (1, 2) THEN v.class ELSE m.last_error_class END,
       dead_at = CASE WHEN v.kind = 2 THEN {now} ELSE m.dead_at END
  FROM v
 WHERE m.seq = v.seq AND (m.state = 0 AND v.standing AND m.stamp = v.stamp OR m.state = 1 AND m.lease_token = v.token)
RETURNING seq`

// Settle implements [engine.Store].
func (s *Store) Settle(ctx context.Context, ss ...engine.Settlement) (lost []engine.Receipt, err error) {
	if len(ss) == 0 {
		return nil, nil
	}
	have, err := s.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlite: settle: %w", err)
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
		return nil, fmt.Errorf("sqlite: settle: %w", err)
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
	token [lanes]string
	freed [lanes]bool
}

// standing reports whether r's lane still has its claim's token.
func (o *owners) standing(r engine.Receipt) bool {
	lane := reading.LaneOf(r)
	return lane >= 0 && lane < lanes && !r.Token.IsZero() && o.token[lane] == r.Token.String()
}

func (s *Store) owners(t *tx, of []int16) (o owners, err error) {
	err = t.query("owners", s.q.owners, func(rows *sql.Rows) error {
		var lane int16
		var token string
		var freed bool
		if err := rows.Scan(&lane, &token, &freed); err != nil {
			return err
		}
		if lane >= 0 && lane < lanes {
			o.token[lane], o.freed[lane] = token, freed
		}
		return nil
	}, list(of))
	return o, err
}

// A group is messages of one claim whose lanes are, or are not, still its own.
type group struct {
	token    string
	standing bool
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
	b := s.newBudget()
	if err := st.publish(t, b); err != nil {
		return err
	}
	if err := st.rest(t, b); err != nil {
		return err
	}
	for token, ls := range st.freed {
		if _, err := t.exec("free", s.q.free, token.String(), list(ls)); err != nil {
			return err
		}
	}
	return nil
}

func (st *settling) publish(t *tx, b *budget) error {
	s := st.store
	published := map[group][]int64{}
	for i := range st.ss {
		if one := &st.ss[i]; one.Kind == engine.Published {
			g := group{one.Receipt.Token.String(), st.owners.standing(one.Receipt)}
			published[g] = append(published[g], one.Receipt.Seq)
		}
	}
	for g, seqs := range published {
		args := []any{list(seqs), g.token, g.standing}
		if st.file != "" {
			if _, err := t.exec("file", st.file, args...); err != nil {
				return err
			}
		}
		var gone []int64
		if err := t.query("publish", s.q.publish, sqlrows.Collect(&gone), args...); err != nil {
			return err
		}
		st.took(g.standing, gone)
		if err := s.unblock(t, gone, b); err != nil {
			return err
		}
	}
	return nil
}

func (st *settling) took(standing bool, seqs []int64) {
	if standing {
		return
	}
	for _, seq := range seqs {
		st.mine[seq] = true
	}
}

func (st *settling) rest(t *tx, b *budget) error {
	s := st.store
	var v [][]any
	bySeq := map[int64]*engine.Settlement{}
	for i := range st.ss {
		one := &st.ss[i]
		r := one.Receipt
		kind, text, class := settleFree, "", ""
		switch one.Kind {
		case engine.Published:
			continue
		case engine.Retried, engine.Buried:
			kind, text, class = settleRetry, reading.Storable(one.Fault.Text()), one.Fault.Class.String()
			if one.Kind == engine.Buried {
				kind = settleBury
			}
		case engine.Detached:
			kind = settleDetach
		}
		bySeq[r.Seq] = one
		v = append(v, []any{r.Seq, r.Token.String(), bit(st.owners.standing(r)), reading.StampOf(r), kind, writing.Microseconds(one.After),
			bit(one.Charge), one.PausedFor, text, class})
	}
	if len(v) == 0 {
		return nil
	}
	var changed, enter, passed []int64
	if err := t.query("settle", s.q.settle, sqlrows.Collect(&changed), list(v), int64(forever)); err != nil {
		return err
	}
	// Rows that this call did not change are not looked at again: a late answer must not
	// take the entry of whoever has the row now.
	for _, seq := range changed {
		one := bySeq[seq]
		st.took(st.owners.standing(one.Receipt), []int64{seq})
		switch {
		case one.Kind == engine.Released:
		case one.Kind == engine.Detached || one.HoldKey:
			enter = append(enter, seq)
		default:
			passed = append(passed, seq)
		}
	}
	if len(enter) > 0 {
		if _, err := t.exec("enter", s.q.enter, list(enter)); err != nil {
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
