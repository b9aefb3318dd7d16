package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outward-dev/outward/internal/faultproxy"
	"github.com/outward-dev/outward/internal/testservers"
)

// A broker that takes connections and answers nothing, for longer than all attempts
// and their backoffs together: nothing dies, nothing is charged, everything arrives
// when it answers again. Status and metrics raise the alarm meanwhile, and clear it.
func TestStalledForLongerThanAllBackoffs(t *testing.T) {
	delivery := "delivery: {confirm_timeout: 300ms, max_attempts: 3, min_age: 1ms, backoff: {min: 10ms, max: 100ms}}"
	const backoffs = 3 * (300 + 100) * time.Millisecond
	for _, test := range []struct {
		name string
		site func(t *testing.T) (s *site, target *url.URL, variable string, all func(n int))
	}{
		{"rabbitmq", func(t *testing.T) (*site, *url.URL, string, func(int)) {
			s := newSite(t)
			s.configure(s.config("\nhttp:", "\n    "+delivery+"\nhttp:"))
			q := s.listen()
			return s, address(t, testservers.URL(t, "rabbitmq4")), "AMQP_URL", func(n int) {
				bodies := map[string]bool{}
				for len(bodies) < n {
					bodies[string(q.next().Body)] = true
				}
			}
		}},
		{"nats", func(t *testing.T) (*site, *url.URL, string, func(int)) {
			s, q := newStreamSite(t, "postgres", jetstream.StreamConfig{})
			text, err := os.ReadFile(filepath.Join(s.dir, "outward.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			s.configure(strings.Replace(string(text), "delivery: {confirm_timeout: 1s}", delivery, 1))
			return s, address(t, testservers.URL(t, "nats")), "NATS_URL", func(n int) {
				within(t, "all have arrived", func() bool {
					if q.info().State.Msgs < uint64(n) {
						return false
					}
					bodies := map[string]bool{}
					for _, m := range q.all() {
						bodies[m.body] = true
					}
					return len(bodies) == n
				})
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, target, variable, all := test.site(t)
			p := faultproxy.New(t, target.Host)
			target.Host = p.Addr()
			s.setenv(variable, target.String())
			s.want(exitWell, "migrate")
			d := s.start()
			paused := regexp.MustCompile(`(?m)^outward_paused\{.*\} 1$`)
			alarm := func() bool {
				code, stdout, _ := s.run("status")
				_, metrics := d.get("/metrics")
				_, ready := d.get("/readyz")
				return code == exitAttention && strings.Contains(stdout, "main") && paused.MatchString(metrics) && strings.Contains(ready, "paused by a fault")
			}
			insert := func(from, to int) {
				for n := from; n <= to; n++ {
					s.sql(fmt.Sprintf("INSERT INTO NAME.outbox_messages (topic, type, payload_text, ordering_key) VALUES ('a', 'a.v1', '%d', 'k%d')", n, n%3))
				}
			}
			insert(1, 3)
			all(3)
			if alarm() {
				t.Error("an alarm before anything has happened")
			}

			p.Deaf(true)
			p.Mute(true)
			stalled := time.Now()
			insert(4, 20)
			within(t, "status, metrics and probes raise the alarm", alarm)
			within(t, "the stall is longer than all backoffs together", func() bool { return time.Since(stalled) > 3*backoffs })
			if !alarm() {
				t.Error("the alarm is over, and the stall is not")
			}
			if n := s.number("SELECT count(*) FROM NAME.outbox_messages WHERE state = 3 OR attempts > 0 OR crashes > 0"); n != 0 {
				t.Errorf("%d messages are dead or charged", n)
			}
			p.Deaf(false)
			p.Mute(false)
			s.unharmed(20)
			if test.name == "nats" {
				all(20)
			} else {
				all(17)
			}
			within(t, "status and metrics have cleared the alarm", func() bool {
				code, _, _ := s.run("status")
				_, metrics := d.get("/metrics")
				_, ready := d.get("/readyz")
				return code == exitWell && !paused.MatchString(metrics) && !strings.Contains(ready, "paused")
			})
			d.stop()
		})
	}
}

func address(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal("the address can't be parsed")
	}
	return u
}
