// Package envelope is the one place that says how a message's metadata is
// written on a wire: the names of headers, which of them nobody but Outward may
// set, and how times look. docs/wire-format.md is the same for readers.
package envelope

import (
	"strconv"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
)

// DefaultSource is the CloudEvents source of a transport that names none.
const DefaultSource = "/outward"

// CloudEvents attributes, by their own names. Each binding prefixes them in its
// own way.
const (
	SpecVersion     = "specversion"
	ID              = "id"
	Source          = "source"
	Type            = "type"
	Time            = "time"
	Subject         = "subject"
	PartitionKey    = "partitionkey"
	DataContentType = "datacontenttype"
)

// SpecVersionValue is the version of CloudEvents that is spoken.
const SpecVersionValue = "1.0"

// Headers of Outward's own, spelled the same on every transport.
const (
	Topic            = "outward-topic"
	Key              = "outward-key"
	AggregateType    = "outward-aggregate-type"
	AggregateID      = "outward-aggregate-id"
	AggregateVersion = "outward-aggregate-version"
	CreatedAt        = "outward-created-at"
	Resends          = "outward-resends"

	// CorrelationID is for transports whose protocol has no place of its own for it.
	CorrelationID = "outward-correlation-id"
)

// ownPrefix begins every header of Outward's own. The whole prefix is taken, so
// that a header which a later version adds never meets a user's.
const ownPrefix = "outward-"

// TimeFormat is RFC 3339 in UTC with exactly six decimals: what the table keeps.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// FormatTime writes t as it stands in headers: by TimeFormat, by the way that package
// time is fast on.
func FormatTime(t time.Time) string {
	t = t.UTC()
	b := t.AppendFormat(make([]byte, 0, len(TimeFormat)), time.RFC3339)
	b[len(b)-1] = '.' // the Z comes after the decimals
	micros := t.Nanosecond() / 1000
	for unit := 100_000; unit > 0; unit /= 10 {
		b = append(b, byte('0'+micros/unit%10))
	}
	return string(append(b, 'Z'))
}

// attributes are the CloudEvents attributes that Outward sets or expresses
// elsewhere. Others (dataschema, extensions) are the producer's to use.
var attributes = map[string]bool{
	SpecVersion: true, ID: true, Source: true, Type: true, Time: true,
	Subject: true, PartitionKey: true, DataContentType: true,
}

// prefixes under which some CloudEvents binding writes attributes. All of them
// are guarded on every transport, so that a bridge from one broker to another
// can't be made to say something else about a message.
var prefixes = []string{"cloudevents:", "cloudevents_", "ce_", "ce-"}

// Reserved reports whether a header of this name is Outward's to set. Case makes
// no difference: some readers fold it. A user's header of a reserved name is not
// sent.
func Reserved(name string) bool {
	// Most names are none of these, and Reserved runs for every header of every
	// message: look at the first letter before folding case.
	if name == "" {
		return false
	}
	switch name[0] {
	case 'o', 'O', 'c', 'C':
	default:
		return false
	}
	lower := strings.ToLower(name)
	if strings.HasPrefix(lower, ownPrefix) {
		return true
	}
	for _, p := range prefixes {
		if attribute, ok := strings.CutPrefix(lower, p); ok {
			return attributes[attribute]
		}
	}
	return false
}

// A binding is how the CloudEvents attributes are named on one transport. They are
// put together once: this runs for every message.
type binding struct{ specVersion, id, source, typ, time, subject, partitionKey string }

func newBinding(prefix string) *binding {
	return &binding{
		specVersion: prefix + SpecVersion, id: prefix + ID, source: prefix + Source, typ: prefix + Type,
		time: prefix + Time, subject: prefix + Subject, partitionKey: prefix + PartitionKey,
	}
}

// own writes through set what Outward itself says in headers. id is m's, as text.
func own(m *engine.Outgoing, id, source string, b *binding, set func(name, value string)) {
	optional := func(name, value string) {
		if value != "" {
			set(name, value)
		}
	}
	set(b.specVersion, SpecVersionValue)
	set(b.id, id)
	set(b.source, source)
	set(b.typ, m.Type)
	if !m.OccurredAt.IsZero() {
		set(b.time, FormatTime(m.OccurredAt))
	}
	optional(b.subject, m.AggregateID)
	optional(b.partitionKey, m.Key)
	set(Topic, m.Topic)
	optional(Key, m.Key)
	optional(AggregateType, m.AggregateType)
	optional(AggregateID, m.AggregateID)
	if m.AggregateVersion != 0 {
		set(AggregateVersion, strconv.FormatInt(m.AggregateVersion, 10))
	}
	if !m.CreatedAt.IsZero() {
		set(CreatedAt, FormatTime(m.CreatedAt))
	}
	if m.Resends > 0 {
		set(Resends, strconv.Itoa(m.Resends))
	}
}

// contentType is the message's, or the default.
func contentType(m *engine.Outgoing) string {
	if m.ContentType == "" {
		return engine.DefaultContentType
	}
	return m.ContentType
}
