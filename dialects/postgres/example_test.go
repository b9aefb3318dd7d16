package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/dialects/postgres"
	"github.com/outward-dev/outward/engine"
)

var (
	ctx  = context.Background()
	pool *pgxpool.Pool
	db   *sql.DB
)

// What is wrong with messages is said before the database is asked, all of it at
// once and by index.
func ExampleWriter_Enqueue() {
	w, err := postgres.NewWriter(&postgres.Options{MaxPayload: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	var tx pgx.Tx = anyTx{} // the transaction of the business change
	_, err = w.Enqueue(ctx, tx,
		engine.Message{Topic: "orders", Type: "order.submitted.v1", Key: "order 42", Payload: []byte(`{"id":42}`)},
		engine.Message{Type: "order.submitted.v1"},
		engine.Message{Topic: "orders", Type: "order.submitted.v1", Payload: make([]byte, 2<<20)})
	fmt.Println(err)
	// Output:
	// postgres: enqueue: message 1: topic is empty; routes need it to find a destination
	// message 2: payload is 2097152 bytes long; the limit is 1048576
}

func ExampleWriter_EnqueueSQL() {
	w, err := postgres.NewWriter(nil)
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'submitted' WHERE id = 42`); err != nil {
		log.Fatal(err)
	}
	if _, err := w.EnqueueSQL(ctx, tx, engine.Message{Topic: "orders", Type: "order.submitted.v1", Key: "order 42"}); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

func ExampleWriter_InTx() {
	w, err := postgres.NewWriter(nil)
	if err != nil {
		log.Fatal(err)
	}
	err = w.InTx(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE orders SET state = 'submitted' WHERE id = 42`); err != nil {
			return err
		}
		_, err := w.Enqueue(ctx, tx, engine.Message{Topic: "orders", Type: "order.submitted.v1", Key: "order 42"})
		return err
	})
	if errors.Is(err, engine.ErrCommitUnknown) {
		log.Fatal("look whether order 42 is submitted")
	}
}

// Schema and prefix are settings, and the statements can be handed to a migration
// tool.
func ExampleRender() {
	files, err := postgres.Render(postgres.FormatGoose, &postgres.Options{Prefix: "shop_"})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		first, _, _ := strings.Cut(f.Content, "\n")
		fmt.Println(f.Name, first, strings.Contains(f.Content, `CREATE TABLE "public"."shop_messages"`))
	}
	// Output:
	// 0001_shop_outbox.sql -- +goose Up true
	// 0002_shop_inbox.sql -- +goose Up false
}

// anyTx stands for a transaction that must not be reached.
type anyTx struct{ pgx.Tx }
