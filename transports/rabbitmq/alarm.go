package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// ready returns a fault while the broker is known to take no messages.
//
// A broker in alarm tells a connection so only when it publishes. After an alarm
// was met, a new connection therefore first publishes a canary: an empty message
// to the default exchange, mandatory, under the name of a queue that does not
// exist. It ends up nowhere and comes back, or the broker says that it is blocked.
// Without it every retry would put a window of real messages into a socket that
// nobody reads.
func (s *session) ready(ctx context.Context) *engine.Fault {
	select {
	case <-s.blocking():
		return s.blockedFault()
	default:
	}
	if !s.t.alarmed.Load() || s.free.Load() {
		return nil
	}
	// The library's calls know no context.
	open := time.AfterFunc(s.t.opts.DialTimeout, func() { s.kill(codeTimeout) })
	defer open.Stop()
	ch, err := s.conn.Channel()
	if err != nil {
		return s.openFault("", err)
	}
	defer func() { s.t.life.Work.Go(func() { s.closeChannel(ch) }) }()
	if err := ch.Confirm(false); err != nil {
		return s.openFault("", err)
	}
	open.Stop()
	back := ch.NotifyReturn(make(chan amqp.Return, 1))
	confirm, err := ch.PublishWithDeferredConfirm("", "outward.canary."+engine.NewID().String(), true, false, amqp.Publishing{})
	if err != nil {
		return s.openFault("", err)
	}
	timer := time.NewTimer(s.t.opts.DialTimeout)
	defer timer.Stop()
	select {
	case <-back:
	case <-confirm.Done():
		// Confirmed without having come back can't be, and closed means that this user
		// may not write to the default exchange: no answer either way, so the next
		// message will tell.
	case <-s.blocking():
		return s.blockedFault()
	case <-ctx.Done():
		return faults.Newf(engine.Unavailable, codeTimeout, "rabbitmq: %s did not answer in time: %w", s.t.addr.HostPort(), context.Cause(ctx))
	case <-timer.C:
		return faults.Newf(engine.Unavailable, codeTimeout, "rabbitmq: %s did not answer in time", s.t.addr.HostPort())
	}
	s.free.Store(true)
	return nil
}
