package engine

import (
	"database/sql/driver"
	"encoding/hex"
	"fmt"

	"github.com/outward-dev/outward/engine/internal/uuid7"
)

// ID is the identity of a message: a UUID of any version. It is chosen once, at
// the latest when the message is enqueued, and every attempt, retry, requeue and
// replay carries it. Its text form is canonical: 36 characters, lower case.
type ID [16]byte

// NewID returns a fresh version 7 UUID: IDs of one process sort in the order in
// which they were made. It may be called concurrently.
func NewID() ID { return ID(uuid7.New()) }

// ParseID reads the canonical form of a UUID, in upper or lower case. It accepts
// no other form, so that one ID has one text.
func ParseID(s string) (ID, error) {
	var id ID
	if err := id.UnmarshalText([]byte(s)); err != nil {
		return ID{}, err
	}
	return id, nil
}

// String returns the canonical form: 36 characters, lower case.
func (id ID) String() string {
	text := id.text()
	return string(text[:])
}

// IsZero reports whether id is the zero UUID, which stands for "not chosen yet"
// and never identifies a message.
func (id ID) IsZero() bool { return id == ID{} }

// Compare orders IDs by their bytes, which is also the order of their texts and
// of PostgreSQL's uuid type.
func (id ID) Compare(other ID) int {
	for i, b := range id {
		if b != other[i] {
			return int(b) - int(other[i])
		}
	}
	return 0
}

// MarshalText implements [encoding.TextMarshaler]. Its error is always nil.
func (id ID) MarshalText() ([]byte, error) {
	text := id.text()
	return text[:], nil
}

// text is written for every message more than once, so it costs no allocation.
func (id ID) text() (text [36]byte) {
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return text
}

// UnmarshalText implements [encoding.TextUnmarshaler]; see [ParseID]. After an
// error id is unchanged.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return fmt.Errorf("engine: %.60q is not a UUID of the form 00000000-0000-0000-0000-000000000000", text)
	}
	digits := make([]byte, 0, 32)
	for i, c := range text {
		switch i {
		case 8, 13, 18, 23:
		default:
			digits = append(digits, c)
		}
	}
	var parsed ID
	if _, err := hex.Decode(parsed[:], digits); err != nil {
		return fmt.Errorf("engine: %.60q is not a UUID: %w", text, err)
	}
	*id = parsed
	return nil
}

// Scan implements [database/sql.Scanner]: 16 bytes in RFC order, or the canonical
// text as string or bytes. NULL is an error: a message without an ID is a fault.
func (id *ID) Scan(src any) error {
	switch v := src.(type) {
	case [16]byte:
		*id = v
		return nil
	case []byte:
		if len(v) == 16 {
			copy(id[:], v)
			return nil
		}
		return id.UnmarshalText(v)
	case string:
		return id.UnmarshalText([]byte(v))
	default:
		return fmt.Errorf("engine: cannot read a UUID from a %T", src)
	}
}

// Value implements [database/sql/driver.Valuer] with the canonical text. Dialects
// that store 16 bytes pass id[:] instead.
func (id ID) Value() (driver.Value, error) { return id.String(), nil }
