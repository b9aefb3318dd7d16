package config

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

var update = flag.Bool("update", false, "write the golden files anew")

// values are what the tests' references stand for. All of them are secrets.
var values = map[string]string{
	"ORDERS_DB":   "postgres://outward:hunter2@db.internal/orders",
	"AMQP_URL":    "amqp://outward:hunter2@broker.internal/",
	"PASSWORD":    "hunter2",
	"CONNECTIONS": "7",
	"LEASE":       "hunter2",
	"EMPTY":       "",
}

var files = map[string]string{
	"secrets/amqp": "amqp://outward:hunter2@broker.internal/\n",
}

func testSource() source {
	return source{
		lookup: func(name string) (string, bool) { v, ok := values[name]; return v, ok },
		read: func(path string) ([]byte, error) {
			if v, ok := files[path]; ok {
				return []byte(v), nil
			}
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		},
	}
}

func parseTest(t *testing.T, text string) (*Config, error) {
	t.Helper()
	c, err := parse("test.yaml", []byte(text), testSource())
	var faults Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatalf("the error is a %T, not Faults: %v", err, err)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is in: %v", err)
	}
	return c, err
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := parse("ten.yaml", read(t, "ten.yaml"), testSource())
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v", err)
	}
	for _, f := range faults {
		if f.Line == 0 || f.Column == 0 || f.Path == "" {
			t.Errorf("no line or no key: %v", f)
		}
	}
	if len(faults) < 10 {
		t.Errorf("%d faults, want at least 10", len(faults))
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is shown")
	}
	golden(t, "ten.golden", err.Error()+"\n")
}

func TestPrintShowsNoSecret(t *testing.T) {
	files["ca.pem"] = testCA
	defer delete(files, "ca.pem")
	c, err := parse("full.yaml", read(t, "full.yaml"), testSource())
	if err != nil {
		t.Fatal(err)
	}
	out := c.Print()
	if strings.Contains(out, "hunter2") {
		t.Errorf("a secret is shown")
	}
	golden(t, "full.golden", out)

	// Nothing of a Config can be printed by accident either.
	for _, r := range c.Relays {
		text := fmt.Sprintf("%+v %+v", *r, r.table)
		for _, tr := range r.transports {
			text += fmt.Sprintf("%+v %#v", *tr, tr.settings)
		}
		if strings.Contains(text, "hunter2") {
			t.Errorf("the fields of relay %s show a secret", r.Name)
		}
	}
	if _, err := parse("printed.yaml", []byte(out), testSource()); err == nil {
		t.Error("a printed configuration with *** in it was accepted") // its passwords are gone
	}
}

func TestValuesInEffect(t *testing.T) {
	files["ca.pem"] = testCA
	defer delete(files, "ca.pem")
	c, err := parse("full.yaml", read(t, "full.yaml"), testSource())
	if err != nil {
		t.Fatal(err)
	}
	if c.Probes != ":8085" || len(c.Relays) != 4 {
		t.Fatalf("probes %q, %d relays", c.Probes, len(c.Relays))
	}
	r := c.Relay("orders")
	table := r.table.(*postgresTable)
	if table.connections != 7 || table.options.Schema != "shop" || table.options.Prefix != "ob_" || table.options.InboxPrefix != "ib_" ||
		table.options.Retention.Published != 24*time.Hour || !table.options.Retention.Metadata || table.options.Retention.Discarded != 2160*time.Hour {
		t.Errorf("store: %+v", table.options)
	}
	var got []string
	for _, rt := range r.routes {
		got = append(got, fmt.Sprintf("%s -> %s %s", rt.topics, rt.transport.name, rt.destination))
	}
	want := []string{
		"order.submitted -> main orders/eu%2Fall", "order.* -> main orders/eu%2Fall",
		"audit.> -> other ", "> -> other amq.default",
	}
	if !slices.Equal(got, want) {
		t.Errorf("routes: %q, want %q", got, want)
	}
	o := r.options
	if o.Batch != 100 || o.InFlight != 2 || o.Lease != 30*time.Second || o.SettleTimeout != 5*time.Second || !o.Unordered ||
		o.Poll != (engine.Poll{Min: 50 * time.Millisecond, Max: 2 * time.Second}) || o.Drain != time.Nanosecond {
		t.Errorf("options: %+v", o)
	}
	d := o.Delivery
	if d.ConfirmTimeout != 10*time.Second || d.DetachAfter != 2*time.Second || d.Window != 200 || d.MaxAttempts != 50 || d.MaxCrashes != 3 ||
		d.MinAge >= 0 || d.GiveUpAfter != 72*time.Hour || d.Backoff != (engine.Backoff{Min: time.Second, Max: 10 * time.Minute}) || d.OnDead != engine.Hold {
		t.Errorf("delivery: %+v", d)
	}
	d = r.routes[0].delivery
	if d.OnDead != engine.Pass || d.MaxAttempts != 5 || d.GiveUpAfter < 1000*day || d.Window != 200 ||
		d.Backoff != (engine.Backoff{Min: time.Second, Max: time.Minute}) {
		t.Errorf("delivery of a route: %+v", d)
	}
	if c.Relay("bills").table.(*postgresTable).options.Retention != nil {
		t.Error("a store that names no retention takes what stands in the database")
	}
	if r.routes[2].delivery != (engine.Delivery{}) {
		t.Errorf("a route without delivery overrides something: %+v", r.routes[2].delivery)
	}
}

const minimal = `
relays:
  - name: orders
    store: {dialect: postgres, url: "${ORDERS_DB}"}
    transports:
      main: {kind: rabbitmq, url: "${AMQP_URL}"}
    routes:
      - {topics: [">"], to: main}
`

func TestFaults(t *testing.T) {
	relay := func(changes ...string) string {
		parts := map[string]string{
			"name":       "name: orders",
			"store":      `store: {dialect: postgres, url: "${ORDERS_DB}"}`,
			"transports": `transports: {main: {kind: rabbitmq, url: "${AMQP_URL}"}}`,
			"routes":     `routes: [{topics: [">"], to: main}]`,
			"delivery":   "",
		}
		for _, c := range changes {
			key, _, _ := strings.Cut(c, ":")
			parts[key] = c
		}
		order := []string{"name", "store", "transports", "routes", "delivery"}
		for _, key := range slices.Sorted(maps.Keys(parts)) {
			if !slices.Contains(order, key) {
				order = append(order, key)
			}
		}
		text := "relays:\n"
		lead := "  - "
		for _, key := range order {
			text += lead + parts[key] + "\n"
			lead = "    "
		}
		return text
	}
	// Lines: 1 relays, 2 name, 3 store, 4 transports, 5 routes, 6 delivery.
	for name, test := range map[string]struct {
		text string
		want []string // the beginning of each fault after the file's name
	}{
		"empty":               {"", []string{" the file is empty"}},
		"only comments":       {"# nothing\n", []string{" the file is empty"}},
		"not YAML":            {"relays: [\n", []string{"1:9: this is not YAML"}},
		"a tab":               {"relays:\n\t- name: x\n", []string{"2:1: this is not YAML"}},
		"a list":              {"- relays\n", []string{"1:1: it is a list; it must be a mapping of keys"}},
		"two documents":       {minimal + "---\nrelays: []\n", []string{"10:1: a second document"}},
		"no relays":           {"http: {}\n", []string{"1:1: relays: it is missing"}},
		"relays empty":        {"relays: []\n", []string{"1:9: relays: it is empty"}},
		"relays null":         {"relays:\n", []string{"1:1: relays: it has no value"}},
		"relays a mapping":    {"relays: {name: x}\n", []string{"1:9: relays: it is a mapping of keys; it must be a list"}},
		"relay a word":        {"relays: [x]\n", []string{"1:10: relays[0]: it is a single value; it must be a mapping"}},
		"everything missing":  {"relays: [{}]\n", []string{"1:10: relays[0].name: it is missing", "1:10: relays[0].store: it is missing", "1:10: relays[0].transports: it is missing", "1:10: relays[0].routes: it is missing"}},
		"unknown key":         {relay("delivry: {}"), []string{"7:14: relays[0].delivry: unknown key; did you mean delivery?"}},
		"unknown at the top":  {minimal + "metrics: {}\n", []string{"9:10: metrics: unknown key; known here are relays, http"}},
		"name":                {relay(`name: "a b"`), []string{`2:11: relays[0].name: "a b" is not a name of letters`}},
		"dialect missing":     {relay(`store: {url: "${ORDERS_DB}"}`), []string{"3:12: relays[0].store.dialect: it is missing; known are postgres"}},
		"dialect to come":     {relay(`store: {dialect: sqlserver, url: "x", charset: utf8}`), []string{`3:22: relays[0].store.dialect: "sqlserver" is not built into this version; it has postgres, mysql, mariadb, sqlite`}},
		"dialect unknown":     {relay(`store: {dialect: oracle}`), []string{`3:22: relays[0].store.dialect: "oracle" is not a dialect; known are postgres`}},
		"store url missing":   {relay(`store: {dialect: postgres}`), []string{"3:12: relays[0].store.url: it is missing; write it as in postgres://"}},
		"store url empty":     {relay(`store: {dialect: postgres, url: "${EMPTY}"}`), []string{"3:37: relays[0].store.url: it is empty"}},
		"store url bad":       {relay(`store: {dialect: postgres, url: "postgres://u:hunter2/x@h:5432/d"}`), []string{"3:37: relays[0].store.url: it is not a PostgreSQL connection URL"}},
		"store url mysql":     {relay(`store: {dialect: postgres, url: "mysql://u:hunter2@h/d"}`), []string{"3:37: relays[0].store.url: it is not a PostgreSQL connection URL"}},
		"store url sslmode":   {relay(`store: {dialect: postgres, url: "postgres://u:hunter2@h/d?sslmode=maybe"}`), []string{"3:37: relays[0].store.url: it is not a"}},
		"prefix too long":     {relay(`store: {dialect: postgres, url: "${ORDERS_DB}", prefix: a23456789_123456789_123456789_123456789_}`), []string{`3:61: relays[0].store.prefix: prefix "a23456789_`}},
		"connections":         {relay(`store: {dialect: postgres, url: "${ORDERS_DB}", connections: 1}`), []string{"3:66: relays[0].store.connections: it must be at least 2"}},
		"connections a word":  {relay(`store: {dialect: postgres, url: "${ORDERS_DB}", connections: many}`), []string{`3:66: relays[0].store.connections: "many" is not a whole number`}},
		"retention negative":  {relay(`store: {dialect: postgres, url: "${ORDERS_DB}", retention: -1h}`), []string{"3:64: relays[0].store.retention: it must be at least 1s"}},
		"discard retention 0": {relay(`store: {dialect: postgres, url: "${ORDERS_DB}", discard_retention: 0}`), []string{"3:72: relays[0].store.discard_retention: it must be at least 1m"}},
		"archive":             {relay(`store: {dialect: postgres, url: "${ORDERS_DB}", archive: none}`), []string{`3:62: relays[0].store.archive: "none" is not known; it is one of full, metadata`}},
		"transports empty":    {relay("transports: {}"), []string{"4:17: relays[0].transports: it is empty", `5:34: relays[0].routes[0].to: "main" is not a transport of this relay; the relay has none`}},
		"kind to come":        {relay(`transports: {main: {kind: kafka, url: x}}`), []string{`4:31: relays[0].transports.main.kind: "kafka" is not built into this version; it has rabbitmq, nats`}},
		"kind unknown":        {relay(`transports: {main: {kind: sqs}}`), []string{`4:31: relays[0].transports.main.kind: "sqs" is not a kind of transport; known are rabbitmq`}},
		"kind missing":        {relay(`transports: {main: {url: x}}`), []string{"4:24: relays[0].transports.main.kind: it is missing"}},
		"amqp url":            {relay(`transports: {main: {kind: rabbitmq, url: "http://u:hunter2@h"}}`), []string{"4:46: relays[0].transports.main.url: the URL must begin with amqp://"}},
		"tls without amqps":   {relay(`transports: {main: {kind: rabbitmq, url: "${AMQP_URL}", tls: {server_name: x}}}`), []string{"4:66: relays[0].transports.main.tls: the url begins with amqp://"}},
		"ca missing":          {relay(`transports: {main: {kind: rabbitmq, url: "amqps://h", tls: {ca: /no/such}}}`), []string{"4:69: relays[0].transports.main.tls.ca: it can't be read: open /no/such"}},
		"cert without key":    {relay(`transports: {main: {kind: rabbitmq, url: "amqps://h", tls: {cert: secrets/amqp}}}`), []string{"4:71: relays[0].transports.main.tls.cert: cert and key belong together"}},
		"heartbeat":           {relay(`transports: {main: {kind: rabbitmq, url: "${AMQP_URL}", heartbeat: 5m}}`), []string{"4:72: relays[0].transports.main.heartbeat: it must be at most 1m"}},
		"transport's name":    {relay(`transports: {topic: {kind: rabbitmq, url: "${AMQP_URL}"}}`, `routes: [{topics: [">"], to: topic}]`), []string{`4:25: relays[0].transports.topic: "topic" is not a transport's name`}},
		"unused transport":    {relay(`transports: {main: {kind: rabbitmq, url: "${AMQP_URL}"}, more: {kind: rabbitmq, url: "${AMQP_URL}"}}`), []string{"4:68: relays[0].transports.more: no route goes to this transport"}},
		"routes empty":        {relay("routes: []"), []string{"4:24: relays[0].transports.main: no route goes", "5:13: relays[0].routes: it is empty"}},
		"topics a word":       {relay(`routes: [{topics: order, to: main}]`), []string{"5:23: relays[0].routes[0].topics: it is a single value; it must be a list"}},
		"topics empty":        {relay(`routes: [{topics: [], to: main}]`), []string{"5:23: relays[0].routes[0].topics: it is empty"}},
		"topic pattern":       {relay(`routes: [{topics: ["a.>.b", "a*", ""], to: main}]`), []string{`5:24: relays[0].routes[0].topics[0]: topic pattern "a.>.b": ">" matches the rest`, `5:33: relays[0].routes[0].topics[1]: topic pattern "a*"`, "5:39: relays[0].routes[0].topics[2]: the topic pattern is empty"}},
		"after a catch-all":   {relay(`routes: [{topics: [">"], to: main}, {topics: ["a.b"], to: main}]`), []string{`5:51: relays[0].routes[1].topics[0]: "a.b" can never match: the first match wins, and line 5`}},
		"to missing":          {relay(`routes: [{topics: [">"]}]`), []string{"4:24: relays[0].transports.main: no route", "5:14: relays[0].routes[0].to: it is missing"}},
		"key without":         {relay(`routes: [{topics: [">"], to: main, routing_key: x}]`), []string{"5:53: relays[0].routes[0].routing_key: it stands without exchange; name the exchange"}},
		"key empty":           {relay(`routes: [{topics: [">"], to: main, exchange: x, routing_key: ""}]`), []string{"5:66: relays[0].routes[0].routing_key: it is empty; leave it out"}},
		"exchange too long":   {relay(`routes: [{topics: [">"], to: main, exchange: ` + strings.Repeat("x", 256) + `}]`), []string{"5:50: relays[0].routes[0].exchange: "}},
		"key of another kind": {relay(`routes: [{topics: [">"], to: main, subject: x}]`), []string{"5:49: relays[0].routes[0].subject: unknown key"}},
		"lease and settle":    {relay("delivery: {settle_timeout: 7s}"), []string{"6:32: relays[0].delivery.settle_timeout: a third of lease"}},
		"lease":               {relay("delivery: {settle_timeout: 5s, lease: 6s}"), []string{"6:43: relays[0].delivery.lease: a third of lease"}},
		"a number":            {relay("delivery: {lease: 10}"), []string{`6:23: relays[0].delivery.lease: "10" has no unit; write it as in`}},
		"an expanded value":   {relay(`delivery: {lease: "${LEASE}"}`), []string{"6:23: relays[0].delivery.lease: the value of ${LEASE} is not a length of time"}},
		"too few attempts":    {relay("delivery: {max_attempts: 2, batch: 0}"), []string{"6:30: relays[0].delivery.max_attempts: it must be at least 3", "6:40: relays[0].delivery.batch: it must be at least 1"}},
		"backoff":             {relay("delivery: {backoff: {min: 5s, max: 1s}}"), []string{"6:40: relays[0].delivery.backoff.max: max is less than min"}},
		"order":               {relay("delivery: {order: topic}"), []string{`6:23: relays[0].delivery.order: "topic" is not known; it is one of key, none`}},
		"batch in a route":    {relay(`routes: [{topics: [">"], to: main, delivery: {batch: 5, window: 0}}]`), []string{"5:58: relays[0].routes[0].delivery.batch: a route can't set it", "5:69: relays[0].routes[0].delivery.window: it must be at least 1"}},
		"a merge key":         {relay("delivery: {<<: {lease: 5s}}"), []string{"6:16: relays[0].delivery: merge keys"}},
		"an unknown alias":    {relay("delivery: *none"), []string{"6:15: relays[0].delivery: the alias *none has no anchor"}},
		"a tag":               {relay("name: !!str orders"), []string{"2:11: relays[0].name: tags"}},
		"variable unset":      {relay(`store: {dialect: postgres, url: "${NOPE}"}`), []string{"3:37: relays[0].store.url: the variable NOPE is not set"}},
		"file missing":        {relay(`store: {dialect: postgres, url: "${file:/no/such}"}`), []string{"3:37: relays[0].store.url: ${file:/no/such} can't be read: open /no/such"}},
		"reference open":      {relay(`store: {dialect: postgres, url: "${NOPE"}`), []string{"3:37: relays[0].store.url: ${ is not closed"}},
		"two faults in one":   {relay(`store: {dialect: postgres, url: "${A}${B}"}`), []string{"3:37: relays[0].store.url: the variable A", "3:37: relays[0].store.url: the variable B"}},
		"probes":              {minimal + "http: {probes: {listen: 8085}}\n", []string{`9:25: http.probes.listen: "8085" is not an address to listen on`}},
		"probes without":      {minimal + "http: {probes: {}}\n", []string{"9:16: http.probes.listen: it is missing"}},
		"admin":               {minimal + "http: {admin: {listen: \":1\"}}\n", []string{"9:15: http.admin: the page and its API are not available yet"}},
		"two of a name": {minimal + strings.ReplaceAll(strings.TrimPrefix(minimal, "\nrelays:\n"), "${ORDERS_DB}", "postgres://u@other/x"),
			[]string{"9:5: relays[1].name: the relay of line 3 has this name too"}},
		"two of a table": {minimal + strings.ReplaceAll(strings.TrimPrefix(minimal, "\nrelays:\n"), "name: orders", "name: more"),
			[]string{"9:5: relays[1].store: the relay of line 3 works on this table already"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseTest(t, test.text)
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("no fault in\n%s", test.text)
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
				t.Errorf("got\n  %s\nwant\n  %s\nin\n%s", strings.Join(got, "\n  "), strings.Join(test.want, "\n  "), test.text)
			}
		})
	}
}

func TestMinimal(t *testing.T) {
	c, err := parseTest(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	set, err := c.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	set.Close()
}

func TestLoadMissingFile(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLoadReadsSecretsBesideTheFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("db", "postgres://u:p@h/d\r\n")
	write("c.yaml", strings.ReplaceAll(strings.ReplaceAll(minimal, "${ORDERS_DB}", "${file:db}"), "${AMQP_URL}", "amqp://h"))
	c, err := Load(filepath.Join(dir, "c.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Relays[0].table.(*postgresTable).url(); got != "postgres://u:p@h/d" {
		t.Errorf("url is %q", got)
	}
}

func TestCovers(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{">", "a", true}, {">", "a.b", true}, {">", ">", true}, {">", "*", true}, {"a.>", "a.b", true}, {"a.>", "a", false},
		{"a.>", "a.>", true}, {"a.>", ">", false}, {"a.*", "a.b", true}, {"a.*", "a.>", false}, {"a.*", "a.*", true}, {"*", "a.b", false},
		{"*.b", "a.b", true}, {"a.b", "a.*", false}, {"a", "a", true}, {"a", "b", false}, {"a.b", "a", false}, {"*.>", "a.b.c", true},
	} {
		if got := covers(test.a, test.b); got != test.want {
			t.Errorf("covers(%q, %q) = %v", test.a, test.b, got)
		}
	}
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"${DB}":                                   "${DB}",
		"${file:/run/secrets/db}":                 "${file:/run/secrets/db}",
		"postgres://u@h/d":                        "postgres://u@h/d",
		"postgres://u:hunter2@h:5432/d":           "postgres://u:***@h:5432/d",
		"postgres://u:${PW}@h/d":                  "postgres://u:${PW}@h/d",
		"postgres://u:hunter2${PW}@h/d":           "postgres://u:***@h/d",
		"postgres://${U}:${PW}@${H}/d":            "postgres://${U}:${PW}@${H}/d",
		"postgres://u@h/d?sslmode=require&x=y":    "postgres://u@h/d?sslmode=require&x=***",
		"postgres://h/d?password=${PW}":           "postgres://h/d?password=${PW}",
		"postgres://u:hunter2/x@h/d":              "***",
		"postgres://u:hunter2#x@h/d":              "***",
		"postgres://u:hunter2@@h/d":               "postgres://u:***@h/d",
		"host=h password=hunter2":                 "***",
		"hunter2":                                 "***",
		"":                                        "",
		"amqp://u:hunter2@[::1]:5672/v":           "amqp://u:***@[::1]:5672/v",
		"amqp://hunter2":                          "amqp://hunter2", // a host
		"postgres://u:hunt%65r2@h/d?passfile=/p":  "postgres://u:***@h/d?passfile=***",
		"postgres://u:hunter2@h/d/${FILE}?a=${B}": "postgres://u:***@h/d/${FILE}?a=${B}",
	} {
		if got := redact(raw); got != want {
			t.Errorf("redact(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 70 * time.Second: "1m10s", 10 * time.Minute: "10m",
		200 * time.Millisecond: "200ms", time.Hour + time.Second: "1h0m1s", 2160 * time.Hour: "2160h",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
