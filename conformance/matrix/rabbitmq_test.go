package matrix

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/internal/testservers"
	"github.com/outward-dev/outward/transports/rabbitmq"
)

var rabbitmqTransport = transport{
	name:    "rabbitmq",
	servers: []string{"rabbitmq4"},
	create: func(t *testing.T, server string) string {
		url := testservers.URL(t, server)
		name := "matrix-" + strings.ToLower(rand.Text()[:10])
		if err := withChannel(url, func(ch *amqp.Channel) error { return declare(ch, name) }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			err := withChannel(url, func(ch *amqp.Channel) error {
				if _, err := ch.QueueDelete(name, false, false, false); err != nil {
					return err
				}
				return ch.ExchangeDelete(name, false, false)
			})
			if err != nil {
				t.Errorf("queue and exchange stay behind: %v", err)
			}
		})
		return url + "#" + name
	},
	open: func(address string) (engine.Transport, []engine.Route, error) {
		url, name, _ := strings.Cut(address, "#")
		tr, err := rabbitmq.New(url, &rabbitmq.Options{Source: "/matrix"})
		if err != nil {
			return nil, nil, err
		}
		return tr, []engine.Route{{Topics: ">", Transport: tr, Destination: rabbitmq.Destination(name, "")}}, nil
	},
	oversize: 16<<20 + 1, // more than its max_message_size
	poison:   engine.Message{Type: strings.Repeat("é", 255)},
	full: func(t *testing.T, address string) func() {
		_, name, _ := strings.Cut(address, "#")
		policy := "/policies/%2F/" + name
		limit := func(n int) {
			manage(t, http.MethodPut, policy, map[string]any{"pattern": "^" + name + "$", "apply-to": "queues",
				"definition": map[string]any{"max-length": n, "overflow": "reject-publish"}})
		}
		// In two steps: a queue that gets a limit before it knows what to do at it drops its
		// head.
		limit(1_000_000)
		limit(depth(t, address) + 5)
		return func() { limit(1_000_000); manage(t, http.MethodDelete, policy, nil) }
	},
	gone: func(t *testing.T, address string) ([]delivery, func()) {
		url, name, _ := strings.Cut(address, "#")
		do := func(f func(ch *amqp.Channel) error) {
			if err := withChannel(url, f); err != nil {
				t.Error(err)
			}
		}
		do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) })
		return nil, func() { do(func(ch *amqp.Channel) error { return declare(ch, name) }) }
	},
	queue: func(t *testing.T, address string) (there []delivery, undo func()) {
		url, name, _ := strings.Cut(address, "#")
		do := func(f func(ch *amqp.Channel) error) {
			if err := withChannel(url, f); err != nil {
				t.Error(err)
			}
		}
		// Unbound first: what is confirmed between reading and deleting would be lost by
		// the broker.
		do(func(ch *amqp.Channel) error { return ch.QueueUnbind(name, "#", name, nil) })
		there, err := takeFrom(t.Context(), url, name)
		if err != nil {
			t.Error(err)
		}
		do(func(ch *amqp.Channel) error { _, err := ch.QueueDelete(name, false, false, false); return err })
		return there, func() { do(func(ch *amqp.Channel) error { return declare(ch, name) }) }
	},
	alarm: func(t *testing.T, server *testservers.Server) func() {
		t.Cleanup(func() { server.Ctl("set_vm_memory_high_watermark", "absolute", "512MiB") })
		server.Ctl("set_vm_memory_high_watermark", "0")
		return func() { server.Ctl("set_vm_memory_high_watermark", "absolute", "512MiB") }
	},
	login: func(t *testing.T, address string) (string, *login) {
		name := "matrix-" + strings.ToLower(rand.Text()[:10])
		user := "/users/" + name
		t.Cleanup(func() { manage(t, http.MethodDelete, user, nil) })
		password := func(p string) { manage(t, http.MethodPut, user, map[string]any{"password": p, "tags": ""}) }
		password("right")
		manage(t, http.MethodPut, "/permissions/%2F/"+name, map[string]any{"configure": ".*", "write": ".*", "read": ".*"})
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal("the address can't be parsed")
		}
		u.User = url.UserPassword(name, "right")
		return address, &login{
			address: u.String(),
			wrong: func() {
				password("another")
				manage(t, http.MethodDelete, "/connections/username/"+name, nil)
			},
			right: func() { password("right") },
		}
	},
	take: func(ctx context.Context, address string) ([]delivery, error) {
		url, name, _ := strings.Cut(address, "#")
		return takeFrom(ctx, url, name)
	},
}

// declare makes exchange and queue, as far as they are missing.
func declare(ch *amqp.Channel, name string) error {
	if err := ch.ExchangeDeclare(name, "topic", true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
		return err
	}
	return ch.QueueBind(name, "#", name, false, nil)
}

// manage calls the management API of RabbitMQ 4.
func manage(t *testing.T, verb, path string, body any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), verb, testservers.Management(t, "rabbitmq4")+"/api"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal("the management URL can't be parsed")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode >= 300 {
		t.Errorf("%s %s: %s %s %v", verb, path, resp.Status, answer, err)
	}
}

func depth(t *testing.T, address string) (n int) {
	t.Helper()
	url, name, _ := strings.Cut(address, "#")
	err := withChannel(url, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

func takeFrom(ctx context.Context, url, name string) (ds []delivery, err error) {
	err = withChannel(url, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			return err
		}
		if err := ch.Qos(1000, 0, false); err != nil {
			return err
		}
		in, err := ch.ConsumeWithContext(ctx, name, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		for len(ds) < q.Messages {
			select {
			case <-ctx.Done():
				return fmt.Errorf("%d of %d messages: %w", len(ds), q.Messages, ctx.Err())
			case d := <-in:
				key, _ := d.Headers["outward-key"].(string)
				headers := map[string]string{}
				for name, value := range d.Headers {
					headers[name], _ = value.(string)
				}
				ds = append(ds, delivery{id: d.MessageId, key: key, topic: d.RoutingKey, kind: d.Type, payload: d.Body, headers: headers, redelivered: d.Redelivered})
				if len(ds)%500 == 0 || len(ds) == q.Messages {
					if err := d.Ack(true); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	return ds, err
}

func withChannel(url string, do func(ch *amqp.Channel) error) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}
