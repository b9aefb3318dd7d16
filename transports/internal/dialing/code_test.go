package dialing_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/outward-dev/outward/transports/internal/dialing"
	"github.com/outward-dev/outward/transports/internal/transporttest"
)

// handshake returns what a client sees of a handshake with a server of the tests'.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	addr := transporttest.Listen(t, func(c net.Conn) {
		transporttest.Silent(tls.Server(c, server))
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return tls.Client(c, client).HandshakeContext(t.Context())
}

func TestCode(t *testing.T) {
	special := errors.New("special")
	known := func(err error) string {
		if errors.Is(err, special) {
			return "special"
		}
		return ""
	}
	own := &tls.Config{Certificates: []tls.Certificate{transporttest.SelfSigned(t)}, MinVersion: tls.VersionTLS13}
	_, refused := net.Dial("tcp", transporttest.Nobody(t))
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"time over":       {fmt.Errorf("%w (%w)", context.DeadlineExceeded, special), "timeout"},
		"deadline":        {os.ErrDeadlineExceeded, "timeout"},
		"known":           {fmt.Errorf("%w: %w", special, syscall.ECONNREFUSED), "special"},
		"refused":         {refused, "refused"},
		"name":            {&net.DNSError{IsNotFound: true}, "dns"},
		"name in time":    {&net.DNSError{IsTimeout: true}, "dns"},
		"other time-outs": {syscall.ETIMEDOUT, "timeout"},
		"not trusted":     {handshake(t, own, &tls.Config{ServerName: "127.0.0.1"}), "tls"},
		"other's alert":   {handshake(t, own, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true}), "tls"},
		"the end":         {io.EOF, ""},
	} {
		if got := dialing.Code(c.err, known); got != c.want || c.err == nil {
			t.Errorf("%s: %q for %v, want %q", name, got, c.err, c.want)
		}
	}
}

func TestOverdue(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	for want, err := range map[string]error{
		"EOF":          dialing.Overdue(t.Context(), io.EOF),
		"enough (EOF)": dialing.Overdue(ended, io.EOF),
		"enough":       dialing.Overdue(ended, context.Cause(ended)),
	} {
		if err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
