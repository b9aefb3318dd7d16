package postgres

import "sync"

// A clearance is shared by the claims of a process. Where a paused topic or a blocked
// key lies in front of the lanes, one claim clears eight of them, which may take a
// second, and then the next claim takes the next eight, which were used longest ago.
// The claims beside it keep to the lanes that are clear already, so that what can go
// goes meanwhile.
type clearance struct {
	mu    sync.Mutex
	busy  int    // claims that are clearing
	clear uint64 // lanes, as bits, that gave something since the first of them began
}

// lanes are those that a claim that begins now keeps to, as bits; 0: all.
func (c *clearance) lanes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == 0 {
		return 0
	}
	return int64(c.clear) //nolint:gosec // bits
}

func (c *clearance) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
}

func (c *clearance) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
}

// gave notes lanes that gave something.
func (c *clearance) gave(lanes []int16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range lanes {
		c.clear |= 1 << l
	}
}

// over forgets them: a claim that kept to none met nothing that is in the way.
func (c *clearance) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == 0 {
		c.clear = 0
	}
}
