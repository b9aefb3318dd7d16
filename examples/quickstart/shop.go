package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/outward-dev/outward/dialects/sqlite"
	"github.com/outward-dev/outward/engine"
)

// An order is what the shop sells. Its JSON is the message.
type order struct {
	Number   int    `json:"order"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

var orders = []order{
	{1, "ada", 1200}, {2, "ben", 350}, {3, "ada", 9900}, {4, "cyd", 80}, {5, "ben", 4500},
	{6, "ben", 77000}, {7, "cyd", 610}, {8, "ada", 1999}, {9, "cyd", 250}, {10, "ben", 1050},
}

// refused is the order whose transaction is rolled back.
const refused = 6

var errRefused = errors.New("the card was refused")

// A shop keeps its orders in a SQLite file, and the outbox beside them.
type shop struct {
	path   string
	db     *sql.DB
	outbox *sqlite.Writer
	store  *sqlite.Store
	sent   map[string]order // by the id of the message, what was committed
}

func openShop(ctx context.Context, path string) (*shop, error) {
	s := &shop{path: path, sent: map[string]order{}}
	var err error
	if s.db, err = sql.Open("sqlite", sqlite.DSN(path)); err != nil {
		return nil, err
	}
	if err := s.setUp(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("shop: %w", err), s.db.Close())
	}
	return s, nil
}

func (s *shop) setUp(ctx context.Context) (err error) {
	if _, err := s.db.ExecContext(ctx, `CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL)`); err != nil {
		return err
	}
	if _, err := sqlite.Migrate(ctx, s.db, nil, nil); err != nil {
		return err
	}
	if s.outbox, err = sqlite.NewWriter(nil); err != nil {
		return err
	}
	s.store, err = sqlite.NewStore(s.db, nil)
	return err
}

func (s *shop) close() error { return s.db.Close() }

// takeOrders saves the orders, and rolls one back.
func (s *shop) takeOrders(ctx context.Context, say func(string, ...any), plant faults) error {
	for _, o := range orders {
		id, err := s.save(ctx, o, plant)
		switch {
		case err == nil:
			s.sent[id.String()] = o
			say("   order %2d  %s %7.2f  committed   message %s", o.Number, o.Customer, float64(o.Cents)/100, id)
		case errors.Is(err, errRefused):
			say("   order %2d  %s %7.2f  rolled back (%v): no order, no message", o.Number, o.Customer, float64(o.Cents)/100, err)
		default:
			return fmt.Errorf("order %d: %w", o.Number, err)
		}
	}
	if len(s.sent) != len(orders)-1 && !plant.commitRollback {
		return fmt.Errorf("%d orders were committed, not %d", len(s.sent), len(orders)-1)
	}
	return nil
}

// save is the whole of what a program has to do.
func (s *shop) save(ctx context.Context, o order, plant faults) (id engine.ID, err error) {
	payload, err := json.Marshal(o)
	if err != nil {
		return id, err
	}
	err = s.outbox.InTx(ctx, s.db, func(tx *sqlite.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?, ?, ?)`, o.Number, o.Customer, o.Cents); err != nil {
			return err
		}
		ids, err := s.outbox.Enqueue(ctx, tx, engine.Message{
			Topic: "order.submitted", Type: "order.submitted.v1", Key: o.Customer, Payload: payload,
		})
		if err != nil {
			return err
		}
		id = ids[0]
		if o.Number == refused && !plant.commitRollback {
			return errRefused // and InTx rolls back
		}
		return nil
	})
	return id, err
}

func (s *shop) count(ctx context.Context, query string, args ...any) (n int, err error) {
	if err := s.db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("shop: %w", err)
	}
	return n, nil
}

const (
	waiting   = `SELECT count(*) FROM outbox_messages`
	published = `SELECT count(*) FROM outbox_archive WHERE outcome = 'published'`
)

// emptied waits until the outbox has nothing left.
func (s *shop) emptied(ctx context.Context) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		n, err := s.count(ctx, waiting)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d messages are still in the outbox: %w", n, ctx.Err())
		case <-look.C:
		}
	}
}
