package matrix

import (
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const root = "../.."

func project(t *testing.T) *types.Project {
	t.Helper()
	// Without the caller's environment: the file means the same everywhere.
	opts, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithoutEnvironmentResolution)
	if err != nil {
		t.Fatal(err)
	}
	p, err := opts.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestComposeServices(t *testing.T) {
	published := map[string]string{} // port -> service
	for name, s := range project(t).Services {
		h := s.HealthCheck
		if h == nil || h.Disable || len(h.Test) < 2 || h.Test[0] == "NONE" {
			t.Errorf("%s has no health check: up --wait would not wait for it", name)
		} else if h.Interval == nil || h.Timeout == nil || h.Retries == nil {
			t.Errorf("%s: its health check leaves the interval, the timeout or the retries to the engine", name)
		}
		if s.Image == "" || !strings.Contains(filepath.Base(s.Image), ":") || strings.HasSuffix(s.Image, ":latest") {
			t.Errorf("%s: image %q names no version", name, s.Image)
		}
		if s.Restart != "" {
			t.Errorf("%s: restart %q would undo what kill does", name, s.Restart)
		}
		if s.ContainerName != "" || s.NetworkMode == "host" {
			t.Errorf("%s has a container name or the host's network", name)
		}
		for _, v := range s.Volumes {
			t.Errorf("%s mounts %s: reset would leave its data", name, v.Target)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s on %q, not on 127.0.0.1 alone", name, p.Published, p.HostIP)
			}
			if !strings.HasPrefix(p.Published, "27") || len(p.Published) != 5 {
				t.Errorf("%s publishes port %s, which is not 27xxx", name, p.Published)
			}
			if other := published[p.Published]; other != "" {
				t.Errorf("%s and %s both publish port %s", name, other, p.Published)
			}
			published[p.Published] = name
		}
	}
}

// The file and scripts/services are two ways to the same servers.
func TestComposeAgreesWithTheScript(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "services"), "list")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"} // its defaults, not the caller's settings
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("services list: %v\n%s", err, stderr.String())
	}
	script := map[string]string{} // name -> kind and port
	row := regexp.MustCompile(`^[* ] (\S+)\s+(\S+)\s+\S+\s+port (\d+)$`)
	for line := range strings.Lines(string(out)) {
		m := row.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			t.Fatalf("services list: what is %q?", line)
		}
		script[m[1]] = fmt.Sprintf("%s on %s", m[2], m[3])
	}

	// The image of each kind, and its ports: how far above the first one they are
	// outside, and what they are inside.
	type port struct{ above, inside int }
	kinds := map[string]struct {
		image string
		ports []port
	}{
		"postgres":  {"postgres", []port{{0, 5432}}},
		"mysql":     {"mysql", []port{{0, 3306}}},
		"mariadb":   {"mariadb", []port{{0, 3306}}},
		"rabbitmq":  {"rabbitmq", []port{{0, 5672}, {1, 15672}}},
		"nats":      {"nats", []port{{0, 4222}, {1, 8222}}},
		"kafka":     {"apache/kafka", []port{{0, 27092}, {2, 27094}}},
		"sqlserver": {"mcr.microsoft.com/mssql/server", []port{{0, 1433}}},
	}
	compose := map[string]string{}
	for name, s := range project(t).Services {
		image, _, _ := strings.Cut(s.Image, ":")
		for kind, k := range kinds {
			if k.image != image {
				continue
			}
			if len(s.Ports) != len(k.ports) {
				t.Fatalf("%s has %d ports, want %d", name, len(s.Ports), len(k.ports))
			}
			first, err := strconv.Atoi(s.Ports[0].Published)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for i, p := range s.Ports {
				got := fmt.Sprintf("%s:%d", p.Published, p.Target)
				if want := fmt.Sprintf("%d:%d", first+k.ports[i].above, k.ports[i].inside); got != want {
					t.Errorf("%s: port %s, want %s", name, got, want)
				}
			}
			compose[name] = fmt.Sprintf("%s on %s", kind, s.Ports[0].Published)
		}
		if compose[name] == "" {
			t.Errorf("%s: image %q is of no kind that the script knows", name, s.Image)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(script)) {
		if compose[name] != script[name] {
			t.Errorf("%s is %q in docker-compose.yml and %q in scripts/services", name, compose[name], script[name])
		}
		delete(compose, name)
	}
	for _, name := range slices.Sorted(maps.Keys(compose)) {
		t.Errorf("scripts/services does not know %s", name)
	}
}
