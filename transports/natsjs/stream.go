package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// apiTimeout bounds one question to JetStream. A cluster without a leader does not
// answer at all.
const apiTimeout = 2 * time.Second

// Why a question to JetStream has no answer.
var (
	errUnheard = errors.New("JetStream does not answer here: it is not enabled, or not for this account")
	errDenied  = errors.New("this user may not ask JetStream")
	errLost    = errors.New("connection lost")
)

// Error returns JetStream's words and number.
func (e *apiError) Error() string { return fmt.Sprintf("%.200s (%d)", e.Description, e.ErrCode) }

// isAPIAnswer tells JetStream's answers from those of others who listen.
func isAPIAnswer(data []byte) bool {
	var head struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(data, &head) == nil && strings.HasPrefix(head.Type, "io.nats.jetstream.api.")
}

// ask puts a question to JetStream and reads the answer into reply. An error is one
// of those above, an *apiError, or that of ctx.
func (s *session) ask(ctx context.Context, verb string, question, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	data, err := json.Marshal(question)
	if err != nil {
		return err
	}
	e := &entry{subject: s.t.opts.APIPrefix + "." + verb, ask: make(chan answer, 1)}
	inbox, ok := s.register(e)
	if !ok {
		return errLost
	}
	s.t.life.Work.Go(func() { // a write may hang until the connection is cut
		err := s.nc.PublishMsg(&nats.Msg{Subject: e.subject, Reply: inbox, Data: data})
		if err != nil && s.take(e) {
			e.ask <- answer{lost: true}
		}
	})
	var a answer
	select {
	case a = <-e.ask:
	case <-ctx.Done():
		s.take(e)
		return context.Cause(ctx)
	}
	switch {
	case a.lost:
		return errLost
	case a.denied:
		return errDenied
	case a.unheard:
		return errUnheard
	}
	var failed struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(a.data, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		return failed.Error
	}
	return json.Unmarshal(a.data, reply)
}

// streamOf asks which stream has a subject; "": none.
func (s *session) streamOf(ctx context.Context, subject string) (string, error) {
	var names struct {
		Streams []string `json:"streams"`
	}
	if err := s.ask(ctx, "STREAM.NAMES", map[string]any{"subject": subject}, &names); err != nil {
		return "", err
	}
	if len(names.Streams) == 0 {
		return "", nil
	}
	return names.Streams[0], nil
}

// stream is what is looked at of a stream.
type stream struct {
	Config struct {
		Name                 string        `json:"name"`
		Retention            string        `json:"retention"`
		Storage              string        `json:"storage"`
		Discard              string        `json:"discard"`
		DiscardNewPerSubject bool          `json:"discard_new_per_subject"`
		MaxMsgs              int64         `json:"max_msgs"`
		MaxBytes             int64         `json:"max_bytes"`
		MaxAge               time.Duration `json:"max_age"`
		MaxMsgsPerSubject    int64         `json:"max_msgs_per_subject"`
		MaxMsgSize           int64         `json:"max_msg_size"`
		Replicas             int           `json:"num_replicas"`
		NoAck                bool          `json:"no_ack"`
		Sealed               bool          `json:"sealed"`
		Duplicates           time.Duration `json:"duplicate_window"`
	} `json:"config"`
	State struct {
		Msgs      int64            `json:"messages"`
		Bytes     int64            `json:"bytes"`
		Consumers int              `json:"consumer_count"`
		Subjects  map[string]int64 `json:"subjects"`
	} `json:"state"`
}

// describe asks for a stream and how many messages it has of a subject.
func (s *session) describe(ctx context.Context, name, subject string) (*stream, error) {
	var st stream
	if err := s.ask(ctx, "STREAM.INFO."+name, map[string]any{"subjects_filter": subject}, &st); err != nil {
		return nil, err
	}
	return &st, nil
}

// full says by which limit the stream refuses messages of subject now; "": it
// doesn't.
func (st *stream) full(subject string) string {
	c := &st.Config
	if c.Discard != "new" {
		return ""
	}
	switch {
	case c.MaxMsgs > 0 && st.State.Msgs >= c.MaxMsgs:
		return fmt.Sprintf("it has %d messages and max_msgs is %d", st.State.Msgs, c.MaxMsgs)
	case c.MaxBytes > 0 && st.State.Bytes >= c.MaxBytes:
		return fmt.Sprintf("it has %d bytes and max_bytes is %d", st.State.Bytes, c.MaxBytes)
	case c.DiscardNewPerSubject && c.MaxMsgsPerSubject > 0 && st.State.Subjects[subject] >= c.MaxMsgsPerSubject:
		return fmt.Sprintf("it has %d messages of the subject and max_msgs_per_subject is %d", st.State.Subjects[subject], c.MaxMsgsPerSubject)
	}
	return ""
}

// account is what is looked at of the account.
type account struct {
	Memory  int64 `json:"memory"`
	Storage int64 `json:"storage"`
	Limits  struct {
		MaxMemory  int64 `json:"max_memory"`
		MaxStorage int64 `json:"max_storage"`
	} `json:"limits"`
}

// full says that the account's limit for a kind of storage is reached.
func (a *account) full(storage string) string {
	switch {
	case storage == "memory" && a.Limits.MaxMemory > 0 && a.Memory >= a.Limits.MaxMemory:
		return fmt.Sprintf("the account has %d bytes in memory and may have %d", a.Memory, a.Limits.MaxMemory)
	case storage == "file" && a.Limits.MaxStorage > 0 && a.Storage >= a.Limits.MaxStorage:
		return fmt.Sprintf("the account has %d bytes stored and may have %d", a.Storage, a.Limits.MaxStorage)
	}
	return ""
}

// apiFault classifies what went wrong with a question. It is not asked about a
// refusal to be asked (errDenied), which says nothing about messages.
func (t *Transport) apiFault(err error) *engine.Fault {
	f := faults.Newf(engine.Unavailable, codeTimeout, "natsjs: %s: ask JetStream: %w", t.servers(), err)
	var api *apiError
	switch {
	case errors.Is(err, errUnheard):
		f.Code = codeNoJetStream
	case errors.Is(err, errLost):
		f.Code = codeLost
	case errors.As(err, &api):
		r := refusal("", api.ErrCode, api.Description)
		f.Code, f.Class = strconv.Itoa(api.ErrCode), r.Class
	}
	return f
}

// silence is how long nobody may listen on a subject, where JetStream can't be
// asked why, before that is taken for want of a stream and not for an election.
const silence = 5 * time.Second

// nobody says what it means that nobody listens on a subject. While a cluster
// elects a stream's leader nobody does, for a moment; so it asks.
func (t *Transport) nobody(ctx context.Context, subject string) *engine.Fault {
	electing := func(text string) *engine.Fault {
		f := faults.Newf(engine.Transient, codeNoResponders, "natsjs: subject %q: nobody answers for it; %s", subject, text)
		f.RetryAfter = 250 * time.Millisecond
		return f
	}
	if ctx.Err() != nil {
		return electing("there was no time to ask why")
	}
	s, f := t.line.Session(ctx)
	if f != nil {
		return f
	}
	name, err := s.streamOf(ctx, subject)
	switch {
	case ctx.Err() != nil:
		return electing("there was no time to ask why")
	case err == nil && name == "":
		return noStream(subject)
	case err == nil && t.opts.Stream != "" && name != t.opts.Stream:
		return wrongStream(subject, name, t.opts.Stream)
	case err == nil:
		return electing("its stream " + name + " has no leader at the moment")
	case !errors.Is(err, errDenied) && !errors.Is(err, context.DeadlineExceeded):
		return t.apiFault(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	since, known := t.unheard[subject]
	switch {
	case known && time.Since(since) >= silence:
		return noStream(subject)
	case !known:
		if len(t.unheard) >= maxSeen {
			clear(t.unheard)
		}
		t.unheard[subject] = time.Now()
	}
	return electing(err.Error())
}

// heard forgets that nobody listened on a subject.
func (t *Transport) heard(subject string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unheard, subject)
}

func noStream(subject string) *engine.Fault {
	return faults.Newf(engine.DestinationFailed, codeNoStream, "natsjs: no stream has the subject %q", subject)
}

func wrongStream(subject, name, expected string) *engine.Fault {
	return faults.Newf(engine.DestinationFailed, codeWrongStream, "natsjs: subject %q belongs to the stream %q; %q is expected", subject, name, expected)
}
