package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outward-dev/outward/engine"
)

const (
	// heartbeat is how often a listener that hears nothing sends itself a signal. A
	// half-open connection, or a pooler that gave the session to somebody else, says
	// nothing for ever; only a signal that comes back proves that others would.
	heartbeat       = 30 * time.Second
	heartbeatAnswer = 10 * time.Second

	listenBackoffMin = 100 * time.Millisecond
	listenBackoffMax = 5 * time.Second
)

// Listen implements [engine.Notifier]. It keeps a connection of its own, outside
// the pool, on which no transaction and no snapshot is ever open. The signals come
// from [Writer.Notify], from Options.NotifyInTx, and from any program that does
// NOTIFY "schema.prefix_messages".
func (s *Store) Listen(ctx context.Context) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("postgres: listen: %w", err)
	}
	signals := make(chan struct{}, 1)
	signal := func() {
		select {
		case signals <- struct{}{}:
		default: // one is waiting already
		}
	}
	go func() {
		defer close(signals)
		backoff := listenBackoffMin
		for ctx.Err() == nil {
			begun := time.Now()
			err := s.listenOnce(ctx, signal)
			if ctx.Err() != nil {
				return
			}
			if s.log != nil {
				s.log.WarnContext(ctx, "postgres: the listening connection was lost; polling goes on", "table", s.names.table(), "error", err)
			}
			if time.Since(begun) > heartbeat {
				backoff = listenBackoffMin
			}
			select {
			case <-time.After(backoff/2 + rand.N(backoff)):
			case <-ctx.Done():
			}
			backoff = min(backoff*2, listenBackoffMax)
		}
	}()
	return signals, nil
}

// listenOnce listens on one connection until that fails.
func (s *Store) listenOnce(ctx context.Context, signal func()) error {
	config := s.pool.Config()
	conf := config.ConnConfig.Copy()
	if config.BeforeConnect != nil { // a password that has to be fetched, say
		if err := config.BeforeConnect(ctx, conf); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, conf)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = conn.Close(ctx) // it is closed whatever this says
	}()
	own := "outward_" + engine.NewID().String()
	if _, err := conn.Exec(ctx, `LISTEN `+quote(s.names.channel())); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `LISTEN `+quote(own)); err != nil {
		return err
	}
	// What was enqueued while nobody listened.
	signal()
	proving := false
	for {
		wait := heartbeat
		if proving {
			wait = heartbeatAnswer
		}
		waiting, cancel := context.WithTimeout(ctx, wait)
		n, err := conn.WaitForNotification(waiting)
		late := waiting.Err() != nil
		cancel()
		switch {
		case err == nil && n.Channel == own:
			proving = false
		case err == nil:
			proving = false
			signal()
		case ctx.Err() != nil:
			return ctx.Err()
		case !late:
			return err
		case proving:
			return errors.New("no notification comes through, not even its own; LISTEN does not work through a transaction pooler")
		default:
			proving = true
			sending, cancel := context.WithTimeout(ctx, heartbeatAnswer)
			_, err := conn.Exec(sending, `SELECT pg_notify($1::text, '')`, own)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}
