package engine

import "time"

// A Message is one fact to be told to others: what a business transaction
// decided, as it was at that moment. The zero value of every field but Topic and
// Type is a stated default. A Message is a value; the engine and the dialects
// never change the Headers or the Payload of one that they were given.
type Message struct {
	// ID is the message's identity. Zero: Enqueue mints one and returns it.
	ID ID
	// Topic is what the routes map to a destination: 1 to 255 characters.
	Topic string
	// Key is the ordering key, and the partition key where the broker has one: at
	// most 255 characters, compared byte by byte. Empty: no order is asked for.
	Key string
	// Type names the message's contract and its version, as in
	// "order.submitted.v1": 1 to 255 characters.
	Type string
	// AggregateType, AggregateID and AggregateVersion say what the message is
	// about, for logs and for the detection of gaps. All are optional.
	AggregateType    string
	AggregateID      string
	AggregateVersion int64
	// CorrelationID ties messages of one conversation together. Optional.
	CorrelationID string
	// ContentType is the media type of the payload; empty: "application/json".
	ContentType string
	// Headers travel with the message: a traceparent, say. Keys are 1 to 255 bytes
	// long. Headers never replace what Outward itself says of a message.
	Headers map[string]string
	// Payload is the body as it was at the business transaction. It is never
	// rebuilt later. nil is an empty body, or a tombstone where the broker has them.
	Payload []byte
	// OccurredAt is when it happened, by the producer's word; zero: the database's
	// now. It is kept to the microsecond.
	OccurredAt time.Time
	// Delay puts the first attempt not before the database's now plus Delay. A
	// delayed message takes its place when it is due and holds nothing back.
	Delay time.Duration
}

// DefaultContentType is the content type of a message that names none.
const DefaultContentType = "application/json"
