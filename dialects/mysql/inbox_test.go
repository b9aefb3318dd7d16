package mysql

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
	in, err := NewInbox(&InboxOptions{Prefix: d.opts.InboxPrefix, Retention: time.Hour})
	must(d.t, err)
	d.exec("CREATE TABLE IF NOT EXISTS `{p}effects` (message VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL)")
	d.t.Cleanup(func() { d.exec("DROP TABLE `{p}effects`") })
	return in
}

// effect is a handler: it does something that can be counted.
func (d *database) effect(message string) func(context.Context, *Tx) error {
	return func(ctx context.Context, tx *Tx) error {
		_, err := tx.ExecContext(ctx, d.n.sql("INSERT INTO `{p}effects` VALUES (?)"), message)
		return err
	}
}

func (d *database) effects(message string) int {
	d.t.Helper()
	return one[int](d, "SELECT COUNT(*) FROM `{p}effects` WHERE message = ?", message)
}

func TestInboxProcess(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		in := d.inbox()
		process := func(key inbox.Key, want inbox.Outcome) {
			t.Helper()
			got, err := in.Process(t.Context(), d.db, key, d.effect(key.Message))
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
		for _, m := range []string{long + "1", long + "2", "m", "M", "m ", " m", "é", "e\u0301", "😀"} {
			process(inbox.Key{Consumer: "a", Message: m}, inbox.Fresh)
			process(inbox.Key{Consumer: "a", Message: m}, inbox.Repeat)
		}
		boom := errors.New("boom")
		key := inbox.Key{Consumer: "a", Message: "fails"}
		if got, err := in.Process(t.Context(), d.db, key, func(ctx context.Context, tx *Tx) error {
			return errors.Join(d.effect("fails")(ctx, tx), boom)
		}); !errors.Is(err, boom) || got != 0 {
			t.Errorf("the handler's error came as %v, %v", got, err)
		}
		process(key, inbox.Fresh)
		if n := d.effects("fails"); n != 1 {
			t.Errorf("%d effects", n)
		}
		d.exec(`UPDATE {inbox} SET recorded_at = recorded_at - INTERVAL 2 HOUR WHERE consumer = 'b'`)
		tx, err := d.db.BeginTx(t.Context(), nil)
		must(t, err)
		defer tx.Rollback() //nolint:errcheck // it is what the test leaves open
		if fresh, err := in.Record(t.Context(), tx, inbox.Key{Consumer: "a", Message: "under way"}); !fresh || err != nil {
			t.Errorf("%v, %v", fresh, err)
		}
		soon, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if n, err := in.Purge(soon, d.db, 10); n != 1 || err != nil {
			t.Errorf("beside a consumer at work %d purged, %v", n, err)
		}
	})
}

// TestInboxTwoAtOnce: the second waits for the first, and is a repeat if that
// commits, fresh if it rolls back.
func TestInboxTwoAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		in := d.inbox()
		for _, fails := range []bool{false, true} {
			key := inbox.Key{Consumer: "a", Message: engine.NewID().String()}
			boom := errors.New("boom")
			type result struct {
				outcome inbox.Outcome
				err     error
			}
			second := make(chan result, 1)
			_, err := in.Process(t.Context(), d.db, key, func(ctx context.Context, tx *Tx) error {
				if err := d.effect(key.Message)(ctx, tx); err != nil {
					return err
				}
				go func() {
					o, err := in.Process(t.Context(), d.db, key, d.effect(key.Message))
					second <- result{o, err}
				}()
				d.waiting(key.Message)
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
	})
}

// waiting returns when somebody's INSERT of a message is under way.
func (d *database) waiting(message string) {
	d.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if one[int](d, `SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE CONCAT('INSERT INTO %', ?, '%messages%') AND id <> CONNECTION_ID()`, d.opts.InboxPrefix) > 0 {
			return
		}
	}
	d.t.Fatalf("nobody waits for %s", message)
}
