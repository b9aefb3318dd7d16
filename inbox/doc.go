// Package inbox makes the effect of a message happen once. A relay delivers at
// least once; the receiver records each message's identity in the same transaction
// as the effect, and recognises the repeat by it: after any crash, and by two
// consumers at once.
//
// The package holds the contract only. A dialect has the table and the transaction:
// postgres.Inbox, sqlite.Inbox. A handler calls its dialect's Process, so no
// transaction's type crosses packages:
//
//	handle := func(ctx context.Context, d inbox.Delivery) error {
//		_, err := in.Process(ctx, pool, d.InboxKey("billing"), func(ctx context.Context, tx pgx.Tx) error {
//			return book(ctx, tx, d.Payload) // the effect, in tx and nowhere else
//		})
//		return err // nil: committed, now or before; acknowledge
//	}
package inbox
