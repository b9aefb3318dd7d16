package mysql

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/outward-dev/outward/engine"
)

func TestLongLists(t *testing.T) {
	list := make([]int64, 2*maxIn+1)
	for i := range list {
		list[i] = int64(i)
	}
	got := text(`UPDATE x SET a = ? WHERE m.seq IN (?) AND (b = ? OR c IN (?))`, 7, list, 8, []int64{1, 2})
	for _, want := range []string{"SET a = 7 WHERE (m.seq IN (0,1,", ",899) OR m.seq IN (900,", ",1799) OR m.seq IN (1800)) AND (b = 8 OR c IN (1,2))"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %.200s … %s", want, got, got[len(got)-60:])
		}
	}
	if got := text(`DELETE FROM x WHERE id IN (?)`, list[:maxIn]); strings.Contains(got, "OR") || !strings.HasSuffix(got, "899)") {
		t.Errorf("%.60s … %s", got, got[len(got)-20:])
	}
}

// Whatever text is written into a statement comes back as it was, in every sql_mode.
func TestTextIsSafe(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, mode := range []string{"", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT", "ANSI,STRICT_ALL_TABLES"} {
			conn, err := d.db.Conn(t.Context())
			must(t, err)
			defer conn.Close()
			_, err = conn.ExecContext(t.Context(), `SET SESSION sql_mode = ?`, mode)
			must(t, err)
			for _, s := range []string{"", "plain", `'; DROP TABLE x; --`, `\'`, `\`, `"`, "`", "?", "a?b", "\x00\n\r\x1a", "äß€😀", strings.Repeat("x", 70000)} {
				var got string
				must(t, conn.QueryRowContext(t.Context(), text(`SELECT ?`, s)).Scan(&got))
				if got != s {
					t.Errorf("%q, mode %q: came back as %q", s, mode, got)
				}
			}
			var a, b, c, e, f string
			must(t, conn.QueryRowContext(t.Context(), text(`SELECT ?, ?, ?, ?, 5 IN (?)`, int64(-1<<63), true, false, int16(-5), []int64{})).Scan(&a, &b, &c, &e, new(sql.NullInt64)))
			if a != "-9223372036854775808" || b != "1" || c != "0" || e != "-5" {
				t.Error(a, b, c, e, f)
			}
			id := engine.NewID()
			var raw []byte
			must(t, conn.QueryRowContext(context.Background(), text(`SELECT ?`, id)).Scan(&raw))
			if engine.ID(raw) != id {
				t.Errorf("an id came back as %x", raw)
			}
		}
	})
}
