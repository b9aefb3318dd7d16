package mysql

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/outward-dev/outward/engine"
)

// An id that is waiting already undoes the call, not the transaction.
func TestDuplicateID(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		known := d.enqueue(msg("t", "k"))[0]
		for _, n := range []int{1, 2, maxRows, 2*maxRows + 3} {
			tx, err := d.db.BeginTx(t.Context(), nil)
			must(t, err)
			msgs := make([]engine.Message, n)
			for i := range msgs {
				msgs[i] = msg("t", "other")
			}
			msgs[n-1].ID = known
			if _, err := d.w.Enqueue(t.Context(), tx, msgs...); !errors.Is(err, engine.ErrDuplicateID) {
				t.Fatalf("%d messages: %v", n, err)
			}
			ids, err := d.w.Enqueue(t.Context(), tx, msg("t", "after"))
			must(t, err)
			must(t, tx.Commit())
			if got := one[int](d, `SELECT COUNT(*) FROM {messages} WHERE ordering_key = 'other'`); got != 0 {
				t.Errorf("of a call of %d that failed %d messages are there", n, got)
			}
			if d.state(ids[0]) != "ready" {
				t.Errorf("the transaction was not usable after it")
			}
		}
	})
}

// A batch goes in in its order, whatever its length.
func TestBatches(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.open()
		for _, n := range []int{1, 2, 3, maxRows - 1, maxRows, maxRows + 1, 3*maxRows + 5} {
			msgs := make([]engine.Message, n)
			for i := range msgs {
				msgs[i] = msg("t", "k")
			}
			ids := d.enqueue(msgs...)
			c := d.claim(s, req(1000))
			if len(c) != n {
				t.Fatalf("%d of %d came", len(c), n)
			}
			var ss []engine.Settlement
			for i := range c {
				if c[i].ID != ids[i] {
					t.Fatalf("of %d, number %d is another", n, i)
				}
				ss = append(ss, engine.MarkPublished(c[i].Receipt))
			}
			d.settle(s, 0, ss...)
		}
	})
}

// What a plain INSERT by anybody can get wrong is an error of that INSERT, in a session
// without strict mode too.
func TestBadInserts(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		mariadb := strings.Contains(one[string](d, `SELECT VERSION()`), "MariaDB")
		for _, mode := range []string{"STRICT_ALL_TABLES", ""} {
			conn, err := d.db.Conn(t.Context())
			must(t, err)
			defer conn.Close()
			_, err = conn.ExecContext(t.Context(), `SET SESSION sql_mode = ?`, mode)
			must(t, err)
			for what, insert := range map[string]string{
				"an empty topic":   `INSERT INTO {messages} (topic, type) VALUES ('', 'a')`,
				"an empty type":    `INSERT INTO {messages} (topic, type) VALUES ('t', '')`,
				"a long topic":     `INSERT INTO {messages} (topic, type) VALUES (REPEAT('x', 256), 'a')`,
				"a longer topic":   `INSERT INTO {messages} (topic, type) VALUES (REPEAT('x', 400), 'a')`,
				"a long key":       `INSERT INTO {messages} (topic, type, ordering_key) VALUES ('t', 'a', REPEAT('x', 301))`,
				"an array":         `INSERT INTO {messages} (topic, type, headers) VALUES ('t', 'a', '["x"]')`,
				"two payloads":     `INSERT INTO {messages} (topic, type, payload, payload_text) VALUES ('t', 'a', 'x', 'y')`,
				"a zero date":      `INSERT INTO {messages} (topic, type, occurred_at) VALUES ('t', 'a', '0000-00-00')`,
				"no date":          `INSERT INTO {messages} (topic, type, available_at) VALUES ('t', 'a', 'soon')`,
				"a number":         `INSERT INTO {messages} (topic, type, headers) VALUES ('t', 'a', '{"n": 1}')`,
				"no JSON":          `INSERT INTO {messages} (topic, type, headers) VALUES ('t', 'a', 'x=y')`,
				"a state of which": `INSERT INTO {messages} (topic, type, state) VALUES ('t', 'a', 7)`,
			} {
				_, err := conn.ExecContext(t.Context(), d.n.sql(insert))
				if what == "a number" && mariadb {
					continue // it is found when it is claimed
				}
				var refused *mysql.MySQLError
				if !errors.As(err, &refused) {
					t.Errorf("%s, mode %q: %v; it must be refused", what, mode, err)
				}
			}
		}
	})
}

// The table is a public contract: a plain INSERT of what one has is enough.
func TestAPlainInsert(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		s := d.open()
		d.exec(`INSERT INTO {messages} (topic, type, payload_text) VALUES ('orders', 'order.placed.v1', '{"ü": 1}')`)
		d.exec(`INSERT INTO {messages} (topic, type, ordering_key, payload, headers) VALUES ('orders', 'order.placed.v1', 'K ', x'00ff', '{"a": "b"}'), ('orders', 'order.placed.v1', 'k', x'', '{}')`)
		c := d.claim(s, req(10))
		if len(c) != 3 {
			t.Fatalf("%d came", len(c))
		}
		if string(c[0].Payload) != `{"ü": 1}` || c[0].ID.IsZero() || c[0].ContentType != "application/json" || c[0].Bad != nil {
			t.Errorf("%+v", c[0])
		}
		if string(c[1].Payload) != "\x00\xff" || c[1].Key != "K " || c[1].Headers["a"] != "b" || c[1].ID == c[2].ID || c[2].Key != "k" || c[2].Payload == nil {
			t.Errorf("%+v\n%+v", c[1], c[2])
		}
		if n := one[int](d, `SELECT COUNT(*) FROM {all} WHERE status = 'ready'`); n != 3 {
			t.Errorf("the view shows %d", n)
		}
	})
}

// InTx gives the same ids again after a deadlock, and reports an unknown COMMIT.
func TestInTx(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		woken := 0
		w, err := NewWriter(&Options{Prefix: d.opts.Prefix, Wake: func() { woken++ }})
		must(t, err)
		var tries [][]engine.ID
		err = w.InTx(t.Context(), d.db, func(tx *Tx) error {
			ids, err := w.Enqueue(t.Context(), tx, msg("t", "a"), msg("t", "b"))
			must(t, err)
			if tries = append(tries, ids); len(tries) < 3 {
				return &mysql.MySQLError{Number: []uint16{errDeadlock, errLockWait}[len(tries)-1], Message: "planted"}
			}
			return nil
		})
		must(t, err)
		if len(tries) != 3 || tries[0][0] != tries[2][0] || tries[0][1] != tries[2][1] || woken != 1 {
			t.Errorf("%v, woken %d times", tries, woken)
		}
		if n := one[int](d, `SELECT COUNT(*) FROM {messages}`); n != 2 {
			t.Errorf("%d messages are there", n)
		}
		own := errors.New("no")
		if err := w.InTx(t.Context(), d.db, func(tx *Tx) error {
			_, err := w.Enqueue(t.Context(), tx, msg("t", "c"))
			return errors.Join(err, own)
		}); !errors.Is(err, own) {
			t.Error(err)
		}
		if err := w.InTx(t.Context(), d.db, func(*Tx) error { return nil }); err != nil || woken != 1 {
			t.Errorf("%v, woken %d times; nothing was enqueued", err, woken)
		}
		if n := one[int](d, `SELECT COUNT(*) FROM {messages}`); n != 2 {
			t.Errorf("%d messages are there", n)
		}
	})
}

func TestAgain(t *testing.T) {
	for err, want := range map[error]bool{
		&mysql.MySQLError{Number: 1213}: true, &mysql.MySQLError{Number: 1205}: true, &mysql.MySQLError{Number: 1020}: true,
		&mysql.MySQLError{Number: 3101}: true, &mysql.MySQLError{Number: 1062}: false, mysql.ErrInvalidConn: false, sql.ErrConnDone: false,
	} {
		if again(err) != want {
			t.Errorf("%v: run again: %v", err, !want)
		}
	}
}
