package natsjs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/internal/faults"
)

// ack is a stream's answer to a publish.
type ack struct {
	Error     *apiError `json:"error"`
	Stream    string    `json:"stream"`
	Seq       uint64    `json:"seq"`
	Duplicate bool      `json:"duplicate"`
}

// apiError is how JetStream says no.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// readAck takes an answer for what it means to the message. false: it is not from
// a stream. expected is the stream that has to have it, or empty.
func readAck(subject, expected string, data []byte) (engine.Result, bool) {
	a, plain := plainAck(data)
	if !plain {
		if err := json.Unmarshal(data, &a); err != nil {
			return engine.Result{}, false
		}
	}
	switch {
	case a.Error != nil && a.Error.ErrCode != 0: // beside it there may be the stream's name
		return engine.Result{Fault: refusal(subject, a.Error.ErrCode, a.Error.Description)}, true
	case a.Error != nil, a.Stream == "", a.Seq == 0 && !a.Duplicate:
		return engine.Result{}, false
	case expected != "" && a.Stream != expected:
		// The server refuses it on our word (10060), so whoever says this is no server
		// that does.
		return engine.Result{Fault: faults.Newf(engine.DestinationFailed, codeWrongStream,
			"natsjs: subject %q: acknowledged by the stream %.80q; %q is expected", subject, a.Stream, expected)}, true
	}
	word := "stream " + a.Stream + " seq " + strconv.FormatUint(a.Seq, 10)
	if a.Duplicate {
		word += " duplicate"
	}
	return engine.Result{Ack: word, Duplicate: a.Duplicate}, true
}

// plainAck reads what servers nearly always answer, {"stream":"NAME","seq":NUMBER},
// without decoding JSON for each message, which was a twelfth of what a drain took.
// false: it is anything else.
func plainAck(data []byte) (a ack, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return a, false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`"`))
	if !ok || bytes.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '\\' || r == utf8.RuneError }) {
		return a, false
	}
	digits, ok := bytes.CutPrefix(rest, []byte(`,"seq":`))
	digits, end := bytes.CutSuffix(digits, []byte("}"))
	if !ok || !end || len(digits) == 0 || digits[0] < '1' || digits[0] > '9' {
		return a, false
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return ack{Stream: string(name), Seq: seq}, err == nil
}
