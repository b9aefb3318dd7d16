package natsjs

import (
	"encoding/json"
	"strconv"

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
	var a ack
	if err := json.Unmarshal(data, &a); err != nil {
		return engine.Result{}, false
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
