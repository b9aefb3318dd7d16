package rabbitmq

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/outward-dev/outward/internal/testservers"
)

// manage calls the broker's management API.
func manage(t testing.TB, verb, path string, body any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(verb, testservers.Management(t, server)+"/api"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal("the management URL can't be parsed")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s %v", verb, path, resp.Status, answer, err)
	}
}

// user makes a user with permissions (regular expressions) on a virtual host and
// returns the broker's URL with them.
func user(t testing.TB, configure, write, read string) string {
	t.Helper()
	name, password := unique("user"), "S3CRET-"+unique("pw")
	manage(t, "PUT", "/users/"+url.PathEscape(name), map[string]string{"password": password, "tags": ""})
	t.Cleanup(func() { manage(t, "DELETE", "/users/"+url.PathEscape(name), nil) })
	manage(t, "PUT", "/permissions/%2F/"+url.PathEscape(name),
		map[string]string{"configure": configure, "write": write, "read": read})
	return withLogin(t, brokerURL(t), name, password)
}

// withLogin returns a URL with another user and password.
func withLogin(t testing.TB, raw, user, password string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal("the broker's URL can't be parsed")
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// connectionNamed waits until the broker shows the connection of that name, and
// returns how it calls it.
func connectionNamed(t testing.TB, name string) string {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		resp, err := http.Get(testservers.Management(t, server) + "/api/connections")
		if err != nil {
			t.Fatal(err)
		}
		var conns []struct {
			Name       string `json:"name"`
			Properties struct {
				Name string `json:"connection_name"`
			} `json:"client_properties"`
		}
		err = json.NewDecoder(resp.Body).Decode(&conns)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range conns {
			if c.Properties.Name == name {
				return c.Name
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the broker shows no connection named %s", name)
		}
		time.Sleep(100 * time.Millisecond) // the broker shows it after its statistics interval
	}
}
