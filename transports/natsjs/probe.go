package natsjs

import (
	"context"
	"errors"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// Probe implements [engine.Prober]: it connects and asks which stream has the
// subject, and whether that stream takes messages now. Of an empty destination it
// asks no more than whether JetStream answers.
//
// Whether this user may publish to the subject can't be asked, and where the user
// may not ask JetStream nothing can. Probe answers nil then, and the next message
// is the trial.
func (t *Transport) Probe(ctx context.Context, destination string) *engine.Fault {
	if destination != "" {
		if err := CheckSubject(destination); err != nil {
			return faults.Newf(engine.DestinationFailed, codeSubject, "natsjs: %w", err)
		}
	}
	if !t.life.Enter() {
		return faults.NewClosed("natsjs")
	}
	defer t.life.Leave()
	s, f := t.line.Session(ctx)
	if f != nil {
		return f
	}
	var acc account
	err := s.ask(ctx, "INFO", nil, &acc)
	known := err == nil
	if err != nil && !errors.Is(err, errDenied) {
		return t.apiFault(err)
	}
	if destination == "" {
		return nil
	}
	_, f = t.look(ctx, s, destination, func(st *stream) string {
		if !known {
			return ""
		}
		return acc.full(st.Config.Storage)
	})
	return f
}

// look asks for the stream of a subject and whether it takes messages. Both results
// are nil where it can't be asked.
func (t *Transport) look(ctx context.Context, s *session, subject string, full func(*stream) string) (*stream, *engine.Fault) {
	name, err := s.streamOf(ctx, subject)
	switch {
	case errors.Is(err, errDenied):
		if name = t.opts.Stream; name == "" {
			return nil, nil
		}
	case err != nil:
		return nil, t.apiFault(err)
	case name == "":
		return nil, noStream(subject)
	case t.opts.Stream != "" && name != t.opts.Stream:
		return nil, wrongStream(subject, name, t.opts.Stream)
	}
	st, err := s.describe(ctx, name, subject)
	var api *apiError
	switch {
	case errors.Is(err, errDenied):
		return nil, nil
	case errors.As(err, &api) && api.ErrCode == jsStreamNotFound:
		return nil, noStream(subject)
	case err != nil:
		return nil, t.apiFault(err)
	case st.Config.NoAck:
		return st, faults.Newf(engine.DestinationFailed, codeNoAck, "natsjs: subject %q: the stream %q never acknowledges (no_ack), so nothing could count as published", subject, name)
	case st.Config.Sealed:
		return st, faults.Newf(engine.DestinationFailed, codeSealed, "natsjs: subject %q: the stream %q is sealed", subject, name)
	}
	why := st.full(subject)
	if why == "" {
		why = full(st)
	}
	if why != "" {
		return st, faults.Newf(engine.DestinationFailed, codeFull, "natsjs: subject %q: the stream %q is full: %s", subject, name, why)
	}
	return st, nil
}
