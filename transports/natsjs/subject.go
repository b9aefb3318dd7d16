package natsjs

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxSubject is in bytes. A line of the protocol that is longer than the server's
// max_control_line (4096, with the reply subject and the sizes in it) makes the
// client give up its connection for good, and with it everybody's messages. The
// table's topics have at most 255 characters, which is less than this.
const maxSubject = 1024

// CheckSubject reports why messages can't be published to a subject, or nil. A
// server takes wildcards in a subject as they are and stores a message that no
// subscription means, so they are refused here; so are the subjects through which
// a server is administered.
func CheckSubject(subject string) error {
	switch {
	case subject == "":
		return errors.New("the subject is empty")
	case len(subject) > maxSubject:
		return fmt.Errorf("the subject %.40q… is %d bytes long; the limit is %d", subject, len(subject), maxSubject)
	case !utf8.ValidString(subject):
		return fmt.Errorf("the subject %.80q is not UTF-8 text", subject)
	}
	for i := range len(subject) {
		if c := subject[i]; c <= ' ' || c == 0x7f {
			return fmt.Errorf("the subject %.80q contains a blank or a control character", subject)
		}
	}
	for part := range strings.SplitSeq(subject, ".") {
		switch part {
		case "":
			return fmt.Errorf("the subject %.80q has an empty part between its dots", subject)
		case "*", ">":
			return fmt.Errorf("the subject %.80q has a wildcard, which only subscriptions may", subject)
		}
	}
	if subject[0] == '$' && !strings.HasPrefix(subject, "$KV.") || strings.HasPrefix(subject, "_INBOX.") {
		return fmt.Errorf("the subject %.80q is the server's own", subject)
	}
	return nil
}
