package suite

import (
	"errors"
	"slices"
	"strings"

	"github.com/outward-dev/outward/engine"
)

func enqueueClauses() []Clause {
	return []Clause{
		clause("store.enqueue.atomic", "What a transaction enqueued goes out if and only if it committed.", func(b *bench) {
			w := b.worker()
			tx := b.s.Begin(b.T)
			gone, err := tx.Enqueue(b.Context(), message(""), message("k"))
			if err != nil {
				b.Fatalf("Enqueue: %v", err)
			}
			if err := tx.Rollback(b.Context()); err != nil {
				b.Fatalf("Rollback: %v", err)
			}
			w.none()
			w.drained(b.enqueue(message(""), message("k")))
			b.is(Absent, gone...)
		}),

		clause("store.enqueue.uncommitted", "Nobody sees what a transaction enqueued before it has committed.", func(b *bench) {
			w := b.worker()
			tx := b.s.Begin(b.T)
			ids, err := tx.Enqueue(b.Context(), message(""), message("k"))
			if err != nil {
				b.Fatalf("Enqueue: %v", err)
			}
			w.none()
			b.is(Absent, ids...)
			b.commit(tx)
			w.drained(ids)
		}),

		clause("store.enqueue.ids", "Enqueue keeps every id that it is given, byte for byte, and mints one for each message without.", func(b *bench) {
			given := engine.ID{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
			last := engine.ID{0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8, 0xf7, 0xf6, 0xf5, 0xf4, 0xf3, 0xf2, 0xf1, 0xf0}
			m0, m1, m2, m3 := message("k"), message("k"), message("k"), message("k")
			m0.ID, m2.ID = given, last
			ids := b.enqueue(m0, m1, m2, m3)
			if ids[0] != given || ids[2] != last {
				b.Fatalf("Enqueue returned %v, was given %v first and %v third", ids, given, last)
			}
			if ids[1].IsZero() || ids[3].IsZero() || ids[1] == ids[3] {
				b.Fatalf("Enqueue minted %v and %v", ids[1], ids[3])
			}
			b.worker().take(ids...)
		}),

		clause("store.enqueue.duplicate", "An id that is already waiting gives ErrDuplicateID, enqueues nothing of that call and leaves the transaction usable.", func(b *bench) {
			first := b.enqueue(message("k"))
			tx := b.s.Begin(b.T)
			again := message("k")
			again.ID = first[0]
			fresh := message("k")
			fresh.ID = engine.NewID()
			if _, err := tx.Enqueue(b.Context(), fresh, again); !errors.Is(err, engine.ErrDuplicateID) {
				b.Fatalf("Enqueue of an id that waits: error %v, want ErrDuplicateID", err)
			}
			after, err := tx.Enqueue(b.Context(), message("k"))
			if err != nil {
				b.Fatalf("Enqueue after a duplicate: %v", err)
			}
			b.commit(tx)
			w := b.worker()
			w.take(first[0], after[0])
			b.is(Absent, fresh.ID)
		}),

		clause("store.enqueue.same_twice", "An id that occurs twice in one call, or in two calls of one transaction, gives ErrDuplicateID.", func(b *bench) {
			tx := b.s.Begin(b.T)
			m := message("k")
			m.ID = engine.NewID()
			if _, err := tx.Enqueue(b.Context(), m, m); !errors.Is(err, engine.ErrDuplicateID) {
				b.Fatalf("Enqueue of an id twice: error %v, want ErrDuplicateID", err)
			}
			ids, err := tx.Enqueue(b.Context(), m)
			if err != nil {
				b.Fatalf("Enqueue after it: %v", err)
			}
			if _, err := tx.Enqueue(b.Context(), m); !errors.Is(err, engine.ErrDuplicateID) {
				b.Fatalf("second Enqueue of an id: error %v, want ErrDuplicateID", err)
			}
			b.commit(tx)
			b.worker().drained(ids)
		}),

		clause("store.enqueue.again", "An id that was settled can be enqueued again and goes again.", func(b *bench) {
			m := message("k")
			m.ID = engine.NewID()
			w := b.worker()
			for range 2 {
				b.enqueue(m)
				w.drained([]engine.ID{m.ID})
			}
		}),

		clause("store.enqueue.checked", "What can be known to be wrong is refused before the first statement, all of it at once, and the transaction stays usable.", func(b *bench) {
			nameless, long, text := message(""), message(strings.Repeat("x", 256)), message("")
			nameless.Topic = ""
			text.Headers = map[string]string{"h": "a\x00b"}
			tx := b.s.Begin(b.T)
			_, err := tx.Enqueue(b.Context(), message(""), nameless, long, text)
			if err == nil {
				b.Fatalf("Enqueue took a message without a topic, a key of 256 characters and a header with a NUL")
			}
			for _, word := range []string{"message 1", "message 2", "message 3"} {
				if !strings.Contains(err.Error(), word) {
					b.Errorf("the error does not name %s: %v", word, err)
				}
			}
			ids, err := tx.Enqueue(b.Context(), message(""))
			if err != nil {
				b.Fatalf("Enqueue after a refusal: %v", err)
			}
			b.commit(tx)
			b.worker().drained(ids)
		}),

		clause("store.enqueue.order", "Messages of one key keep the order in which one transaction enqueued them.", func(b *bench) {
			tx := b.s.Begin(b.T)
			var ids []engine.ID
			for _, n := range []int{1, 40, 2} {
				got, err := tx.Enqueue(b.Context(), slices.Repeat([]engine.Message{message("k")}, n)...)
				if err != nil {
					b.Fatalf("Enqueue: %v", err)
				}
				ids = append(ids, got...)
			}
			b.commit(tx)
			b.worker().take(ids...)
		}),
	}
}
