package postgres

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/inbox"
)

func (db *database) inbox() *Inbox {
	db.t.Helper()
	in, err := NewInbox(&InboxOptions{Schema: db.opts.Schema, Retention: time.Hour})
	if err != nil {
		db.t.Fatal(err)
	}
	db.exec(`CREATE TABLE IF NOT EXISTS {schema}.effects (message text NOT NULL)`)
	return in
}

// effect is a handler: it does something that can be counted.
func (db *database) effect(message string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, db.n.sql(`INSERT INTO {schema}.effects VALUES ($1)`), message)
		return err
	}
}

func (db *database) effects(message string) int {
	db.t.Helper()
	return one[int](db, `SELECT count(*) FROM {schema}.effects WHERE message = $1`, message)
}

func TestInboxProcess(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in, ctx := db.inbox(), t.Context()
		process := func(key inbox.Key, want inbox.Outcome) {
			t.Helper()
			got, err := in.Process(ctx, db.pool, key, db.effect(key.Message))
			if err != nil || got != want {
				t.Fatalf("%.60v is %v (%v), want %v", key, got, err, want)
			}
		}
		id := engine.NewID().String()
		process(inbox.Key{Consumer: "a", Message: id}, inbox.Fresh)
		process(inbox.Key{Consumer: "a", Message: id}, inbox.Repeat)
		process(inbox.Key{Consumer: "a", Message: strings.ToUpper(id)}, inbox.Repeat)
		process(inbox.Key{Consumer: "b", Message: id}, inbox.Fresh)
		if n := db.effects(id); n != 2 {
			t.Errorf("two consumers had the effect %d times", n)
		}
		// Ids that a column could cut, fold or refuse are different ones.
		long := strings.Repeat("x", 300)
		for _, m := range []string{long + "1", long + "2", "m", "M", "m ", " m", "é", "e\u0301"} {
			process(inbox.Key{Consumer: "a", Message: m}, inbox.Fresh)
			process(inbox.Key{Consumer: "a", Message: m}, inbox.Repeat)
		}
		if _, err := in.Process(ctx, db.pool, inbox.Key{Consumer: "a"}, db.effect("")); err == nil {
			t.Error("a message without an id was processed")
		}
	})
}

// TestInboxFailed: after a failure nothing of the message is there, and it is fresh.
func TestInboxFailed(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.inbox()
		key := inbox.Key{Consumer: "a", Message: "m"}
		boom := errors.New("boom")
		if got, err := in.Process(t.Context(), db.pool, key, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(db.effect("m")(ctx, tx), boom)
		}); !errors.Is(err, boom) || got != 0 {
			t.Errorf("the handler's error came as %v, %v", got, err)
		}
		func() {
			defer func() {
				if p := recover(); p != "panic" {
					t.Errorf("the handler's panic came as %v", p)
				}
			}()
			_, err := in.Process(t.Context(), db.pool, key, func(ctx context.Context, tx pgx.Tx) error {
				if err := db.effect("m")(ctx, tx); err != nil {
					return err
				}
				panic("panic")
			})
			t.Errorf("Process returned %v", err)
		}()
		ctx, cancel := context.WithCancel(t.Context())
		if got, err := in.Process(ctx, db.pool, key, func(ctx context.Context, tx pgx.Tx) error {
			err := db.effect("m")(ctx, tx)
			cancel()
			return err
		}); !errors.Is(err, context.Canceled) || got != 0 || errors.Is(err, engine.ErrCommitUnknown) {
			t.Errorf("a context that ended before the commit gave %v, %v", got, err)
		}
		if n := db.effects("m"); n != 0 {
			t.Errorf("%d effects after failures", n)
		}
		if got, err := in.Process(t.Context(), db.pool, key, db.effect("m")); err != nil || got != inbox.Fresh {
			t.Errorf("after failures it is %v, %v", got, err)
		}
		if n := db.pool.Stat().AcquiredConns(); n != 0 {
			t.Errorf("%d connections were not given back", n)
		}
	})
}

// TestInboxTwoAtOnce: the second waits for the first, and is a repeat if that
// commits, fresh if it rolls back.
func TestInboxTwoAtOnce(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.inbox()
		for _, fails := range []bool{false, true} {
			key := inbox.Key{Consumer: "a", Message: engine.NewID().String()}
			boom := errors.New("boom")
			inside, goOn := make(chan struct{}), make(chan struct{})
			type result struct {
				outcome inbox.Outcome
				err     error
			}
			first, second := make(chan result, 1), make(chan result, 1)
			go func() {
				o, err := in.Process(t.Context(), db.pool, key, func(ctx context.Context, tx pgx.Tx) error {
					if err := db.effect(key.Message)(ctx, tx); err != nil {
						return err
					}
					close(inside)
					<-goOn
					if fails {
						return boom
					}
					return nil
				})
				first <- result{o, err}
			}()
			<-inside
			go func() {
				o, err := in.Process(t.Context(), db.pool, key, db.effect(key.Message))
				second <- result{o, err}
			}()
			// It waits, by the server's own word.
			for one[int](db, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%'`, db.opts.Schema) == 0 {
				if t.Context().Err() != nil || len(second) > 0 {
					t.Fatal("the second consumer did not wait")
				}
			}
			close(goOn)
			a, b := <-first, <-second
			want := result{inbox.Repeat, nil}
			if fails {
				want.outcome = inbox.Fresh
			}
			if b != want || fails != errors.Is(a.err, boom) {
				t.Errorf("the first fails: %v; it is %v, the second %v, want %v", fails, a, b, want)
			}
			if n := db.effects(key.Message); n != 1 {
				t.Errorf("the first fails: %v; %d effects", fails, n)
			}
		}
	})
}

// TestInboxRecord: in the caller's own transaction, pgx's or database/sql's.
func TestInboxRecord(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in, ctx := db.inbox(), t.Context()
		std := stdlib.OpenDBFromPool(db.pool)
		defer std.Close()
		key := inbox.Key{Consumer: "a", Message: "m"}
		for _, step := range []struct{ commit, want bool }{{false, true}, {true, true}, {true, false}} {
			tx, err := db.pool.Begin(ctx)
			must(t, err)
			fresh, err := in.Record(ctx, tx, key)
			if err != nil || fresh != step.want {
				t.Errorf("fresh is %v (%v), want %v", fresh, err, step.want)
			}
			if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
				t.Errorf("the transaction is not usable: %v", err)
			}
			if step.commit {
				must(t, tx.Commit(ctx))
			} else {
				must(t, tx.Rollback(ctx))
			}
		}
		tx, err := std.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		must(t, err)
		for i, want := range []bool{false, true, false} {
			fresh, err := in.RecordSQL(ctx, tx, inbox.Key{Consumer: "a", Message: []string{"m", "n", "n"}[i]})
			if err != nil || fresh != want {
				t.Errorf("fresh is %v (%v), want %v", fresh, err, want)
			}
		}
		must(t, tx.Commit())
	})
}

// cutCommit commits and loses the answer.
type cutCommit struct{ TxBeginner }
type cutTx struct{ pgx.Tx }

var errCut = errors.New("unexpected EOF")

func (c cutCommit) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	tx, err := c.TxBeginner.BeginTx(ctx, opts)
	return cutTx{tx}, err
}

func (tx cutTx) Commit(ctx context.Context) error { return errors.Join(tx.Tx.Commit(ctx), errCut) }

func TestInboxUnknownCommit(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in, key := db.inbox(), inbox.Key{Consumer: "a", Message: "m"}
		got, err := in.Process(t.Context(), cutCommit{db.pool}, key, db.effect("m"))
		if got != 0 || !errors.Is(err, engine.ErrCommitUnknown) || !errors.Is(err, errCut) {
			t.Errorf("an unanswered COMMIT gave %v, %v", got, err)
		}
		if got, err := in.Process(t.Context(), db.pool, key, db.effect("m")); err != nil || got != inbox.Repeat || db.effects("m") != 1 {
			t.Errorf("afterwards it is %v (%v), %d effects", got, err, db.effects("m"))
		}
	})
}

func TestInboxPurge(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		in := db.inbox()
		for _, m := range []string{"1", "2", "3", "4", "5"} {
			if _, err := in.Process(t.Context(), db.pool, inbox.Key{Consumer: "a", Message: m}, db.effect(m)); err != nil {
				t.Fatal(err)
			}
		}
		db.exec(`UPDATE {inbox} SET recorded_at = recorded_at - interval '59 minutes' WHERE message < '4'`)
		for _, want := range []int{0, 2, 1, 0} {
			if n, err := in.Purge(t.Context(), db.pool, 2); err != nil || n != want {
				t.Errorf("Purge: %d, %v, want %d", n, err, want)
			}
			if want == 0 {
				db.exec(`UPDATE {inbox} SET recorded_at = recorded_at - interval '1 minute' WHERE message < '4'`)
			}
		}
		if n := one[int](db, `SELECT count(*) FROM {inbox}`); n != 2 {
			t.Errorf("%d records are left", n)
		}
		if _, err := in.Purge(t.Context(), db.pool, 0); err == nil {
			t.Error("a purge of nothing")
		}
	})
}

func TestInboxOptions(t *testing.T) {
	for _, o := range []*InboxOptions{{Prefix: "a-b"}, {Schema: "1"}, {Retention: -1}, {Prefix: strings.Repeat("p", 40)}} {
		if _, err := NewInbox(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if _, err := NewWriter(&Options{Prefix: "x_", InboxPrefix: "x_"}); err == nil {
		t.Error("one prefix for both is accepted")
	}
	in, err := NewInbox(nil)
	if err != nil || in.retention != DefaultInboxRetention {
		t.Errorf("%+v, %v", in, err)
	}
}
