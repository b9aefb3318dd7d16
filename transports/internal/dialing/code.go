package dialing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/outward-dev/outward/transports/internal/faults"
)

// Code classifies what went wrong before a connection was open, or is empty. known
// gives a code to what the client library, or the broker, has values for, and is
// asked first, but for the time: when that was over, the rest is only what it looked
// like from inside.
func Code(err error, known func(error) string) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return faults.Timeout
	}
	if code := known(err); code != "" {
		return code
	}
	var (
		dns       *net.DNSError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		verify    *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		remote    *net.OpError
		timeout   interface{ Timeout() bool }
	)
	switch {
	case errors.As(err, &dns):
		return faults.DNS
	case errors.As(err, &record), errors.As(err, &alert), errors.As(err, &verify),
		errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid),
		errors.As(err, &remote) && remote.Op == "remote error": // how crypto/tls tells the other side's alert
		return faults.TLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return faults.Refused
	case errors.As(err, &timeout) && timeout.Timeout():
		return faults.Timeout
	}
	return ""
}

// Overdue says that the time was over, where err is only what that looked like from
// inside.
func Overdue(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}
