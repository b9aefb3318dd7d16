// Package mysql is the outbox in MySQL 8.0 and newer, and in MariaDB 10.6 and newer,
// by github.com/go-sql-driver/mysql.
//
// Messages are committed with the business data or not at all:
//
//	err := w.InTx(ctx, db, func(tx *mysql.Tx) error {
//		if _, err := tx.ExecContext(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		_, err := w.Enqueue(ctx, tx, engine.Message{Topic: "orders", Key: orderID, Type: "order.placed.v1", Payload: body})
//		return err
//	})
//
// It works with the caller's *sql.DB as it is: with or without parseTime,
// clientFoundRows and interpolateParams, in any time zone and sql_mode, and whatever
// isolation level is the server's default. The relay's own transactions are READ
// COMMITTED, which needs row-based replication (the default). Every instant in the
// tables is UTC, by the server's clock.
//
// Neither database tells anybody of a commit, so relays poll; writers of the same
// process wake them by Options.Wake.
//
// Order per key rests on numbers that rise with the commits of a key. On Galera and
// other multi-primary clusters write the outbox on one node only; [Store.Check]
// reports auto_increment_increment above 1 as a fault.
package mysql
