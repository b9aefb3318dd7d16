package postgres

import (
	"context"

	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outward-dev/outward/engine"
)

const execMode = pgx.QueryExecModeExec

// full is a message with something in every field, and everything in the text that
// has broken somebody's quoting.
func full() engine.Message {
	return engine.Message{
		ID: engine.NewID(), Topic: `order."x'y\z`, Key: "kéy-😀\n\\x00", Type: "order.submitted.v1",
		AggregateType: "order", AggregateID: "42", AggregateVersion: 7, CorrelationID: "c-1", ContentType: "text/plain; charset=utf-8",
		Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", `q"'\`: "<&>\n\té😀"},
		Payload: []byte("quotes ' \" backslash \\ \\u00e9 😀\n\x00\xff"), OccurredAt: time.Date(2026, 2, 3, 4, 5, 6, 789_123_000, time.UTC),
	}
}

func same(t *testing.T, got engine.Claimed, want engine.Message) {
	t.Helper()
	got.Delay, want.Delay = 0, 0
	a, _ := json.Marshal(got.Message)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("came back as\n  %s, want\n  %s", a, b)
	}
}

// TestRoundTripModes moves a message through every mode that pgx has, for a pooler
// dictates which ones can be used.
func TestRoundTripModes(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
			pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(mode.String(), func(t *testing.T) {
				db := *db
				db.t = t
				s := db.open(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
				want := []engine.Message{full(), {ID: engine.NewID(), Topic: "t", Type: "t", ContentType: engine.DefaultContentType, Payload: []byte{}}}
				err := db.w.InTx(t.Context(), s.pool, func(tx pgx.Tx) error {
					_, err := db.w.Enqueue(t.Context(), tx, want...)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				got := db.claim(s, req(10))
				if len(got) != 2 {
					t.Fatalf("%d messages", len(got))
				}
				same(t, got[0], want[0])
				want[1].OccurredAt = got[1].OccurredAt
				if got[1].Headers != nil || got[1].Payload == nil || len(got[1].Payload) != 0 {
					t.Errorf("an empty payload and no headers came back as %v, %v", got[1].Payload, got[1].Headers)
				}
				if lost, err := s.Extend(t.Context(), []engine.Receipt{got[0].Receipt, got[1].Receipt}, time.Minute); err != nil || len(lost) > 0 {
					t.Fatal(lost, err)
				}
				db.settle(s, 0, engine.MarkPublished(got[0].Receipt), engine.Reschedule(got[1].Receipt, 0, engine.Fault{Err: errors.New("é'\\")}, engine.RescheduleOptions{Charge: true}))
				got = db.claim(s, engine.ClaimRequest{Limit: 10, Lease: time.Minute, Paused: []string{"t"}, PausedFor: map[string]string{"t": "nobody"}})
				if len(got) != 0 {
					t.Fatal("a paused topic came")
				}
				got = db.claim(s, req(10))
				db.settle(s, 0, engine.MarkPublished(got[0].Receipt))
				if b, err := s.Backlog(t.Context()); err != nil || b != (engine.Backlog{}) {
					t.Errorf("%+v %v", b, err)
				}
			})
		}
	})
}

// TestEnqueueSQL goes through database/sql, for batches on both sides of the sizes
// of its statements.
func TestEnqueueSQL(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		conn := stdlib.OpenDBFromPool(db.pool)
		defer conn.Close()
		s := db.open()
		for _, n := range []int{1, 2, 3, 127, 300} {
			msgs := make([]engine.Message, n)
			for i := range msgs {
				msgs[i] = full()
				msgs[i].Key = ""
				msgs[i].AggregateID = fmt.Sprint(i)
			}
			tx, err := conn.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			ids, err := db.w.EnqueueSQL(t.Context(), tx, msgs...)
			if err != nil || len(ids) != n {
				t.Fatal(len(ids), err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			var got []engine.Claimed
			for len(got) < n {
				cs := db.claim(s, req(1000))
				if len(cs) == 0 {
					t.Fatalf("%d of %d", len(got), n)
				}
				got = append(got, cs...)
			}
			for i := range got {
				db.settle(s, 0, engine.MarkPublished(got[i].Receipt))
				for j := range msgs {
					if msgs[j].ID == got[i].ID {
						same(t, got[i], msgs[j])
					}
				}
			}
		}
	})
}

// TestNoStatementsLeft: nikolayk812/pgx-outbox left one prepared statement behind
// with every call, until the server was out of memory.
func TestNoStatementsLeft(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		pool := db.newPool(func(c *pgxpool.Config) { c.MaxConns = 1 })
		defer pool.Close()
		conn := stdlib.OpenDBFromPool(pool)
		defer conn.Close()
		statements := func() (n int) {
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		round := func(size int) {
			msgs := make([]engine.Message, size)
			for i := range msgs {
				msgs[i] = msg("t", "")
			}
			if err := db.w.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := db.w.Enqueue(t.Context(), tx, msgs...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			tx, err := conn.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.w.EnqueueSQL(t.Context(), tx, msgs...); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		for size := range 40 {
			round(size + 1)
		}
		before := statements()
		for size := range 130 {
			round(size + 1)
		}
		if after := statements(); after > before+2 || after > 24 { // 64 and 128 rows are new sizes
			t.Errorf("%d prepared statements, then %d", before, after)
		}
	})
}

// TestDuplicateID: the caller's transaction stays usable and nothing of the call
// is enqueued, whichever way the double came about.
func TestDuplicateID(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		type enqueue func(msgs ...engine.Message) error
		try := func(name string, begin func() (enqueue, func(), func())) {
			t.Run(name, func(t *testing.T) {
				waiting := db.enqueue(msg("t", ""))[0]
				double := msg("t", "")
				double.ID = waiting
				put, commit, _ := begin()
				first, second := msg("first", ""), msg("second", "")
				first.ID, second.ID = engine.NewID(), engine.NewID()
				if err := put(first); err != nil {
					t.Fatal(err)
				}
				err := put(second, double, msg("third", ""))
				if !errors.Is(err, engine.ErrDuplicateID) {
					t.Fatal(err)
				}
				again := first // an id that this very transaction enqueued
				if err := put(msg("fourth", ""), again); !errors.Is(err, engine.ErrDuplicateID) {
					t.Fatal(err)
				}
				if err := put(msg("fifth", "")); err != nil {
					t.Fatalf("the transaction is not usable any more: %v", err)
				}
				commit()
				if got := one[string](db, `SELECT string_agg(topic, ' ' ORDER BY seq) FROM {messages}`); got != "t first fifth" {
					t.Errorf("enqueued: %s", got)
				}
				db.exec(`DELETE FROM {messages}`)
			})
			t.Run(name+", at the same time", func(t *testing.T) {
				double := msg("double", "")
				double.ID = engine.NewID()
				other, commitOther, _ := begin()
				if err := other(double); err != nil {
					t.Fatal(err)
				}
				put, commit, _ := begin()
				done := make(chan error, 1)
				go func() { done <- put(msg("second", ""), double, msg("third", "")) }()
				db.waitBlocked(1)
				commitOther()
				if err := <-done; !errors.Is(err, engine.ErrDuplicateID) {
					t.Fatal(err)
				}
				if err := put(msg("fourth", "")); err != nil {
					t.Fatal(err)
				}
				commit()
				if got := one[string](db, `SELECT string_agg(topic, ' ' ORDER BY seq) FROM {messages}`); got != "double fourth" {
					t.Errorf("enqueued: %s", got)
				}
				db.exec(`DELETE FROM {messages}`)
			})
		}
		try("pgx", func() (enqueue, func(), func()) {
			tx, err := db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return func(msgs ...engine.Message) error {
					_, err := db.w.Enqueue(t.Context(), tx, msgs...)
					return err
				}, func() {
					if err := tx.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
				}, nil
		})
		conn := stdlib.OpenDBFromPool(db.pool)
		defer conn.Close()
		try("database/sql", func() (enqueue, func(), func()) {
			tx, err := conn.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return func(msgs ...engine.Message) error {
					_, err := db.w.EnqueueSQL(t.Context(), tx, msgs...)
					return err
				}, func() {
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
				}, nil
		})
	})
}

// waitBlocked waits until n sessions of this test wait for a lock.
func (db *database) waitBlocked(n int) {
	db.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if one[int](db, `SELECT count(*) FROM pg_stat_activity a WHERE a.wait_event_type = 'Lock' AND a.query LIKE '%' || $1::text || '%'`, db.opts.Schema) >= n {
			return
		}
	}
	db.t.Fatal("nobody waits for a lock")
}

// TestBadInput: what can be seen without the database is said before the first
// statement, all of it, by index; a foreign writer's INSERT is refused by the table.
func TestBadInput(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		w, err := NewWriter(&Options{Schema: db.opts.Schema, MaxPayload: 1000, KeyPrefix: "tenant/", Check: func(m engine.Message) error {
			if m.Type == "unknown.v1" {
				return errors.New("no such contract")
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		long := msg("t", strings.Repeat("k", 250)) // fits without the prefix
		unknown := msg("t", "")
		unknown.Type = "unknown.v1"
		large := msg("t", "")
		large.Payload = make([]byte, 1001)
		_, err = w.Enqueue(t.Context(), tx, msg("", ""), msg("t", "ok"), long, unknown, large, msg("\x00", ""), msg("\xff", ""))
		for _, want := range []string{"message 0", "message 2", "message 3", "no such contract", "message 4", "message 5", "message 6"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		if _, err := w.Enqueue(t.Context(), tx, msg("t", "ok")); err != nil {
			t.Errorf("the transaction was touched: %v", err)
		}
		if key := ""; tx.QueryRow(t.Context(), db.n.sql(`SELECT ordering_key FROM {messages}`)).Scan(&key) != nil || key != "tenant/ok" {
			t.Errorf("key %q", key)
		}
		if _, err := w.Enqueue(t.Context(), nil, msg("t", "")); err == nil {
			t.Error("a nil transaction was accepted")
		}
		if _, err := w.EnqueueSQL(t.Context(), nil, msg("t", "")); err == nil {
			t.Error("a nil transaction was accepted")
		}
		if ids, err := w.Enqueue(t.Context(), tx); err != nil || len(ids) != 0 {
			t.Error(ids, err)
		}

		for what, insert := range map[string]string{
			"empty topic":         `(topic, type) VALUES ('', 't')`,
			"no topic":            `(type) VALUES ('t')`,
			"empty type":          `(topic, type) VALUES ('t', '')`,
			"long topic":          `(topic, type) VALUES (repeat('t', 256), 't')`,
			"topic of blanks":     `(topic, type) VALUES ('t' || repeat(' ', 255), 't')`, // a varchar would cut it
			"long key":            `(topic, type, ordering_key) VALUES ('t', 't', repeat('é', 256))`,
			"header array":        `(topic, type, headers) VALUES ('t', 't', '["a"]')`,
			"header string":       `(topic, type, headers) VALUES ('t', 't', '"a"')`,
			"header number":       `(topic, type, headers) VALUES ('t', 't', '{"a": 1}')`,
			"header list":         `(topic, type, headers) VALUES ('t', 't', '{"a": ["b"]}')`,
			"header null":         `(topic, type, headers) VALUES ('t', 't', '{"a": null}')`,
			"header object":       `(topic, type, headers) VALUES ('t', 't', '{"a": {}}')`,
			"two payloads":        `(topic, type, payload, payload_text) VALUES ('t', 't', '\x00', 'a')`,
			"infinite occurrence": `(topic, type, occurred_at) VALUES ('t', 't', 'infinity')`,
			"own lane":            `(topic, type, lane) VALUES ('t', 't', 1)`,
			"own number":          `(topic, type, seq) VALUES ('t', 't', 1)`,
			"state":               `(topic, type, state) VALUES ('t', 't', 4)`,
		} {
			if _, err := db.pool.Exec(t.Context(), db.n.sql(`INSERT INTO {messages} `+insert)); err == nil {
				t.Errorf("%s: the table accepted it", what)
			}
		}
		db.exec(`INSERT INTO {messages} (topic, type, ordering_key, headers) VALUES (repeat('é', 255), 't', repeat('é', 255), '{"a": "1", "b": ""}')`)
	})
}

// TestForeignWriter is the program in another language: one INSERT of what it has.
func TestForeignWriter(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		s := db.open()
		text := "'quotes' \"and\" \\ \\u00e9 😀\nnew line"
		db.exec(`INSERT INTO {messages} (topic, type, payload_text) VALUES ('t', 'v1', $1)`, text)
		db.exec(`INSERT INTO {messages} (topic, type, ordering_key, payload_text, available_at) VALUES ('t', 'v1', '', 'later', now() + interval '1 hour')`)
		db.exec(`INSERT INTO {messages} (topic, type, ordering_key) VALUES ('t', 'v1', '')`)
		c := db.claim(s, req(10))
		if len(c) != 2 || string(c[0].Payload) != text || c[0].ID.IsZero() || c[0].ContentType != engine.DefaultContentType || c[1].Key != "" || c[1].Payload != nil {
			t.Fatalf("%+v", c)
		}
		if time.Since(c[0].CreatedAt).Abs() > time.Hour || time.Since(c[0].OccurredAt).Abs() > time.Hour {
			t.Errorf("created %v, occurred %v", c[0].CreatedAt, c[0].OccurredAt)
		}
		db.settle(s, 0, engine.MarkPublished(c[0].Receipt), engine.MarkPublished(c[1].Receipt))
		db.shift(2 * time.Hour)
		if c := db.claim(s, req(10)); len(c) != 1 || string(c[0].Payload) != "later" {
			t.Fatalf("%+v", c)
		}
	})
}

// TestInTx: same ids again after a serialization failure; a function that fails
// rolls back; a commit wakes.
func TestInTx(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		woken := 0
		w, err := NewWriter(&Options{Schema: db.opts.Schema, Wake: func() { woken++ }})
		if err != nil {
			t.Fatal(err)
		}
		db.exec(`CREATE TABLE {schema}.account (id int PRIMARY KEY, n int NOT NULL)`)
		db.exec(`INSERT INTO {schema}.account VALUES (1, 0)`)
		var tries [][]engine.ID
		err = w.InTxOptions(t.Context(), db.pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
			var n int
			if err := tx.QueryRow(t.Context(), db.n.sql(`SELECT n FROM {schema}.account WHERE id = 1`)).Scan(&n); err != nil {
				return err
			}
			a, err := w.Enqueue(t.Context(), tx, msg("t", ""), msg("t", ""))
			if err != nil {
				return err
			}
			nested, err := tx.Begin(t.Context())
			if err != nil {
				return err
			}
			b, err := w.Enqueue(t.Context(), nested, msg("t", ""))
			if err != nil {
				return err
			}
			if err := nested.Commit(t.Context()); err != nil {
				return err
			}
			tries = append(tries, append(a, b...))
			if len(tries) < 3 { // somebody else is quicker
				db.exec(`UPDATE {schema}.account SET n = n + 1 WHERE id = 1`)
			}
			_, err = tx.Exec(t.Context(), db.n.sql(`UPDATE {schema}.account SET n = $1 WHERE id = 1`), n+10)
			return err
		})
		if err != nil || len(tries) != 3 || woken != 1 {
			t.Fatalf("%v after %d tries, woken %d times", err, len(tries), woken)
		}
		for _, ids := range tries {
			if fmt.Sprint(ids) != fmt.Sprint(tries[0]) {
				t.Errorf("ids changed: %v, then %v", tries[0], ids)
			}
		}
		if n := one[int](db, `SELECT count(*) FROM {messages}`); n != 3 {
			t.Errorf("%d messages", n)
		}

		mine := errors.New("mine")
		if err := w.InTx(t.Context(), db.pool, func(tx pgx.Tx) error {
			_, err := w.Enqueue(t.Context(), tx, msg("t", ""))
			return errors.Join(mine, err)
		}); !errors.Is(err, mine) {
			t.Error(err)
		}
		if err := w.InTx(t.Context(), db.pool, func(tx pgx.Tx) error { return nil }); err != nil {
			t.Error(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = w.InTx(t.Context(), db.pool, func(tx pgx.Tx) error {
				_, _ = w.Enqueue(t.Context(), tx, msg("t", ""))
				panic("oh")
			})
		}()
		if n := one[int](db, `SELECT count(*) FROM {messages}`); n != 3 || woken != 1 {
			t.Errorf("%d messages, woken %d times", n, woken)
		}
	})
}

// TestCommitUnknown (jackc/pgx#2110): a COMMIT whose answer is lost is neither
// repeated nor taken for a failure; one that was never sent is.
func TestCommitUnknown(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		w := &wire{}
		pool := db.newPool(w.through)
		defer pool.Close()
		calls := 0
		put := func(tx pgx.Tx) error {
			calls++
			_, err := db.w.Enqueue(t.Context(), tx, msg("t", ""))
			return err
		}
		w.cut("commit\x00", true)
		if err := db.w.InTx(t.Context(), pool, put); !errors.Is(err, engine.ErrCommitUnknown) || calls != 1 {
			t.Errorf("committed, and the answer was lost: %v after %d calls", err, calls)
		}
		if n := one[int](db, `SELECT count(*) FROM {messages}`); n != 1 {
			t.Errorf("%d messages", n)
		}
		calls = 0
		w.cut("commit\x00", false)
		if err := db.w.InTx(t.Context(), pool, put); err == nil || calls != 1 {
			t.Errorf("cut before the commit arrived: %v after %d calls", err, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := db.w.InTx(ctx, pool, func(tx pgx.Tx) error { cancel(); return nil }); err == nil || errors.Is(err, engine.ErrCommitUnknown) {
			t.Errorf("the context ended before the commit was sent: %v", err)
		}
		for _, c := range []struct {
			err  error
			want bool
		}{
			{&pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"}, false},
			{&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "40001"}, true},
			{pgx.ErrTxCommitRollback, true},
			{context.DeadlineExceeded, false},
		} {
			if got := rolledBack(fmt.Errorf("commit: %w", c.err)); got != c.want {
				t.Errorf("%v proves a rollback: %v", c.err, got)
			}
		}
	})
}

// TestSerializeKey: two transactions that write a key at the same time are
// numbered in the order of their commits; others don't wait.
func TestSerializeKey(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		w, err := NewWriter(&Options{Schema: db.opts.Schema, SerializeKey: true})
		if err != nil {
			t.Fatal(err)
		}
		first, err := db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer first.Rollback(context.Background())
		if _, err := w.Enqueue(t.Context(), first, msg("1", "k"), msg("1", "j"), msg("1", "")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- w.InTx(t.Context(), db.pool, func(tx pgx.Tx) error {
				_, err := w.Enqueue(t.Context(), tx, msg("2", "i"), msg("2", "k"))
				return err
			})
		}()
		if err := w.InTx(t.Context(), db.pool, func(tx pgx.Tx) error {
			_, err := w.Enqueue(t.Context(), tx, msg("3", "other"), msg("3", ""))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
			if one[int](db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0 {
				break
			}
		}
		if _, err := w.Enqueue(t.Context(), first, msg("1", "k")); err != nil {
			t.Fatal(err)
		}
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := one[string](db, `SELECT string_agg(topic, '' ORDER BY seq) FROM {messages} WHERE ordering_key = 'k'`); got != "112" {
			t.Errorf("numbered as %s", got)
		}
	})
}

// TestNotifyCoalesces: many calls at a time, few signals.
func TestNotifyCoalesces(t *testing.T) {
	db := &counted{started: make(chan struct{}, 1), release: make(chan struct{})}
	w, err := NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Notify(t.Context(), db) })
	<-db.started
	for range 50 {
		if err := w.Notify(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	close(db.release)
	wg.Wait()
	if db.n != 2 {
		t.Errorf("%d signals for 51 calls at a time, want 2", db.n)
	}
}

type counted struct {
	n       int
	started chan struct{}
	release chan struct{}
}

func (c *counted) Exec(ctx context.Context, _ string, _ ...any) (pgconn.CommandTag, error) {
	if c.n++; c.n == 1 {
		c.started <- struct{}{}
		<-c.release
	}
	return pgconn.CommandTag{}, nil
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Schema: `a"b`}, {Schema: "1a"}, {Prefix: "a-b"}, {Prefix: strings.Repeat("a", 33)},
		{Schema: strings.Repeat("s", 40), Prefix: strings.Repeat("p", 30)}, {MaxPayload: -1}} {
		if _, err := NewWriter(&o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	_, err := NewStore(nil, &Options{Schema: "a b", Retention: &Retention{Published: -1}})
	for _, want := range []string{"schema", "pool", "retention"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("not all faults at once: %v", err)
		}
	}
	if _, err := Migrations(&Options{Retention: &Retention{}}); err == nil {
		t.Error("a retention of nothing for discarded messages was accepted")
	}
}
