package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/dialects/internal/claims"
	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/dialects/internal/writing"
	"github.com/outward-dev/outward/engine"
)

const (
	lanesPerClaim = 8
	// chunk is how many rows one statement moves out of the ready set, or back, at
	// most: more would hold the lane's lock for too long.
	chunk = 10_000
	// A Claim that moves rows out of the way without finding one that may go looks
	// again, for so long at most; the next one goes on where it stopped.
	maxRounding = 2 * time.Second
	// maxClaimBytes bounds the payloads of one claim, but for a single one that is
	// larger.
	maxClaimBytes = reading.MaxBytes
)

// leaseSQL takes free lanes that have work. What the old lease had handed out
// stays, for suspectSQL to see. The probe for work is a scalar subquery with the
// index's whole order: as EXISTS, or without the ORDER BY, it cost 2 to 7 times as
// much on a hot key. $5 are the lanes that this Claim is clearing, $6 those that it
// keeps to (see clearance).
const leaseSQL = `
WITH f AS MATERIALIZED (
  SELECT l.lane FROM {lanes} l
   WHERE l.lease_until <= now() AND ($6::bigint = 0 OR 1::bigint << l.lane & $6::bigint <> 0)
     AND (SELECT m.seq FROM {messages} m WHERE m.lane = l.lane AND m.state = 0 ORDER BY m.lane, m.seq NULLS FIRST LIMIT 1) IS NOT NULL
   ORDER BY l.lane = ANY ($5::smallint[]) DESC, l.used, l.lane LIMIT $4::integer
     FOR NO KEY UPDATE OF l SKIP LOCKED)
UPDATE {lanes} l
   SET token = $1::uuid, worker = $3::text, used = clock_timestamp(),
       lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
  FROM f WHERE l.lane = f.lane
RETURNING l.lane`

// suspectSQL marks what a lease that ran out had in hand and did not settle: each
// goes again with half the company at most, and only one that was alone already
// counts a crash. A freed lane has handed out nothing, so nothing happens to it.
var suspectSQL = `
WITH h AS MATERIALIZED (
  SELECT l.lane, l.handed_total AS total, u.seq, u.stamp
    FROM {lanes} l CROSS JOIN LATERAL unnest(l.handed_seq, l.handed_stamp) AS u(seq, stamp)
   WHERE l.token = $1::uuid)
UPDATE {messages} m
   SET crashes = m.crashes + CASE WHEN m.company = 1 THEN 1 ELSE 0 END, company = greatest(h.total / 2, 1), stamp = m.stamp + 1
  FROM h
 WHERE m.seq = ANY (ARRAY(SELECT seq FROM h)) AND m.seq = h.seq AND m.lane = h.lane AND ` + stateIs(0) + ` AND m.stamp = h.stamp`

// stateIs is the condition for a row that is found by its number. It is written so
// that the planner does not take the partial index of that state instead: as long
// as few rows are in it that looks cheaper, and the plan stays when it has grown.
func stateIs(state int) string { return fmt.Sprintf("m.state + 0 = %d", state) }

// readSQL is a statement of its own, after the lease: in one statement it would
// see the rows as they stood before the lane was locked, and hand out again what
// another relay has published in between. The lanes' index ranges are merged, so
// that no more rows are read than are wanted.
//
// A row waits for its time only if its time was asked for: one that was left to the
// default is due even where the clock was set back since, else the next row of its
// key would overtake it.
var readSQL = rowsSQL("m.headers::text, m.payload, m.payload_text",
	fmt.Sprintf("sum(a.size) OVER (ORDER BY a.seq NULLS FIRST) - a.size < %d", maxClaimBytes))

// aheadSQL is readSQL without what may be large, to look far ahead.
var aheadSQL = rowsSQL("NULL::text, NULL::bytea, NULL::text", "true")

// rowsSQL reads rows with their body, as far as fits says.
func rowsSQL(body, fits string) string {
	return `
WITH mine AS MATERIALIZED (SELECT l.lane, row_number() OVER (ORDER BY l.lane) AS n FROM {lanes} l WHERE l.token = $1::uuid)
SELECT m.seq, m.lane, m.stamp, m.message_id, m.topic, coalesce(m.ordering_key, ''), m.type,
       coalesce(m.aggregate_type, ''), coalesce(m.aggregate_id, ''), coalesce(m.aggregate_version, 0),
       coalesce(m.correlation_id, ''), m.content_type, ` + body + `,
       CASE WHEN ` + ordinary("m.occurred_at") + ` THEN m.occurred_at END,
       CASE WHEN ` + ordinary("m.created_at") + ` THEN m.created_at END,
       m.attempts, m.crashes, m.resends, m.company, m.available_at > clock_timestamp() AND m.available_at > m.created_at,
       CASE WHEN m.first_failed_at IS NOT NULL THEN (extract(epoch FROM clock_timestamp() - m.first_failed_at) * 1000000)::bigint ELSE 0 END,
       coalesce((SELECT b.seq FROM {blocks} b WHERE b.ordering_key = m.ordering_key ORDER BY b.ordering_key, b.seq LIMIT 1), -1), m.size
  FROM (SELECT a.*, ` + fits + ` AS fits FROM (
          SELECT a.*, greatest(octet_length(a.payload), octet_length(a.payload_text), 0) AS size
            FROM (` + merged("*", "$2::integer") + `) a) a) m
 WHERE m.fits
 ORDER BY m.seq NULLS FIRST`
}

// bodySQL reads what aheadSQL left out, of the rows that go.
var bodySQL = `
SELECT m.seq, m.headers::text, m.payload, m.payload_text, CASE WHEN ` + ordinary("m.occurred_at") + ` THEN m.occurred_at END
  FROM {messages} m WHERE m.seq = ANY ($1::bigint[])`

// merged is a query for the first limit ready rows of the lanes in mine, in the
// order of seq. Each part is an ordered walk over one lane's range of the partial
// index, and merging them reads limit rows and a few; asking for the lanes with
// IN or a join reads limit rows of every lane.
func merged(columns, limit string) string {
	q := "SELECT " + columns + " FROM ("
	for i := range lanesPerClaim {
		if i > 0 {
			q += "\n    UNION ALL "
		}
		q += fmt.Sprintf("(SELECT %s FROM {messages} m WHERE m.lane = (SELECT n.lane FROM mine n WHERE n.n = %d) AND m.state = 0 ORDER BY m.lane, m.seq NULLS FIRST LIMIT %s)",
			columns, i+1, limit)
	}
	return q + fmt.Sprintf(") a ORDER BY seq NULLS FIRST LIMIT %s", limit)
}

// ordinary tells the instants that time.Time can hold from infinity and the like,
// which a foreign writer may have stored and which must not make a claim fail.
func ordinary(column string) string {
	return column + ` BETWEEN '0001-01-01 00:00:00Z' AND '9999-12-31 23:59:59.999999Z'`
}

// parkSQL puts aside rows that are not due yet. They hold nothing back.
var parkSQL = `
UPDATE {messages} m SET state = 1
 WHERE m.seq = ANY ($1::bigint[]) AND ` + stateIs(0) + ` AND m.lane = ANY (ARRAY(SELECT l.lane FROM {lanes} l WHERE l.token = $2::uuid))`

// pauseSQL puts aside rows of paused topics until the pause ends. A keyed one gets
// an entry: its key's next message may be of another topic and must not overtake
// it, which is also why the topic can't be left out when reading.
var pauseSQL = `
WITH u AS (
  UPDATE {messages} m
     SET state = 1, available_at = 'infinity', paused_for = ($3::text[])[array_position($2::text[], m.topic)], stamp = m.stamp + 1
   WHERE m.seq = ANY ($1::bigint[]) AND ` + stateIs(0) + ` AND m.topic = ANY ($2::text[])
     AND m.lane = ANY (ARRAY(SELECT l.lane FROM {lanes} l WHERE l.token = $4::uuid))
  RETURNING m.ordering_key, m.seq)
INSERT INTO {blocks} (ordering_key, seq) SELECT ordering_key, seq FROM u WHERE ordering_key <> ''
    ON CONFLICT DO NOTHING`

// handSQL writes down what is handed out, and frees at once the lanes of which
// nothing is: left leased they would stand still until the lease is over.
const handSQL = `
WITH h AS (
  SELECT v.lane, array_agg(v.seq) AS seqs, array_agg(v.stamp) AS stamps
    FROM unnest($2::smallint[], $3::bigint[], $4::integer[]) AS v(lane, seq, stamp) GROUP BY v.lane)
UPDATE {lanes} l
   SET handed_seq   = coalesce(h.seqs, '{}'),
       handed_stamp = coalesce(h.stamps, '{}'),
       handed_total = CASE WHEN h.lane IS NULL THEN 0 ELSE cardinality($3::bigint[]) END,
       lease_until  = CASE WHEN h.lane IS NULL THEN '-infinity' ELSE l.lease_until END
  FROM {lanes} o LEFT JOIN h ON h.lane = o.lane
 WHERE o.Token = $1::uuid AND l.lane = o.lane AND l.token = $1::uuid`

// Claim implements [engine.Store]. It looks at up to eight lanes at a time, those
// first that were used longest ago.
func (s *Store) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	if req.Limit < 1 || req.Lease <= 0 {
		return nil, fmt.Errorf("postgres: claim: limit %d and lease %v must be positive", req.Limit, req.Lease)
	}
	if _, err := s.current(ctx); err != nil {
		return nil, fmt.Errorf("postgres: claim: %w", err)
	}
	if req.Idle {
		s.suspects.Store(false)
	}
	s.freeOrphans(ctx)
	start := time.Now()
	only, again := s.clearance.lanes(), []int16{}
	for round := 1; ; round++ {
		r := &look{}
		err := retried(ctx, func() error {
			*r = look{req: req, first: round == 1, only: only, again: again}
			return s.with(ctx, func(conn *pgx.Conn) error { return s.claimOnce(ctx, conn, r) })
		})
		if err != nil {
			if len(r.orphaned) > 0 {
				s.freeNow(ctx, claims.Orphan{Token: r.token, Lanes: r.orphaned, Until: time.Now().Add(req.Lease)})
			}
			return nil, fmt.Errorf("postgres: claim: %w", err)
		}
		if r.Suspects {
			s.suspects.Store(true)
		}
		// What the read found blocked, and what a release left half done. Neither
		// makes the claim fail: the next one meets it again.
		r.moved += s.holdBlocked(ctx, r)
		r.moved += s.drainMarked(ctx, r.draining)
		switch {
		case len(again) > 0:
			if len(r.Batch) > 0 {
				s.clearance.gave(r.lanes)
			}
		case !r.Crowded():
			if only == 0 {
				s.clearance.over()
			}
		case len(r.Batch) == 0:
			s.clearance.begin()
			defer s.clearance.end()
		}
		if len(r.Batch) > 0 {
			return r.Claimed(), nil
		}
		if r.moved == 0 || time.Since(start) > maxRounding {
			return nil, nil
		}
		if r.Crowded() {
			// The same lanes, until something of them goes: of all lanes nothing would go
			// until all of them are clear.
			only, again = 0, r.lanes
		}
	}
}

// look is one look at the lanes.
type look struct {
	req   engine.ClaimRequest
	token engine.ID
	first bool    // of this Claim
	only  int64   // lanes that may be taken, as bits; 0: all
	again []int16 // lanes whose front is being cleared

	lanes []int16
	rows  []reading.Row
	ahead bool // the rows were read without their bodies

	reading.Choice

	draining []int16 // lanes with a drain marker
	moved    int     // rows that are out of the way now, or of which more will come back
	orphaned []int16 // lanes leased by a COMMIT that was not answered
}

// claimOnce does one transaction of two round trips, and before it, in the first of
// them, brings back what is due.
func (s *Store) claimOnce(ctx context.Context, conn *pgx.Conn, r *look) error {
	start := time.Now()
	r.token = engine.NewID()
	token := pgtype.UUID{Bytes: r.token, Valid: true}
	req := &r.req
	// What came back is there for this look already; only a full chunk means that there
	// is more.
	back := func(tag pgconn.CommandTag) {
		if n := int(tag.RowsAffected()); n >= chunk {
			r.moved += n
		}
	}
	first := []statement{begin(), limits(req.Lease), {name: "promote", sql: s.q.promote, tag: back}}
	if r.first {
		// Once only: a caller may name a pause that has just ended, and what is parked
		// for that comes back each time.
		first = append(first, statement{name: "unpark", sql: s.q.unpark, tag: back})
	}
	first = append(first,
		statement{name: "draining", sql: s.q.draining, rows: collect(&r.draining)},
		commit(),
		begin(), limits(req.Lease),
		statement{name: "lease", sql: s.q.lease, args: []any{token, writing.Microseconds(req.Lease), reading.Storable(req.Worker), lanesPerClaim, r.again, r.only}, rows: collect(&r.lanes)},
		statement{name: "suspect", sql: s.q.suspect, args: []any{token}},
	)
	if len(r.again) == 0 {
		first = append(first, statement{name: "read", sql: s.q.read, args: []any{token, req.Limit}, rows: r.scan})
	}
	if err := s.send(ctx, conn, first...); err != nil {
		return err
	}
	if len(r.lanes) == 0 {
		return s.send(ctx, conn, commit())
	}
	r.choose()
	far := 0
	switch {
	case len(r.again) > 0:
		far = min(4*req.Limit, chunk) // what is read and not needed is read in vain
	case r.hidden():
		far = chunk
	}
	if far > 0 {
		if err := s.lookAhead(ctx, conn, r, token, far); err != nil {
			return err
		}
	}
	second := r.moves(s, token)
	lanes, stamps := make([]int16, len(r.Batch)), make([]int32, len(r.Batch))
	seqs := make([]int64, len(r.Batch))
	for i, row := range r.Batch {
		lanes[i], seqs[i], stamps[i] = row.Lane, row.Receipt.Seq, row.Stamp
	}
	second = append(second, statement{name: "hand", sql: s.q.hand, args: []any{token, lanes, seqs, stamps}}, commit())
	if err := s.send(ctx, conn, second...); err != nil {
		if !answered(err) {
			r.orphaned = r.lanes
		}
		return err
	}
	if len(r.Batch) > 0 {
		slices.Sort(lanes)
		s.claims.Add(r.token, slices.Compact(lanes), seqs, req.Lease, start)
	}
	return nil
}

// choose decides about every row that was read.
func (r *look) choose() { r.Choice = reading.Choose(r.rows, &r.req, r.token, maxClaimBytes) }

// hidden says when it is time to look past suspects; see [reading.Choice].
func (r *look) hidden() bool { return r.Hidden(r.req.Limit) }

// lookAhead reads many rows and little of each, and then the rest of those that go.
func (s *Store) lookAhead(ctx context.Context, conn *pgx.Conn, r *look, token pgtype.UUID, rows int) error {
	*r = look{req: r.req, token: r.token, first: r.first, only: r.only, again: r.again, lanes: r.lanes, draining: r.draining, moved: r.moved}
	r.ahead = true
	if err := s.send(ctx, conn, statement{name: "ahead", sql: s.q.ahead, args: []any{token, rows}, rows: r.scan}); err != nil {
		return err
	}
	r.choose()
	if len(r.Batch) == 0 {
		return nil
	}
	bySeq := make(map[int64]*reading.Row, len(r.Batch))
	seqs := make([]int64, len(r.Batch))
	for i, row := range r.Batch {
		seqs[i], bySeq[row.Receipt.Seq] = row.Receipt.Seq, row
	}
	return s.send(ctx, conn, statement{name: "body", sql: s.q.body, args: []any{seqs}, rows: func(rows pgx.Rows) error {
		for rows.Next() {
			var seq int64
			var b reading.Body
			if err := rows.Scan(&seq, &b.Headers, &b.Payload, &b.Text, &b.Occurred); err != nil {
				return err
			}
			if row := bySeq[seq]; row != nil {
				row.Bad = reading.Decode(&row.Message, b)
			}
		}
		return rows.Err()
	}})
}

// moves are the statements that put aside what may not go now.
func (r *look) moves(s *Store, token pgtype.UUID) (sts []statement) {
	if len(r.Later) > 0 {
		r.moved += len(r.Later)
		sts = append(sts, statement{name: "park", sql: s.q.park, args: []any{r.Later, token}})
	}
	if len(r.Parked) > 0 {
		r.moved += len(r.Parked)
		names := make([]string, len(r.req.Paused)) // of the pauses, by topic
		for i, topic := range r.req.Paused {
			names[i] = cmp.Or(r.req.PausedFor[topic], topic)
		}
		sts = append(sts, statement{name: "pause", sql: s.q.pause, args: []any{r.Parked, r.req.Paused, names, token}})
	}
	return sts
}

// collect reads a result of one column.
func collect[T any](into *[]T) func(rows pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = (*into)[:0]
		for rows.Next() {
			var v T
			if err := rows.Scan(&v); err != nil {
				return err
			}
			*into = append(*into, v)
		}
		return rows.Err()
	}
}

// freeOrphans frees what earlier claims left leased without knowing.
func (s *Store) freeOrphans(ctx context.Context) {
	for _, o := range s.claims.TakeOrphans(time.Now()) {
		s.freeNow(ctx, o)
	}
}

// freeNow frees a claim's lanes in a transaction of its own, also when the
// caller's ctx is over. If that fails the next Claim tries it again, and at the
// latest the end of the lease does it.
func (s *Store) freeNow(ctx context.Context, o claims.Orphan) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := s.run(ctx, func() []statement {
		return transaction(endTimeout, s.lockStatement(o.Lanes, nil),
			statement{name: "free", sql: s.q.free, args: []any{[]pgtype.UUID{{Bytes: o.Token, Valid: true}}, o.Lanes}})
	})
	if err != nil {
		s.later(ctx, "free lanes", err)
		s.claims.KeepOrphan(o)
	}
}

// later says that something was left for a later claim to do again. It is no
// caller's error: nothing was lost but time.
func (s *Store) later(ctx context.Context, what string, err error) {
	if s.log != nil {
		s.log.WarnContext(ctx, "postgres: put off to the next claim", "what", what, "table", s.names.table(), "error", err)
	}
}
