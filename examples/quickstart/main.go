// Command quickstart shows what an outbox is for, with nothing but this program: a
// SQLite file, a JetStream inside the process, a relay that is killed at the worst
// moment, and a consumer that does everything once all the same. It checks what it
// shows, and exits with 1 if anything is off.
//
//	make quickstart
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == relayWord {
		os.Exit(relayMain(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, faults{}); err != nil {
		fmt.Fprintln(os.Stderr, "\nquickstart:", err)
		stop()
		os.Exit(1)
	}
}

// faults are planted by the tests: each breaks a promise, and the program must see
// it. Nothing else sets them.
type faults struct {
	skipInbox      bool // the consumer doesn't ask whether it has seen a message
	commitRollback bool // what should be rolled back is committed
	loseMessage    bool // the relay is told that a message went out, and it didn't
}

const (
	limit       = 2 * time.Minute // for the whole, on a very slow machine
	dedupWindow = time.Second     // the stream recognises a repeat for so long
	outage      = 3 * dedupWindow // and nobody relays for so long after the kill
	killAt      = 4               // the message that is confirmed when the relay is killed
)

func run(ctx context.Context, out io.Writer, plant faults) (err error) {
	started := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
	}()
	var printing sync.Mutex // the warehouse says something too
	say := func(format string, args ...any) {
		printing.Lock()
		defer printing.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}

	dir, err := os.MkdirTemp("", "outward-quickstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	say("A shop in a SQLite file, and JetStream in this process. All files are in %s, until the end.", dir)

	broker, err := startBroker(ctx, filepath.Join(dir, "jetstream"))
	if err != nil {
		return err
	}
	defer broker.stop()
	shop, err := openShop(ctx, filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.close()) }()
	warehouse, err := openWarehouse(ctx, filepath.Join(dir, "warehouse.db"), plant)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, warehouse.close()) }()

	say("\n1. Each order is saved with its message, in one transaction.")
	if err := shop.takeOrders(ctx, say, plant); err != nil {
		return err
	}

	say("\n2. A warehouse reads the stream. It notes each message in its inbox, in the transaction of what it does.")
	if err := warehouse.listen(ctx, broker, say); err != nil {
		return err
	}
	defer warehouse.stop()

	say("\n3. A relay, a process of its own, takes the messages to JetStream.")
	killed, err := killRelay(ctx, say, shop, broker, plant)
	if err != nil {
		return err
	}
	say("   Nobody relays now, for %v. The stream recognises a repeat for %v.", outage, dedupWindow)
	if err := wait(ctx, outage); err != nil {
		return err
	}

	say("\n4. The relay is started again.")
	if err := finishRelay(ctx, say, shop, broker); err != nil {
		return err
	}
	stored, err := broker.messages(ctx)
	if err != nil {
		return err
	}
	if err := warehouse.catchUp(ctx, stored); err != nil {
		return err
	}

	say("\n5. What must hold, and whether it does:")
	if wrong := check(ctx, say, shop, warehouse, stored, killed); wrong > 0 {
		return fmt.Errorf("%d of the above are wrong", wrong)
	}
	say("\nEverything committed arrived, nothing else did, and each order was shipped once. (%.1f s)", time.Since(started).Seconds())
	return nil
}

// wait lets d pass.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
