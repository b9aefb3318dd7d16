package matrix

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outward-dev/outward/internal/faultproxy"
)

// answers loses answers of PostgreSQL to statements that took effect. It follows the
// protocol far enough to know what each round trip has in it, whatever that is: so a
// statement that is new is lost as well.
type answers struct {
	mu     sync.Mutex
	on     bool
	rand   *rand.Rand
	texts  map[*faultproxy.Conn]map[string]string // by the name of a prepared statement
	now    map[*faultproxy.Conn][]string          // of the round trip that is being sent
	losing map[*faultproxy.Conn]int
	lost   map[string]int // by text
	seen   map[string]int
}

// How an answer is lost.
const (
	loseAndCut  = 1 + iota // the connection goes with it
	loseAndHang            // nothing more is ever heard
)

// eachLost is how often the answer to each statement is lost.
const eachLost = 2

// unit reads one message of the PostgreSQL protocol. The first that a client sends
// has no type, and so begins with a zero.
func unit(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(5)
	if err != nil {
		return nil, err
	}
	n := 1 + int(binary.BigEndian.Uint32(head[1:]))
	if head[0] == 0 {
		n = int(binary.BigEndian.Uint32(head))
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return b, err
}

// watchAnswers puts the proxy to it before anybody is connected.
func (c *trial) watchAnswers() {
	c.answers = &answers{
		rand:  rand.New(rand.NewPCG(c.seed, 1<<33)), // its own: used from several goroutines, under the lock
		texts: map[*faultproxy.Conn]map[string]string{}, now: map[*faultproxy.Conn][]string{}, losing: map[*faultproxy.Conn]int{},
		lost: map[string]int{}, seen: map[string]int{},
	}
	c.databaseWire.Split(unit)
	c.databaseWire.Up(c.answers.up)
	c.databaseWire.Down(c.answers.down)
}

func (a *answers) up(c *faultproxy.Conn, b []byte) bool {
	if b[0] == 0 {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	body := b[5:]
	text := func() (s string) {
		end := bytes.IndexByte(body, 0)
		s, body = string(body[:end]), body[end+1:]
		return s
	}
	switch b[0] {
	case 'P': // Parse: name, text
		if a.texts[c] == nil {
			a.texts[c] = map[string]string{}
		}
		name := text()
		a.texts[c][name] = text()
	case 'B': // Bind: portal, name
		text()
		a.now[c] = append(a.now[c], a.texts[c][text()])
	case 'Q': // Query
		a.now[c] = append(a.now[c], text())
		a.round(c)
	case 'S': // Sync
		a.round(c)
	}
	return true
}

// round decides about a round trip whose last message is about to be sent.
func (a *answers) round(c *faultproxy.Conn) {
	trip := a.now[c]
	a.now[c] = nil
	rare := false
	for _, text := range trip {
		a.seen[text]++
		rare = rare || a.lost[text] < eachLost
	}
	if !a.on || !rare || a.losing[c] != 0 || a.rand.IntN(3) == 0 {
		return
	}
	a.losing[c] = loseAndCut
	for _, text := range trip {
		if a.lost[text]%2 == 1 {
			a.losing[c] = loseAndHang
		}
		a.lost[text]++
	}
}

func (a *answers) down(c *faultproxy.Conn, b []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.losing[c] == 0 {
		return true
	}
	if b[0] == 'Z' && a.losing[c] == loseAndCut { // ReadyForQuery: all of it took effect
		c.Cut()
	}
	return false
}

// loseAnswers loses the answer to every statement that relays send, twice: while
// connections to the broker are cut and messages are delayed, paused and held, so
// that they send all of them.
func (c *trial) loseAnswers() {
	a := c.answers
	set := func(on bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.on = on
	}
	set(true)
	for round := 0; round < 4 || round < 12 && a.missing() != ""; round++ {
		for range 4 {
			c.wait(c.between(100*time.Millisecond, 300*time.Millisecond))
			c.brokerWire.Cut()
		}
		there, undo := c.gone(c.t, c.brokerAt)
		c.taken = append(c.taken, there...)
		c.wait(2 * time.Second)
		undo()
		c.arrived(1) // the pause has ended, which is a statement too
	}
	missing := a.missing()
	set(false)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range slices.Sorted(maps.Keys(a.seen)) {
		c.t.Logf("%3d of %4d answers lost: %s", a.lost[text], a.seen[text], gist(text))
	}
	if missing != "" {
		c.t.Errorf("no answer was lost to a statement with %q", missing)
	}
}

// missing is a kind of statement of which no answer was lost yet; empty: none.
func (a *answers) missing() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	kinds := map[string]bool{}
	for text, n := range a.lost {
		if n > 0 {
			kinds[gist(text)] = true
		}
	}
	all := strings.Join(slices.Sorted(maps.Keys(kinds)), "\n")
	for _, want := range []string{"UPDATE .*lanes", "DELETE FROM .*messages", "UPDATE .*messages", "INSERT INTO .*blocks", "INSERT INTO .*pauses", "DELETE FROM .*pauses", "COMMIT"} {
		if !regexp.MustCompile(want).MatchString(all) {
			return want
		}
	}
	return ""
}

var verbs = regexp.MustCompile(`(?s)(SELECT set_config|UPDATE|DELETE FROM|INSERT INTO|COMMIT|BEGIN|ROLLBACK|FOR UPDATE|FOR NO KEY UPDATE)\s*(\S*)`)

// gist is what a statement does to which tables.
func gist(text string) string {
	var parts []string
	for _, m := range verbs.FindAllStringSubmatch(text, -1) {
		parts = append(parts, strings.TrimSpace(m[1]+" "+m[2]))
	}
	if len(parts) == 0 {
		text = strings.Join(strings.Fields(text), " ")
		return text[:min(len(text), 80)]
	}
	return strings.Join(slices.Compact(parts), ", ")
}
