package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/outward-dev/outward/engine"
)

// A Key is what a repeat is recognised by: who received what.
type Key struct {
	// Consumer names the effect: "billing". Two consumers each have the effect of one
	// message once. 1 to 255 characters; it must never change.
	Consumer string
	// Message is the text of the message's id as it came.
	Message string
}

// maxLength is what a table's columns hold, in characters.
const maxLength = 255

// digest begins what stands for an id that a column can't hold.
const digest = "sha256:"

// Normal returns the key in the form in which a table keeps it, the same for every
// dialect: a UUID in its canonical text, whichever case it came in; any other id as
// it is, or its hash where it is longer than the column or no text that every
// database can store. Ids are never cut, since the next one with the same beginning
// would be taken for a repeat. A dialect calls it; consumers needn't.
func (k Key) Normal() (Key, error) {
	var faults []error
	switch {
	case k.Consumer == "":
		faults = append(faults, errors.New("the consumer's name is empty"))
	case !storable(k.Consumer):
		faults = append(faults, fmt.Errorf("the consumer's name %.40q is not UTF-8 text without NUL of at most %d characters", k.Consumer, maxLength))
	}
	if k.Message == "" {
		faults = append(faults, errors.New("the message has no id: its repeat can't be recognised"))
	}
	if err := errors.Join(faults...); err != nil {
		return Key{}, fmt.Errorf("inbox: %w", err)
	}
	if id, err := engine.ParseID(k.Message); err == nil {
		k.Message = id.String()
	} else if !storable(k.Message) || strings.HasPrefix(k.Message, digest) {
		// Also one that looks like a hash, else somebody could send the hash of another
		// message's id and have that taken for a repeat.
		sum := sha256.Sum256([]byte(k.Message))
		k.Message = digest + hex.EncodeToString(sum[:])
	}
	return k, nil
}

func storable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0) && utf8.RuneCountInString(s) <= maxLength
}
