package postgres

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/engine"
)

// cost is what a piece of work read of the table of messages.
type cost struct{ rows, blocks, scans int }

// costOf counts what f reads. f must work on a store of one connection.
func (db *database) costOf(s *Store, f func()) cost {
	db.t.Helper()
	look := func() (c cost) {
		// The counters of a session are its own until it is asked to hand them over.
		for range 2 {
			if _, err := s.pool.Exec(db.t.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
				db.t.Fatal(err)
			}
		}
		tx, err := db.pool.Begin(db.t.Context())
		if err != nil {
			db.t.Fatal(err)
		}
		defer rollback(db.t.Context(), tx)
		if _, err := tx.Exec(db.t.Context(), `SELECT pg_stat_clear_snapshot()`); err != nil {
			db.t.Fatal(err)
		}
		if err := tx.QueryRow(db.t.Context(), `
SELECT coalesce(t.seq_scan, 0), (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid),
       heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit
  FROM pg_stat_user_tables t JOIN pg_statio_user_tables o ON o.relid = t.relid
 WHERE t.relid = to_regclass($1)`, db.n.sql(`{messages}`)).Scan(&c.scans, &c.rows, &c.blocks); err != nil {
			db.t.Fatal(err)
		}
		return c
	}
	before := look()
	f()
	after := look()
	return cost{after.rows - before.rows, after.blocks - before.blocks, after.scans - before.scans}
}

func single(c *pgxpool.Config) { c.MaxConns = 1 }

// TestCostOfAClaim: what a claim reads does not grow with what is in the table and
// can't go: a paused topic in front, a key that is blocked, what waits and what is
// dead. The store's connection makes its plans while the table is empty.
func TestCostOfAClaim(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open(single)
		for range 10 {
			db.enqueue(msg("t", "k"))
			db.settle(s, 0, engine.MarkPublished(db.claim(s, req(1))[0].Receipt))
		}
		const limit = 100
		db.exec(`INSERT INTO {pauses} VALUES ('paused', 'anna', false, '', '', now(), 'infinity')`)
		db.exec(`INSERT INTO {messages} (topic, type, ordering_key) SELECT 'paused', 't', CASE WHEN g % 2 = 0 THEN 'p ' || g END FROM generate_series(1, 100000) g`)
		db.exec(`INSERT INTO {messages} (topic, type, state, available_at) SELECT 't', 't', 1, now() + interval '1 day' FROM generate_series(1, 20000)`)
		db.exec(`INSERT INTO {messages} (topic, type, state) SELECT 't', 't', 3 FROM generate_series(1, 20000)`)
		head := db.enqueue(msg("t", "blocked"))[0]
		db.exec(`INSERT INTO {messages} (topic, type, ordering_key) SELECT 't', 't', 'blocked' FROM generate_series(1, 50000)`)
		db.exec(`INSERT INTO {messages} (topic, type, ordering_key) SELECT 'free', 't', CASE WHEN g % 2 = 0 THEN 'f ' || g % 500 END FROM generate_series(1, 10000) g`)
		r := engine.ClaimRequest{Limit: limit, Lease: time.Minute, Idle: true, Paused: []string{"paused"}}
		var claimed []engine.Claimed
		const aside = "0 10000, 1 120001, 2 50000, 3 20000"
		states := func() (got string) {
			// On the store's connection: any other hands over what it has read some time
			// later, and a claim would be blamed for it.
			if err := s.pool.QueryRow(t.Context(), db.n.sql(`SELECT string_agg(state || ' ' || n, ', ' ORDER BY state) FROM (SELECT state, count(*) n FROM {messages} GROUP BY state) g`)).Scan(&got); err != nil {
				t.Fatal(err)
			}
			return got
		}
		claims, lean := 0, 0
		var total cost
		for claims%20 != 0 || states() != aside {
			if claims++; claims > 400 {
				t.Fatalf("after %d claims: %s", claims, states())
			}
			c := db.costOf(s, func() { claimed = db.claim(s, r) })
			total.rows, total.blocks, total.scans = total.rows+c.rows, total.blocks+c.blocks, total.scans+c.scans
			if len(claimed) < limit/2 {
				lean++
			}
			for _, c := range claimed {
				if c.ID == head {
					db.settle(s, 0, engine.Reschedule(c.Receipt, time.Hour, engine.Fault{}, engine.RescheduleOptions{HoldKey: true}))
				} else {
					db.settle(s, 0, engine.Release(c.Receipt))
				}
			}
		}
		// What goes doesn't wait until everything in front is out of the way.
		if lean > claims/3 {
			t.Errorf("%d of %d claims brought less than half of what they might", lean, claims)
		}
		t.Logf("once: %+v in %d claims, %d of them lean", total, claims, lean)
		// Each of the 150 000 rows is met a few times, however many claims it took.
		if total.rows > 3_000_000 || total.scans > 0 {
			t.Errorf("to put 150 000 rows aside %+v was read", total)
		}
		if _, err := s.pool.Exec(t.Context(), db.n.sql(`VACUUM {messages}`)); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			var n int
			c := db.costOf(s, func() {
				claimed := db.claim(s, r)
				n = len(claimed)
				ss := make([]engine.Settlement, n)
				for i := range claimed {
					ss[i] = engine.MarkPublished(claimed[i].Receipt)
				}
				db.settle(s, 0, ss...)
			})
			if n != limit {
				t.Fatalf("claim %d: %d messages", i, n)
			}
			// The probes of 64 lanes, the read, the settlement, and dead entries that are
			// met once.
			if c.scans > 0 || c.rows > 20*limit || c.blocks > 40*limit {
				t.Errorf("claim %d and its settlement read %+v", i, c)
			}
		}
		db.sound()
	})
}

// TestRestore copies the table as a dump and a restore would: the lanes are
// computed anew, and what was ready is claimed from the copy.
func TestRestore(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		for i := range 50 {
			db.enqueue(msg("t", fmt.Sprint("key ", i%7)), msg("t", ""))
		}
		to := newDatabase(t, db.dsn, nil)
		columns := `seq, message_id, topic, ordering_key, type, headers, payload, occurred_at, available_at, created_at, state, attempts, stamp`
		var dump bytes.Buffer
		copyTable := func(db *database, f func(conn *pgx.Conn) error) {
			c, err := db.pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Release()
			must(t, f(c.Conn()))
		}
		copyTable(db, func(conn *pgx.Conn) error {
			_, err := conn.PgConn().CopyTo(t.Context(), &dump, db.n.sql(`COPY {messages} (`+columns+`) TO STDOUT`))
			return err
		})
		copyTable(to, func(conn *pgx.Conn) error {
			_, err := conn.PgConn().CopyFrom(t.Context(), &dump, to.n.sql(`COPY {messages} (`+columns+`) FROM STDIN`))
			return err
		})
		to.exec(`SELECT setval(pg_get_serial_sequence($1, 'seq'), 1000)`, to.n.sql(`{messages}`))
		if n := one[int](db, `SELECT count(*) FROM {messages} a JOIN `+to.n.sql(`{messages}`)+` b USING (message_id, seq, lane)`); n != 100 {
			t.Errorf("%d of 100 rows have the same lane", n)
		}
		got := map[string]int{}
		r := to.open()
		for {
			cs := to.claim(r, req(1000))
			if len(cs) == 0 {
				break
			}
			for _, c := range cs {
				got[c.Key]++
				to.settle(r, 0, engine.MarkPublished(c.Receipt))
			}
		}
		if len(got) != 8 || got[""] != 50 {
			t.Errorf("%v", got)
		}
		_ = s
	})
}

// TestClaimOfLargePayloads: a claim is bounded by what it carries, too, and one
// payload that is larger than that still goes.
func TestClaimOfLargePayloads(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		db.exec(`INSERT INTO {messages} (topic, type, payload_text) SELECT 't', 't', repeat('x', 1 << 20) FROM generate_series(1, 80)`)
		db.exec(`INSERT INTO {messages} (topic, type, payload) SELECT 't', 't', decode(repeat('00', 65 << 20), 'hex')`)
		var counts []int
		for {
			cs := db.claim(s, req(1000))
			if len(cs) == 0 {
				break
			}
			size, ss := 0, []engine.Settlement{}
			for _, c := range cs {
				size += len(c.Payload)
				ss = append(ss, engine.MarkPublished(c.Receipt))
			}
			if size > maxClaimBytes && len(cs) > 1 {
				t.Errorf("%d messages with %d bytes", len(cs), size)
			}
			db.settle(s, 0, ss...)
			counts = append(counts, len(cs))
		}
		sum := 0
		for _, n := range counts {
			sum += n
		}
		if sum != 81 {
			t.Errorf("%d of 81 came: %v", sum, counts)
		}
	})
}
