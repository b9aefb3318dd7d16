package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outward-dev/outward/engine"
)

// A row is one that a claim has read.
type row struct {
	engine.Claimed
	lane  int16
	stamp int32
	later bool  // not due yet
	low   int64 // smallest entry of its key; -1: none
	size  int64 // of its payload

	occurred *time.Time // nil: not an instant that can be held
}

// body is the part of a row that may be large.
type body struct {
	headers, text *string
	payload       []byte
}

// A receipt's Scope holds the lane and the stamp.
func scope(lane int16, stamp int32) int64 { return int64(stamp)<<16 | int64(uint16(lane)) }
func laneOf(r engine.Receipt) int16       { return int16(uint16(r.Scope)) }
func stampOf(r engine.Receipt) int32      { return int32(r.Scope >> 16) }
func uuidOf(id engine.ID) pgtype.UUID     { return pgtype.UUID{Bytes: id, Valid: true} }

// scan reads the result of readSQL.
func (r *look) scan(rows pgx.Rows) error {
	r.rows = r.rows[:0]
	for rows.Next() {
		var (
			one     row
			id      pgtype.UUID
			b       body
			created *time.Time
			failing int64
		)
		m := &one.Message
		if err := rows.Scan(&one.Receipt.Seq, &one.lane, &one.stamp, &id, &m.Topic, &m.Key, &m.Type,
			&m.AggregateType, &m.AggregateID, &m.AggregateVersion,
			&m.CorrelationID, &m.ContentType, &b.headers, &b.payload, &b.text, &one.occurred, &created,
			&one.Attempts, &one.Crashes, &one.Resends, &one.Company, &one.later, &failing, &one.low, &one.size); err != nil {
			return err
		}
		m.ID = id.Bytes
		one.Receipt.Scope = scope(one.lane, one.stamp)
		one.FailingFor = time.Duration(failing) * time.Microsecond
		if !r.ahead {
			one.decode(b)
		}
		if created != nil {
			one.CreatedAt = created.UTC()
		}
		r.rows = append(r.rows, one)
	}
	return rows.Err()
}

func (r *row) decode(b body) {
	r.Bad = decode(&r.Message, b.headers, b.payload, b.text, r.occurred)
}

// decode fills in what can be wrong with a row that somebody else inserted. The
// table's CHECKs refuse such rows; but they can be dropped, and a row that fails
// its claim would stop its lane for good.
func decode(m *engine.Message, headers *string, payload []byte, text *string, occurred *time.Time) error {
	var faults []error
	switch {
	case headers == nil:
		faults = append(faults, errors.New("headers are NULL"))
	case *headers != "{}":
		var err error
		if m.Headers, err = headersOf(*headers); err != nil {
			faults = append(faults, errors.New("headers are not a JSON object of strings"))
		}
	}
	m.Payload = payload
	if text != nil {
		if payload != nil {
			faults = append(faults, errors.New("payload and payload_text are both set"))
		} else {
			m.Payload = []byte(*text)
		}
	}
	if occurred == nil {
		faults = append(faults, errors.New("occurred_at is not in the years 1 to 9999"))
	} else {
		m.OccurredAt = occurred.UTC()
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

// storable makes what a person or a program called itself fit for a text column.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "")
}
