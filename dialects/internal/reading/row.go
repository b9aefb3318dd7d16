// Package reading decides about the rows that a claim has read: which go, which
// are put aside and which stay. It is the same on every database.
package reading

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
)

// A Row is one that a claim has read.
type Row struct {
	engine.Claimed
	Lane  int16
	Stamp int32
	Later bool  // not due yet
	Low   int64 // smallest entry of its key; -1: none
	Own   bool  // it has an entry itself
	Size  int64 // of its payload, in bytes
}

// MaxBytes is how large the payloads of one claim may be: a thousand messages of
// 16 MB would not fit into memory.
const MaxBytes = 64 << 20

// A receipt's Scope holds the lane and the stamp.

// Scope makes the Scope of a receipt.
func Scope(lane int16, stamp int32) int64 { return int64(stamp)<<16 | int64(uint16(lane)) }

// LaneOf is the lane in a receipt's Scope.
func LaneOf(r engine.Receipt) int16 { return int16(uint16(r.Scope)) }

// StampOf is the stamp in a receipt's Scope.
func StampOf(r engine.Receipt) int32 { return int32(r.Scope >> 16) }

// LanesOf lists the lanes below count of n receipts, each once, ascending.
func LanesOf(count, n int, receipt func(i int) engine.Receipt) []int16 {
	seen := make([]bool, count)
	for i := range n {
		if l := LaneOf(receipt(i)); l >= 0 && int(l) < count {
			seen[l] = true
		}
	}
	var ls []int16
	for l, is := range seen {
		if is {
			ls = append(ls, int16(l))
		}
	}
	return ls
}

// A Body is what of a row may be large or may not be readable.
type Body struct {
	Headers  *string // nil: NULL
	Payload  []byte
	Text     *string    // payload_text
	Occurred *time.Time // nil: not an instant that can be held
}

// Decode fills in what can be wrong with a row that somebody else inserted. A
// table's CHECKs refuse most of that; but they can be dropped, and a row that fails
// its claim would stop its lane for good.
func Decode(m *engine.Message, b Body) error {
	var faults []error
	switch {
	case b.Headers == nil:
		faults = append(faults, errors.New("headers are NULL"))
	case *b.Headers != "{}":
		var err error
		if m.Headers, err = headersOf(*b.Headers); err != nil {
			faults = append(faults, errors.New("headers are not a JSON object of strings"))
		}
	}
	m.Payload = b.Payload
	if b.Text != nil {
		if b.Payload != nil {
			faults = append(faults, errors.New("payload and payload_text are both set"))
		} else {
			m.Payload = []byte(*b.Text)
		}
	}
	if b.Occurred == nil {
		faults = append(faults, errors.New("occurred_at is not in the years 1 to 9999"))
	} else {
		m.OccurredAt = b.Occurred.UTC()
	}
	if m.Topic == "" {
		faults = append(faults, errors.New("topic is empty"))
	}
	if m.Type == "" {
		faults = append(faults, errors.New("type is empty"))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("row can't be decoded: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

func headersOf(text string) (headers map[string]string, err error) {
	if err := json.Unmarshal([]byte(text), &headers); err != nil || headers == nil {
		return nil, errors.New("not an object of strings")
	}
	// encoding/json takes null for an empty string.
	if strings.Contains(text, "null") {
		var strict map[string]*string
		if err := json.Unmarshal([]byte(text), &strict); err != nil {
			return nil, err
		}
		for _, v := range strict {
			if v == nil {
				return nil, errors.New("a value is null")
			}
		}
	}
	return headers, nil
}

// Storable makes what a person or a program called itself fit for a text column.
func Storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "")
}
