package rabbitmq

import (
	"net"
	"time"
)

// wire is the TCP connection under the client library (and under TLS). The
// library writes while it holds the locks that its own Close and heartbeat need,
// so one write that blocks for ever blocks everything for ever: a broker in alarm
// stops reading, and that is how it happens (rabbitmq/amqp091-go#111, #178, #122).
type wire struct {
	net.Conn
	timeout time.Duration
}

// Write bounds every single write.
func (w *wire) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

// abort closes at once and throws away what the kernel has not sent yet, so that
// nothing of it can reach the broker later.
func (w *wire) abort() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		// An error means that the socket is closed already; so does one of Close.
		_ = tcp.SetLinger(0)
	}
	_ = w.Close()
}
