package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/outward-dev/outward/dialects/sqlite"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
	"github.com/outward-dev/outward/inbox"
)

// open makes a file with the tables and a table of orders.
func open(ctx context.Context) (db *sql.DB, done func()) {
	dir, err := os.MkdirTemp("", "outward")
	if err != nil {
		log.Fatal(err)
	}
	if db, err = sql.Open("sqlite", sqlite.DSN(filepath.Join(dir, "app.db"))); err != nil {
		log.Fatal(err)
	}
	if _, err := sqlite.Migrate(ctx, db, nil, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY)`); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		if err := errors.Join(db.Close(), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}

// An order and its message are committed together, or neither is; the relay sends what
// was committed.
func Example() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()

	store, err := sqlite.NewStore(db, nil)
	if err != nil {
		log.Fatal(err)
	}
	w, err := sqlite.NewWriter(&sqlite.Options{Wake: store.Wake})
	if err != nil {
		log.Fatal(err)
	}
	submit := func(id int, fails error) error {
		return w.InTx(ctx, db, func(tx *sqlite.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`, id); err != nil {
				return err
			}
			if _, err := w.Enqueue(ctx, tx, engine.Message{Topic: "orders", Type: "order.submitted.v1", Key: fmt.Sprint("order ", id),
				Payload: fmt.Appendf(nil, `{"id":%d}`, id)}); err != nil {
				return err
			}
			return fails
		})
	}
	fmt.Println(submit(1, nil), submit(2, errors.New("out of stock")), submit(3, nil))

	broker := memory.NewTransport(nil) // in place of a real one
	relay, err := engine.New(store, engine.AllTo(broker), nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := relay.Step(ctx); err != nil {
		log.Fatal(err)
	}
	for _, m := range broker.DeliveredTo("orders") {
		fmt.Println(m.Key, string(m.Payload))
	}
	// Output:
	// <nil> out of stock <nil>
	// order 1 {"id":1}
	// order 3 {"id":3}
}

// The second time a message comes nothing is done.
func ExampleInbox_Process() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()

	in, err := sqlite.NewInbox(nil)
	if err != nil {
		log.Fatal(err)
	}
	key := inbox.Key{Consumer: "shipping", Message: "0199b7a0-0000-7000-8000-000000000001"}
	for range 2 {
		outcome, err := in.Process(ctx, db, key, func(ctx context.Context, tx *sqlite.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (42)`)
			return err
		})
		fmt.Println(outcome, err)
	}
	// Output:
	// fresh <nil>
	// repeat <nil>
}
