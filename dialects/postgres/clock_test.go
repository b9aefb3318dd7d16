package postgres

import (
	"testing"
	"time"
)

// The database's clock is set back by an hour after a message was enqueued: it goes
// all the same, before the next of its key. One that was asked to wait waits.
func TestClockSetBack(t *testing.T) {
	each(t, func(t *testing.T, db *database) {
		later := msg("t", "")
		later.Delay = time.Hour
		ids := db.enqueue(msg("t", "k"), later)
		db.exec(`UPDATE {messages} SET available_at = available_at + interval '1 hour', created_at = created_at + interval '1 hour'`)
		ids = append(ids, db.enqueue(msg("t", "k"))...)
		got := db.claim(db.open(), req(10))
		if len(got) != 2 || got[0].ID != ids[0] || got[1].ID != ids[2] {
			t.Errorf("%d messages were claimed, want the two of the key in their order", len(got))
		}
		db.sound()
	})
}
