package natsjs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// Check implements [engine.Checker]: the servers can be reached and have JetStream,
// and the streams of Options.Destinations, and of the subjects that were published
// to, keep what they acknowledge.
func (t *Transport) Check(ctx context.Context) []engine.Finding {
	if !t.life.Enter() {
		return []engine.Finding{{Level: engine.Fatal, Code: codeClosed, Text: faults.NewClosed("natsjs").Err.Error(), Fix: "build a new transport"}}
	}
	defer t.life.Leave()
	s, f := t.line.Session(ctx)
	if f != nil {
		return []engine.Finding{{Level: engine.Retry, Code: f.Code, Text: f.Err.Error(), Fix: fixes[f.Code]}}
	}
	c := &checkup{t: t, s: s, clustered: s.nc.ConnectedClusterName() != "", streams: map[string]bool{}}
	c.server()
	for _, subject := range t.known() {
		if !c.destination(ctx, subject) {
			break // the others would be as silent, for as long each
		}
	}
	if len(c.streams) > 0 {
		c.find(engine.Note, "sync", "a server acknowledges a message before its disk has it, unless sync_interval is always; that can't be seen from here. "+
			"A stream with three replicas survives the loss of one server's power all the same",
			"set sync_interval: always for streams with one replica, or give them three")
	}
	return c.findings
}

// known are the subjects that Check looks at, each once.
func (t *Transport) known() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.opts.Destinations)
	for subject := range t.seen {
		all = append(all, subject)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// fixes are what to do about not reaching the servers, by code.
var fixes = map[string]string{
	codeAuth:        "check user and password, token, creds file or nkey",
	codePermission:  "allow this user to subscribe to Options.InboxPrefix.>",
	codeLimit:       "raise max_connections, of the server or the account",
	codeTLS:         "check the scheme, the port and the certificates",
	codeRefused:     "check host and port, and that the server runs",
	codeDNS:         "check the host name",
	codeNoJetStream: "enable JetStream on the server and for this account; for a domain set Options.APIPrefix",
	codeNoHeaders:   "use a NATS server of 2.2 or newer",
	codeNoAck:       "set no_ack to false",
	codeSealed:      "give the subject to another stream; until then its messages wait",
	codeWrongStream: "correct Options.Stream or the streams' subjects; until then its messages wait",
	codeNoStream:    "give a stream this subject; until then its messages wait",
	codeFull:        "make room in the stream, or raise its limits; until then its messages wait",
}

// A checkup is one call of Check.
type checkup struct {
	t         *Transport
	s         *session
	clustered bool
	streams   map[string]bool // looked at
	findings  []engine.Finding
}

func (c *checkup) find(level engine.Level, code, text, fix string) {
	c.findings = append(c.findings, engine.Finding{Level: level, Code: code, Text: text, Fix: fix})
}

// server looks at what the server says about itself.
func (c *checkup) server() {
	version := c.s.nc.ConnectedServerVersion()
	if major, minor := versionOf(version); major < 2 || major == 2 && minor < 10 {
		c.find(engine.Warning, "version", fmt.Sprintf("the server at %s is %.40q; Outward is tested with 2.15", c.s.addr.HostPort(), version), "use 2.10 or newer")
	}
	if limit := c.s.nc.MaxPayload(); limit < engine.DefaultMaxPayload {
		c.find(engine.Note, "max_payload", fmt.Sprintf("the server takes at most %d bytes of headers and payload; a larger message is dead at once", limit),
			"raise max_payload, or lower MaxPayload where messages are enqueued")
	}
}

// versionOf reads 2.15.2.
func versionOf(s string) (major, minor int) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return 0, 0
	}
	return major, minor
}

// destination looks at a subject, and at its stream if that is a new one. false:
// JetStream can't be asked now.
func (c *checkup) destination(ctx context.Context, subject string) (answered bool) {
	st, f := c.t.look(ctx, c.s, subject, func(*stream) string { return "" })
	if f != nil {
		level := engine.Warning
		if f.Class != engine.DestinationFailed {
			level = engine.Retry
		}
		fix := fixes[f.Code]
		if fix == "" {
			fix = "see what the server logs"
		}
		c.find(level, f.Code, fmt.Sprintf("destination %q: %v", subject, f.Err), fix)
		if level == engine.Retry {
			return false
		}
	} else if st == nil {
		c.find(engine.Note, "not_asked", fmt.Sprintf("destination %q: this user may not ask JetStream about streams, so its settings are not known", subject),
			"allow this user to publish to "+c.t.opts.APIPrefix+".STREAM.NAMES and .STREAM.INFO.*")
	}
	if st != nil && !c.streams[st.Config.Name] {
		c.streams[st.Config.Name] = true
		c.stream(st)
	}
	return true
}

// stream looks whether a stream keeps what it acknowledges.
func (c *checkup) stream(st *stream) {
	k := &st.Config
	find := func(level engine.Level, code, text, fix string) {
		c.find(level, code, fmt.Sprintf("stream %q %s", k.Name, text), fix)
	}
	if k.Storage == "memory" {
		find(engine.Warning, "memory_storage", "is kept in memory: what it acknowledged is gone when its servers restart", "use storage file")
	}
	if k.Discard != "new" {
		for _, limit := range []struct {
			name  string
			value int64
		}{{"max_msgs", k.MaxMsgs}, {"max_bytes", k.MaxBytes}, {"max_msgs_per_subject", k.MaxMsgsPerSubject}} {
			if limit.value > 0 {
				find(engine.Warning, "discard_old", fmt.Sprintf("discards old messages past its %s of %d, whether or not anybody has read them", limit.name, limit.value),
					"set discard to new: the stream then refuses messages at its limit, and they wait in the outbox")
			}
		}
	} else if k.MaxMsgsPerSubject > 0 && !k.DiscardNewPerSubject {
		find(engine.Warning, "discard_old", fmt.Sprintf("discards old messages of a subject past its max_msgs_per_subject of %d", k.MaxMsgsPerSubject),
			"set discard_new_per_subject as well")
	}
	if k.MaxAge > 0 {
		find(engine.Note, "max_age", fmt.Sprintf("deletes messages after %v (max_age), whether or not anybody has read them", k.MaxAge), "make it longer than any consumer may be away")
	}
	switch {
	case k.Retention == "interest" && st.State.Consumers == 0:
		find(engine.Warning, "no_consumers", "keeps a message only while a consumer wants it (retention interest), and has no consumer: it acknowledges messages and drops them",
			"create the durable consumers first")
	case k.Retention == "workqueue" && st.State.Consumers == 0:
		find(engine.Note, "no_consumers", "is a work queue without a consumer: it only grows", "create its consumer")
	}
	if k.Replicas < 2 {
		level := engine.Note
		if c.clustered {
			level = engine.Warning
		}
		find(level, "one_replica", "has one replica: what it acknowledged is lost with that server's disk", "use three replicas, in a cluster of three or more")
	}
	if k.Duplicates < c.t.opts.RetryHorizon {
		find(engine.Note, "dedup_window", fmt.Sprintf("recognises a repeat for %v (duplicate_window); one whose outcome was not known may be sent again for %v and is then stored twice. Its id is the same: an inbox recognises it",
			k.Duplicates, c.t.opts.RetryHorizon), "set duplicate_window to "+c.t.opts.RetryHorizon.Round(time.Second).String()+" or more")
	}
	if k.MaxMsgSize > 0 && k.MaxMsgSize < c.s.nc.MaxPayload() {
		find(engine.Note, "max_msg_size", fmt.Sprintf("takes at most %d bytes of headers and payload; a larger message is dead at once", k.MaxMsgSize),
			"raise max_msg_size, or lower MaxPayload where messages are enqueued")
	}
}
