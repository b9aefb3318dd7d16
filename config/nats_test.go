package config

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// natsRelay is a relay with one transport of kind nats and one route, each with what
// it is given.
func natsRelay(transport, route string) string {
	return `
relays:
  - name: orders
    store: {dialect: postgres, url: "${ORDERS_DB}"}
    transports:
      main: {kind: nats, ` + transport + `}
    routes:
      - {topics: [">"], to: main` + route + `}
`
}

func TestNATSFaults(t *testing.T) {
	const at = "relays[0].transports.main."
	long := strings.Repeat("x", 1025)
	for name, test := range map[string]struct {
		transport, route string
		want             []string
	}{
		"url missing":        {`stream: X`, "", []string{"6:13: " + at + "url: it is missing; write it as in nats://"}},
		"url of amqp":        {`url: "${AMQP_URL}"`, "", []string{"6:31: " + at + "url: each URL must begin with nats://"}},
		"a bad one of two":   {`url: "nats://h,nats://u:hunter2/x@h"`, "", []string{"6:31: " + at + "url: a URL's user, password"}},
		"source":             {`url: "nats://h", source: "%zz"`, "", []string{"6:51: " + at + `source: Source "%zz" is not a URI reference`}},
		"stream":             {`url: "nats://h", stream: "A.B"`, "", []string{"6:51: " + at + `stream: Stream "A.B" can't be the name of a stream`}},
		"stream expanded":    {`url: "nats://h", stream: "${AMQP_URL}"`, "", []string{"6:51: " + at + "stream: the value of ${AMQP_URL} can't be used here"}},
		"inbox prefix":       {`url: "nats://h", inbox_prefix: "a.>"`, "", []string{"6:57: " + at + "inbox_prefix: the subject"}},
		"api prefix":         {`url: "nats://h", api_prefix: "$JS.*.API"`, "", []string{"6:55: " + at + "api_prefix: the subject"}},
		"user alone":         {`url: "nats://h", user: u`, "", []string{"6:49: " + at + "user: user and password belong together"}},
		"password alone":     {`url: "nats://h", password: "${PASSWORD}"`, "", []string{"6:53: " + at + "password: user and password belong together"}},
		"password empty":     {`url: "nats://h", user: u, password: "${EMPTY}"`, "", []string{"6:62: " + at + "password: it is empty"}},
		"two logins":         {`url: "nats://h", user: u, password: p, token: hunter2`, "", []string{"6:72: " + at + "token: user is a way to log in too; use one"}},
		"a login in the url": {`url: "nats://hunter2@h", token: hunter2`, "", []string{"6:58: " + at + "token: the url has a user or a token too"}},
		"creds missing":      {`url: "nats://h", creds: /no/such`, "", []string{"6:50: " + at + "creds: it can't be read: open /no/such"}},
		"nkey missing":       {`url: "nats://h", nkey: "${AMQP_URL}"`, "", []string{"6:49: " + at + "nkey: the file that ${AMQP_URL} names can't be read"}},
		"tls":                {`url: "nats://h", tls: {ca: /no/such}`, "", []string{"6:53: " + at + "tls.ca: it can't be read"}},
		"unknown":            {`url: "nats://h", steam: X`, "", []string{"6:50: " + at + "steam: unknown key; did you mean stream?"}},
		"heartbeat":          {`url: "nats://h", heartbeat: 5s`, "", []string{"6:54: " + at + "heartbeat: unknown key"}},
		"subject empty":      {`url: "nats://h"`, `, subject: ""`, []string{"8:44: relays[0].routes[0].subject: it is empty; leave it out"}},
		"subject wildcard":   {`url: "nats://h"`, `, subject: "a.*"`, []string{`8:44: relays[0].routes[0].subject: the subject "a.*" has a wildcard`}},
		"subject blank":      {`url: "nats://h"`, `, subject: "a b"`, []string{`8:44: relays[0].routes[0].subject: the subject "a b" contains a blank`}},
		"subject of ours":    {`url: "nats://h"`, `, subject: "$SYS.x"`, []string{`8:44: relays[0].routes[0].subject: the subject "$SYS.x" is the server's own`}},
		"subject too long":   {`url: "nats://h"`, `, subject: ` + long, []string{`8:44: relays[0].routes[0].subject: the subject `}},
		"subject expanded":   {`url: "nats://h"`, `, subject: "${EMPTY}*"`, []string{`8:44: relays[0].routes[0].subject: the value of ${EMPTY}* is not a subject`}},
		"exchange":           {`url: "nats://h"`, `, exchange: x`, []string{"8:45: relays[0].routes[0].exchange: unknown key"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := natsRelay(test.transport, test.route)
			_, err := parseTest(t, text)
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("no fault in\n%s", text)
			}
			var got []string
			for _, f := range faults {
				got = append(got, strings.TrimPrefix(f.Error(), "test.yaml:"))
			}
			ok := len(got) == len(test.want)
			for i := range test.want {
				ok = ok && strings.HasPrefix(got[i], test.want[i])
			}
			if !ok {
				t.Errorf("got\n  %s\nwant\n  %s\nin\n%s", strings.Join(got, "\n  "), strings.Join(test.want, "\n  "), text)
			}
		})
	}
}

func TestNATSInEffect(t *testing.T) {
	files["ca.pem"] = testCA
	defer delete(files, "ca.pem")
	c, err := parse("full.yaml", read(t, "full.yaml"), testSource())
	if err != nil {
		t.Fatal(err)
	}
	r := c.Relay("events")
	by := map[string]*natsBroker{}
	for _, tr := range r.transports {
		by[tr.name] = tr.settings.(*natsBroker)
	}
	b := by["main"]
	if b.url() != "nats://n1.internal:4222,tls://n2.internal" || b.source != "/events" || b.stream != "EVENTS" ||
		b.user != "outward" || b.password() != "hunter2" || b.inboxPrefix != "_INBOX_outward" || b.apiPrefix != "$JS.hub.API" ||
		b.tls.ServerName != "nats.internal" || b.tls.RootCAs == nil {
		t.Errorf("main: %+v", b)
	}
	if by["token"].token() != "hunter2" || by["creds"].creds != "secrets/amqp" || by["nkey"].nkey != "secrets/amqp" {
		t.Error("token, creds or nkey is not what the file says")
	}
	if r.routes[0].destination != "audit" || r.routes[1].destination != "" {
		t.Errorf("subjects %q, %q", r.routes[0].destination, r.routes[1].destination)
	}
	for _, tr := range r.transports {
		opened, err := tr.settings.open(brokerOptions{name: tr.name, relay: r.Name})
		if err != nil {
			t.Fatalf("%s: %v", tr.name, err)
		}
		if d := opened.Describe(); d.Kind != "nats" || d.Name != tr.name {
			t.Errorf("%s is %+v", tr.name, d)
		}
		if err := opened.Close(context.Background()); err != nil {
			t.Errorf("%s: %v", tr.name, err)
		}
	}
}

func TestRedactNATS(t *testing.T) {
	for raw, want := range map[string]string{
		"nats://h":                       "nats://h",
		"nats://a,tls://b:4222":          "nats://a,tls://b:4222",
		"nats://hunter2@h":               "nats://***@h",
		"nats://${TOKEN}@h":              "nats://${TOKEN}@h",
		"nats://x${TOKEN}@h":             "nats://***@h",
		"nats://u:hunter2@a,nats://b":    "nats://u:***@a,nats://b",
		"nats://a,nats://hunter2@b":      "nats://a,nats://***@b",
		"${A},${B}":                      "${A},${B}",
		"nats://u:${PW}@a,nats://${T}@b": "nats://u:${PW}@a,nats://${T}@b",
	} {
		if got := redactNATS(raw); got != want {
			t.Errorf("redactNATS(%q) = %q, want %q", raw, got, want)
		}
	}
}
