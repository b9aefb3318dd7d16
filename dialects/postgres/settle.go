package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/dialects/internal/claims"
	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

// archived are the columns that the archive takes from a message as they are.
const archived = `seq, message_id, topic, ordering_key, type, aggregate_type, aggregate_id, aggregate_version, correlation_id, content_type,
         occurred_at, created_at, attempts, crashes, resends, first_failed_at, last_attempt_at, dead_at, last_error, last_error_class`

// publishSQL deletes what was published, files it where archive is "full" or
// "metadata", and lets go on what it held back. A row is this claim's if it is
// ready and its lane has the claim's token, or if it was detached and has the
// token itself. The stamp is not asked: published is published.
//
// There is one such statement for each claim that is settled, so that rows are found
// by nothing but their numbers.
//
// It returns the rows that went although their lane has another token by now, for
// only those were not lost with the lane.
func publishSQL(archive string) string {
	columns, file := "m.seq, m.lane, m.ordering_key", ""
	content := map[string]string{"full": "headers, payload, payload_text, true", "metadata": "NULL, NULL, NULL, false"}[archive]
	if content != "" {
		columns = "m.*"
		file = `
filed AS (
  INSERT INTO {archive} (` + archived + `,
         headers, payload, payload_text, content, outcome, settled_by)
  SELECT ` + archived + `,
         ` + content + `, 'published', coalesce((SELECT own.worker FROM own LIMIT 1), '') FROM gone),`
	}
	return `
WITH own AS MATERIALIZED (SELECT l.lane, l.worker FROM {lanes} l WHERE l.lane = ANY ($3::smallint[]) AND l.token = $2::uuid),
gone AS (
  DELETE FROM {messages} m
   WHERE m.seq = ANY ($1::bigint[])
     AND (` + stateIs(0) + ` AND m.lane = ANY (ARRAY(SELECT own.lane FROM own)) OR ` + stateIs(1) + ` AND m.lease_token = $2::uuid)
  RETURNING ` + columns + `),` + file + entries("gone") + release + `
SELECT gone.seq FROM gone WHERE gone.lane <> ALL (ARRAY(SELECT own.lane FROM own))`
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
//
// Everything but a release enters the row among those that hold back their key, if
// so asked, in the same statement.
var settleSQL = `
WITH v AS MATERIALIZED (
  SELECT v.*, ($12::uuid[])[v.t] AS token
    FROM unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::integer[], $5::smallint[], $6::bigint[], $7::boolean[],
                $8::boolean[], $9::text[], $10::text[], $11::text[])
         AS v(seq, lane, t, stamp, kind, after, charge, hold, pause, error, class)),
own AS MATERIALIZED (SELECT l.lane, l.token FROM {lanes} l WHERE l.lane = ANY ($2::smallint[])),
u AS (
  UPDATE {messages} m
     SET state = CASE v.kind WHEN 1 THEN 1 WHEN 2 THEN 3 WHEN 3 THEN 0 ELSE 1 END,
         available_at = CASE WHEN v.kind = 1 AND v.pause <> '' THEN 'infinity'
                             WHEN v.kind IN (1, 4) THEN clock_timestamp() + v.after * interval '1 microsecond'
                             WHEN v.kind = 3 AND m.state = 1 THEN clock_timestamp()
                             ELSE m.available_at END,
         lease_token = CASE WHEN v.kind = 4 THEN v.token END,
         paused_for = CASE WHEN v.kind = 1 THEN nullif(v.pause, '') END,
         stamp = m.stamp + 1,
         company = CASE WHEN v.kind IN (1, 2) THEN 0 ELSE m.company END,
         attempts = m.attempts + CASE WHEN v.kind = 1 AND v.charge THEN 1 ELSE 0 END,
         first_failed_at = CASE WHEN v.kind = 1 AND v.charge THEN coalesce(m.first_failed_at, clock_timestamp()) ELSE m.first_failed_at END,
         last_attempt_at = CASE WHEN v.kind IN (1, 2) THEN clock_timestamp() ELSE m.last_attempt_at END,
         last_error = CASE WHEN v.kind IN (1, 2) THEN v.error ELSE m.last_error END,
         last_error_class = CASE WHEN v.kind IN (1, 2) THEN v.class ELSE m.last_error_class END,
         dead_at = CASE WHEN v.kind = 2 THEN clock_timestamp() ELSE m.dead_at END
    FROM v JOIN own l ON l.lane = v.lane
   WHERE m.seq = ANY ($1::bigint[]) AND m.seq = v.seq AND m.lane = v.lane
     AND (` + stateIs(0) + ` AND l.token = v.token AND m.stamp = v.stamp OR ` + stateIs(1) + ` AND m.lease_token = v.token)
  RETURNING m.seq, m.ordering_key, v.kind, v.hold, l.token = v.token AS standing),
b AS (
  INSERT INTO {blocks} (ordering_key, seq)
  SELECT ordering_key, seq FROM u WHERE ordering_key <> '' AND (kind = 4 OR kind IN (1, 2) AND hold)
      ON CONFLICT DO NOTHING)
SELECT seq FROM u WHERE standing IS NOT TRUE`

// resolveSQL takes away the entries of rows that no longer hold back their key: dead
// ones that are passed, retries that nobody waits for. It comes after settleSQL and
// takes only rows that this very transaction has changed (xmin): a late answer that
// changed nothing must not take the entry of whoever has the row now.
var resolveSQL = `
WITH g AS MATERIALIZED (
  SELECT m.ordering_key, m.seq FROM {messages} m
   WHERE m.seq = ANY ($1::bigint[]) AND (` + stateIs(1) + ` OR ` + stateIs(3) + `) AND m.xmin = pg_current_xact_id()::xid),` +
	entries("g") + release + `
SELECT count(*) FROM released`

// Settle implements [engine.Store].
func (s *Store) Settle(ctx context.Context, ss ...engine.Settlement) (lost []engine.Receipt, err error) {
	if len(ss) == 0 {
		return nil, nil
	}
	have, err := s.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: settle: %w", err)
	}
	rs := make([]engine.Receipt, len(ss))
	for i := range ss {
		rs[i] = ss[i].Receipt
	}
	answer := s.claims.Begin(rs)
	st := &settling{store: s, ss: ss, answer: answer, publish: s.q.publish}
	switch {
	case have.Retention.Published <= 0:
	case have.Retention.Metadata:
		st.publish = s.q.publishMeta
	default:
		st.publish = s.q.publishFull
	}
	err = s.run(ctx, st.statements)
	for _, o := range answer.End(err == nil) {
		s.freeNow(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: settle: %w", err)
	}
	return st.lost(), nil
}

// settling is one call of Settle.
type settling struct {
	store   *Store
	ss      []engine.Settlement
	answer  *claims.Answer
	publish string

	tokens map[int16]engine.ID // who has the lanes
	mine   []int64             // rows that were this claim's although the lane isn't
}

// tokenList numbers the tokens of a call, for a settlement of a thousand messages
// has few of them.
type tokenList struct {
	list  []pgtype.UUID
	index map[engine.ID]int16
}

func (l *tokenList) add(id engine.ID) int16 {
	if i, ok := l.index[id]; ok {
		return i
	}
	if l.index == nil {
		l.index = map[engine.ID]int16{}
	}
	l.list = append(l.list, uuidOf(id))
	l.index[id] = int16(len(l.list)) // arrays begin at 1
	return l.index[id]
}

// statements is the whole transaction. Confirmations come first: a later failure of
// the same key must not find its predecessor still there.
func (st *settling) statements() []statement {
	s := st.store
	st.tokens, st.mine = map[int16]engine.ID{}, st.mine[:0]
	all := reading.LanesOf(lanes, len(st.ss), func(i int) engine.Receipt { return st.ss[i].Receipt })
	var freed []pgtype.UUID
	var freedLanes []int16
	for token, ls := range st.answer.Frees {
		freed, freedLanes, all = append(freed, uuidOf(token)), append(freedLanes, ls...), append(all, ls...)
	}
	slices.Sort(all)
	locked := slices.Compact(all)
	body := []statement{s.lockStatement(locked, st.tokens)}

	published := map[engine.ID][]int64{}
	var order []engine.ID
	var o struct {
		tokenList
		seqs, after             []int64
		lanes, t, kind          []int16
		stamps                  []int32
		charge, hold            []bool
		pauses, errors, classes []string
	}
	var passed []int64
	for i := range st.ss {
		one := &st.ss[i]
		r := one.Receipt
		if one.Kind == engine.Published {
			if published[r.Token] == nil {
				order = append(order, r.Token)
			}
			published[r.Token] = append(published[r.Token], r.Seq)
			continue
		}
		kind, text, class := int16(settleFree), "", ""
		switch one.Kind {
		case engine.Retried, engine.Buried:
			kind, text, class = settleRetry, reading.Storable(one.Fault.Text()), one.Fault.Class.String()
			if one.Kind == engine.Buried {
				kind = settleBury
			}
			if !one.HoldKey {
				passed = append(passed, r.Seq)
			}
		case engine.Detached:
			kind = settleDetach
		}
		o.seqs, o.lanes, o.t, o.stamps = append(o.seqs, r.Seq), append(o.lanes, reading.LaneOf(r)), append(o.t, o.add(r.Token)), append(o.stamps, reading.StampOf(r))
		o.kind, o.after = append(o.kind, kind), append(o.after, writing.Microseconds(one.After))
		o.charge, o.hold, o.pauses = append(o.charge, one.Charge), append(o.hold, one.HoldKey), append(o.pauses, one.PausedFor)
		o.errors, o.classes = append(o.errors, text), append(o.classes, class)
	}
	more := func(rows pgx.Rows) error {
		var seqs []int64
		err := collect(&seqs)(rows)
		st.mine = append(st.mine, seqs...)
		return err
	}
	for _, token := range order {
		body = append(body, statement{name: "publish", sql: st.publish, args: []any{published[token], uuidOf(token), locked}, rows: more})
	}
	if len(o.seqs) > 0 {
		body = append(body, statement{name: "settle", sql: s.q.settle, rows: more,
			args: []any{o.seqs, o.lanes, o.t, o.stamps, o.kind, o.after, o.charge, o.hold, o.pauses, o.errors, o.classes, o.list}})
	}
	if len(passed) > 0 {
		body = append(body, statement{name: "resolve", sql: s.q.resolve, args: []any{passed}})
	}
	if len(freed) > 0 {
		body = append(body, statement{name: "free", sql: s.q.free, args: []any{freed, freedLanes}})
	}
	return transaction(lockTimeout, body...)
}

// lost are the receipts whose lane has another token by now, but for detached rows
// that still had this one. All others were settled, now or before.
func (st *settling) lost() (lost []engine.Receipt) {
	mine := make(map[int64]bool, len(st.mine))
	for _, seq := range st.mine {
		mine[seq] = true
	}
	for i := range st.ss {
		r := st.ss[i].Receipt
		if token, known := st.tokens[reading.LaneOf(r)]; (!known || token != r.Token || r.Token.IsZero()) && !mine[r.Seq] {
			lost = append(lost, r)
		}
	}
	return lost
}
