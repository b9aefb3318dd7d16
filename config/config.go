package config

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// A Config is a file that was read and checked, with nothing wrong in it. It is
// never changed, and may be shared.
type Config struct {
	File   string   // as it was given to Load
	Relays []*Relay // in the order of the file; at least one
	// Probes is where /healthz and /readyz are served; empty: nowhere.
	Probes string

	printed yaml.MapSlice
}

// maxFile bounds a configuration file.
const maxFile = 4 << 20

// Load reads and checks a file. It talks to no database and no broker. Whatever is
// wrong in the file is reported at once, as [Faults].
func Load(path string) (*Config, error) {
	data, err := readFile("", path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("config: %s is larger than 4 MiB", path)
	}
	return parse(path, data, environment(filepath.Dir(path)))
}

// Relay returns the relay of a name, or nil.
func (c *Config) Relay(name string) *Relay {
	for _, r := range c.Relays {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// Print returns the configuration in effect as YAML, defaults included. What was
// written as a reference stays one, and passwords are replaced by ***.
func (c *Config) Print() string {
	out, err := yaml.MarshalWithOptions(c.printed, yaml.IndentSequence(true))
	if err != nil {
		panic(fmt.Sprintf("config: print: %v", err)) // maps, lists, texts and numbers can always be written
	}
	return string(out)
}

func parse(file string, data []byte, from source) (*Config, error) {
	r := &reader{file: file, from: from}
	t := &tree{r: r, from: from, anchors: map[string]*node{}}
	c := &Config{File: file}
	if root := t.parse(data); root != nil {
		r.config(c, root)
	}
	if len(r.faults) > 0 {
		r.faults.sort()
		return nil, r.faults
	}
	return c, nil
}

func (r *reader) config(c *Config, root *node) {
	m := r.mapping(root, root)
	list := m.get("relays")
	switch {
	case list == nil && !m.has("relays") && !m.open:
		m.fault("relays", "it is missing; a configuration has at least one relay")
	case list == nil:
	case list.kind != isList:
		r.fault(list, "it is %s; it must be a list, each relay beginning with \"- name:\"", kindNames[list.kind])
	case len(list.items) == 0:
		r.fault(list, "it is empty; a configuration has at least one relay")
	default:
		c.Relays = r.relays(list)
	}
	var relays []yaml.MapSlice
	for _, relay := range c.Relays {
		relays = append(relays, relay.printed)
	}
	m.printed = append(m.printed, yaml.MapItem{Key: "relays", Value: relays})
	if n := m.get("http"); n != nil {
		http := r.mapping(n, root)
		r.http(c, http)
		m.sub("http", http)
	}
	m.close()
	c.printed = m.printed
}

func (r *reader) relays(list *node) []*Relay {
	var relays []*Relay
	names := map[string]int{}
	tables := map[string]int{}
	for _, item := range list.items {
		relay := r.relay(item, list)
		relays = append(relays, relay)
		if relay.Name != "" {
			if line, taken := names[relay.Name]; taken {
				r.add(relay.line, relay.column, item.path+".name", fmt.Sprintf("the relay of line %d has this name too; names tell relays apart", line))
			} else {
				names[relay.Name] = relay.line
			}
		}
		if relay.table == nil {
			continue
		}
		id := relay.table.identity()
		if line, taken := tables[id]; taken && id != "" {
			r.add(relay.line, relay.column, item.path+".store", fmt.Sprintf("the relay of line %d works on this table already; "+
				"one relay serves a table in a process: put the routes of both into one", line))
		} else {
			tables[id] = relay.line
		}
	}
	return relays
}

func (r *reader) http(c *Config, m *mapping) {
	if n := m.get("probes"); n != nil {
		probes := r.mapping(n, m.n)
		if listen, ok := probes.needText("listen", "write an address as in 127.0.0.1:8085 or :8085"); ok {
			if err := checkListen(listen); err != nil {
				n := probes.at("listen")
				r.fault(n, "%s is not an address to listen on (%v); write it as in 127.0.0.1:8085 or :8085", n.shown(), err)
			}
			c.Probes = listen
		}
		probes.close()
		m.sub("probes", probes)
	}
	if n := m.get("admin"); n != nil {
		r.fault(n, "the page and its API are not available yet; remove admin")
	}
	m.close()
}

func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("host and port are not separated by one colon")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("the port is not a number from 0 to 65535")
	}
	return nil
}

// namePattern is what relays and transports are called: what fits into a metric's
// label, a log and the name of a pause without quotes.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

const nameWords = "a name of letters, digits, \"-\", \"_\" and \".\", at most 63 of them"

func words(list []string) string { return strings.Join(list, ", ") }
