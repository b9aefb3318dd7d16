package config

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/engine"
)

// nowhere is an address that refuses connections: a relay on it keeps trying.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func relayText(address, name, source string) string {
	return fmt.Sprintf(`
  - name: %[2]s
    store: {dialect: postgres, url: "postgres://u:hunter2@%[1]s/%[2]s"}
    transports: {main: {kind: rabbitmq, url: "amqp://u:hunter2@%[1]s/", source: /%[3]s}}
    routes: [{topics: [">"], to: main}]
`, address, name, source)
}

func parseRelays(t *testing.T, texts ...string) *Config {
	t.Helper()
	c, err := parseTest(t, "relays:"+strings.Join(texts, ""))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func names(set *Set) []string {
	var all []string
	for _, s := range set.Status() {
		all = append(all, s.Name)
	}
	return all
}

func TestReloadTouchesOnlyWhatChanged(t *testing.T) {
	at := nowhere(t)
	var mu sync.Mutex
	var built, removed []string
	set, err := parseRelays(t, relayText(at, "a", "1"), relayText(at, "b", "1"), relayText(at, "c", "1")).Build(&BuildOptions{
		Hooks: func(name string) engine.Hooks {
			mu.Lock()
			defer mu.Unlock()
			built = append(built, name)
			return engine.Hooks{}
		},
		Removed: func(name string) { removed = append(removed, name) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Reload(parseRelays(t, relayText(at, "a", "1"))); err == nil {
		t.Error("a reload before Run was accepted")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- set.Run(ctx) }()
	within(t, "all relays fail to reach their database", func() bool {
		return !slices.ContainsFunc(set.Status(), func(s RelayStatus) bool { return len(s.StoreErrors) == 0 })
	})
	for _, s := range set.Status() {
		if s.Ready || s.Err != nil || strings.Contains(fmt.Sprint(s), "hunter2") {
			t.Errorf("%+v", s)
		}
	}
	untouched := set.members[0].relay

	changes, err := set.Reload(parseRelays(t, relayText(at, "a", "1"), relayText(at, "b", "2"), relayText(at, "d", "1")))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := changes.String(), "added [d], changed [b], removed [c], unchanged [a]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := names(set); !slices.Equal(got, []string{"a", "b", "d"}) {
		t.Errorf("relays %v", got)
	}
	if set.members[0].relay != untouched {
		t.Error("an unchanged relay was built anew")
	}
	if !slices.Equal(removed, []string{"c"}) {
		t.Errorf("removed %v", removed)
	}
	mu.Lock()
	if !slices.Equal(built, []string{"a", "b", "c", "b", "d"}) {
		t.Errorf("built %v", built)
	}
	mu.Unlock()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := set.Reload(parseRelays(t, relayText(at, "a", "1"))); err == nil {
		t.Error("a reload after the end was accepted")
	}
}

func TestTheSameFileHasTheSameFingerprint(t *testing.T) {
	one := parseRelays(t, relayText("h:1", "a", "1")).Relays[0]
	same := parseRelays(t, strings.ReplaceAll(relayText("h:1", "a", "1"), "\n    store", "\n    # moved\n\n    store")).Relays[0]
	if one.fingerprint != same.fingerprint {
		t.Error("comments and empty lines change it")
	}
	for _, other := range []string{
		relayText("h:2", "a", "1"), relayText("h:1", "a", "2"),
		strings.ReplaceAll(relayText("h:1", "a", "1"), "hunter2", "hunter3"),
		strings.ReplaceAll(relayText("h:1", "a", "1"), `">"`, `"a"`),
		strings.ReplaceAll(relayText("h:1", "a", "1"), "to: main", "to: main, exchange: x"),
		relayText("h:1", "a", "1") + "    delivery: {window: 5}\n",
	} {
		if parseRelays(t, other).Relays[0].fingerprint == one.fingerprint {
			t.Errorf("not noticed: %s", other)
		}
	}
	spelled := parseRelays(t, relayText("h:1", "a", "1")+"    delivery: {window: 1000}\n").Relays[0]
	if spelled.fingerprint != one.fingerprint {
		t.Error("a default that is written out counts as a change")
	}
}
