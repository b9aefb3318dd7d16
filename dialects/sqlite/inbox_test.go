package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/inbox"
)

func (d *database) inbox() *Inbox {
	d.t.Helper()
	in, err := NewInbox(&InboxOptions{Retention: time.Hour})
	if err != nil {
		d.t.Fatal(err)
	}
	d.exec(`CREATE TABLE IF NOT EXISTS effects (message TEXT NOT NULL)`)
	return in
}

// effect is a handler: it does something that can be counted.
func effect(message string) func(context.Context, *Tx) error {
	return func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES (?)`, message)
		return err
	}
}

func (d *database) effects(message string) int {
	d.t.Helper()
	return one[int](d, `SELECT count(*) FROM effects WHERE message = ?`, message)
}

func TestInboxProcess(t *testing.T) {
	d := newDatabase(t, nil)
	in := d.inbox()
	process := func(key inbox.Key, want inbox.Outcome) {
		t.Helper()
		got, err := in.Process(t.Context(), d.db, key, effect(key.Message))
		if err != nil || got != want {
			t.Fatalf("%.60v is %v (%v), want %v", key, got, err, want)
		}
	}
	id := engine.NewID().String()
	process(inbox.Key{Consumer: "a", Message: id}, inbox.Fresh)
	process(inbox.Key{Consumer: "a", Message: id}, inbox.Repeat)
	process(inbox.Key{Consumer: "a", Message: strings.ToUpper(id)}, inbox.Repeat)
	process(inbox.Key{Consumer: "b", Message: id}, inbox.Fresh)
	if n := d.effects(id); n != 2 {
		t.Errorf("two consumers had the effect %d times", n)
	}
	// Ids that a column could cut, fold or refuse are different ones.
	long := strings.Repeat("x", 300)
	for _, m := range []string{long + "1", long + "2", "m", "M", "m ", " m", "é", "e\u0301"} {
		process(inbox.Key{Consumer: "a", Message: m}, inbox.Fresh)
		process(inbox.Key{Consumer: "a", Message: m}, inbox.Repeat)
	}
	if _, err := in.Process(t.Context(), d.db, inbox.Key{Consumer: "a"}, effect("")); err == nil {
		t.Error("a message without an id was processed")
	}
}

// TestInboxFailed: after a failure nothing of the message is there, and it is fresh.
func TestInboxFailed(t *testing.T) {
	d := newDatabase(t, nil)
	in := d.inbox()
	key := inbox.Key{Consumer: "a", Message: "m"}
	boom := errors.New("boom")
	if got, err := in.Process(t.Context(), d.db, key, func(ctx context.Context, tx *Tx) error {
		return errors.Join(effect("m")(ctx, tx), boom)
	}); !errors.Is(err, boom) || got != 0 {
		t.Errorf("the handler's error came as %v, %v", got, err)
	}
	func() {
		defer func() {
			if p := recover(); p != "panic" {
				t.Errorf("the handler's panic came as %v", p)
			}
		}()
		_, err := in.Process(t.Context(), d.db, key, func(ctx context.Context, tx *Tx) error {
			if err := effect("m")(ctx, tx); err != nil {
				return err
			}
			panic("panic")
		})
		t.Errorf("Process returned %v", err)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	if got, err := in.Process(ctx, d.db, key, func(ctx context.Context, tx *Tx) error {
		err := effect("m")(ctx, tx)
		cancel()
		return err
	}); !errors.Is(err, context.Canceled) || got != 0 || errors.Is(err, engine.ErrCommitUnknown) {
		t.Errorf("a context that ended before the commit gave %v, %v", got, err)
	}
	if n := d.effects("m"); n != 0 {
		t.Errorf("%d effects after failures", n)
	}
	if got, err := in.Process(t.Context(), d.db, key, effect("m")); err != nil || got != inbox.Fresh {
		t.Errorf("after failures it is %v, %v", got, err)
	}
}

// TestInboxTwoAtOnce: the second waits for the first, and is a repeat if that
// commits, fresh if it rolls back.
func TestInboxTwoAtOnce(t *testing.T) {
	d := newDatabase(t, nil)
	in := d.inbox()
	other := d.connect(noWait) // so that it is refused at once, and comes again
	for _, fails := range []bool{false, true} {
		key := inbox.Key{Consumer: "a", Message: engine.NewID().String()}
		boom := errors.New("boom")
		type result struct {
			outcome inbox.Outcome
			err     error
		}
		second := make(chan result, 1)
		_, err := in.Process(t.Context(), d.db, key, func(ctx context.Context, tx *Tx) error {
			if err := effect(key.Message)(ctx, tx); err != nil {
				return err
			}
			if _, err := other.ExecContext(ctx, beginSQL); !busy(err) {
				t.Errorf("the first has no write lock: %v", err)
			}
			go func() {
				o, err := in.Process(t.Context(), other, key, effect(key.Message))
				second <- result{o, err}
			}()
			if fails {
				return boom
			}
			return nil
		})
		if fails != errors.Is(err, boom) {
			t.Errorf("the first: %v", err)
		}
		want := result{inbox.Repeat, nil}
		if fails {
			want.outcome = inbox.Fresh
		}
		if got := <-second; got != want {
			t.Errorf("the first fails: %v; the second is %v, want %v", fails, got, want)
		}
		if n := d.effects(key.Message); n != 1 {
			t.Errorf("the first fails: %v; %d effects", fails, n)
		}
	}
}

// TestInboxRecord: in the caller's own transaction, beside an enqueue.
func TestInboxRecord(t *testing.T) {
	d := newDatabase(t, nil)
	in := d.inbox()
	for _, step := range []struct{ commit, want bool }{{false, true}, {true, true}, {true, false}} {
		tx, err := d.db.BeginTx(t.Context(), nil)
		must(t, err)
		fresh, err := in.Record(t.Context(), tx, inbox.Key{Consumer: "a", Message: "m"})
		if err != nil || fresh != step.want {
			t.Errorf("fresh is %v (%v), want %v", fresh, err, step.want)
		}
		if fresh {
			_, err := d.w.Enqueue(t.Context(), tx, msg("follows", ""))
			must(t, err)
		}
		if step.commit {
			must(t, tx.Commit())
		} else {
			must(t, tx.Rollback())
		}
	}
	if n := one[int](d, `SELECT count(*) FROM {messages}`); n != 1 {
		t.Errorf("%d messages follow", n)
	}
}

func TestInboxPurge(t *testing.T) {
	d := newDatabase(t, nil)
	in := d.inbox()
	for _, m := range []string{"1", "2", "3", "4", "5"} {
		if _, err := in.Process(t.Context(), d.db, inbox.Key{Consumer: "a", Message: m}, effect(m)); err != nil {
			t.Fatal(err)
		}
	}
	minute := time.Minute.Microseconds()
	d.exec(`UPDATE {inbox} SET recorded_at = recorded_at - ? WHERE message < '4'`, 59*minute)
	for _, want := range []int{0, 2, 1, 0} {
		if n, err := in.Purge(t.Context(), d.db, 2); err != nil || n != want {
			t.Errorf("Purge: %d, %v, want %d", n, err, want)
		}
		if want == 0 {
			d.exec(`UPDATE {inbox} SET recorded_at = recorded_at - ? WHERE message < '4'`, minute)
		}
	}
	if n := one[int](d, `SELECT count(*) FROM {inbox}`); n != 2 {
		t.Errorf("%d records are left", n)
	}
	if _, err := in.Purge(t.Context(), d.db, 0); err == nil {
		t.Error("a purge of nothing")
	}
}

func TestInboxOptions(t *testing.T) {
	for _, o := range []*InboxOptions{{Prefix: "a-b"}, {Prefix: "sqlite_"}, {Retention: -1}, {Prefix: strings.Repeat("p", 40)}} {
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
