package postgres

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
)

func TestZZExplain(t *testing.T) {
	if os.Getenv("PROF") == "" {
		t.Skip()
	}
	db := newDatabase(t, testservers.DSN(t, os.Getenv("PROF")), nil)
	s := db.open()
	k, _ := strconv.Atoi(os.Getenv("KEYS"))
	db.fill(100000, k, "bench")
	db.exec(`VACUUM ANALYZE {messages}`)
	db.drain(s, 1, 1000, 20000)
	tx, _ := db.pool.Begin(t.Context())
	defer tx.Rollback(t.Context())
	tok := uuidOf(engine.NewID())
	ex := func(sql string, args ...any) {
		rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+sql, args...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			if len(l) > 200 {
				l = l[:200]
			}
			fmt.Println(l)
		}
		fmt.Println("-----")
	}
	ex(s.q.promote)
	ex(s.q.unpark)
	ex(s.q.lease, tok, int64(1e7), "w", 8)
	ex(s.q.suspect, tok)
	ex(s.q.read, tok, 1000)
	rows, _ := tx.Query(t.Context(), s.q.read, tok, 1000)
	r := &look{}
	if err := r.scan(rows); err != nil {
		t.Fatal(err)
	}
	var lanes, ts []int16
	var seqs []int64
	var stamps []int32
	for i := range r.rows {
		lanes, seqs, stamps, ts = append(lanes, r.rows[i].lane), append(seqs, r.rows[i].Receipt.Seq), append(stamps, r.rows[i].stamp), append(ts, 1)
	}
	ex(s.q.hand, tok, lanes, seqs, stamps)
	ex(s.q.publish, seqs, lanes, ts, []pgtype.UUID{tok})
}
