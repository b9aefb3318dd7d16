package matrix

import (
	"time"
)

// noServer says why what befalls database servers can't befall some.
func noServer(d dialect, _ transport) string {
	if d.local {
		return "no server and no network between a process and its file"
	}
	return ""
}

// faults is the table.
var faults = []fault{
	{name: "database killed and started", not: noServer, database: true, run: func(c *trial) {
		c.database.Kill()
		c.wait(500 * time.Millisecond)
		c.database.Up()
	}},
	{name: "broker killed and started", broker: true, run: func(c *trial) {
		c.broker.Kill()
		c.wait(500 * time.Millisecond)
		c.broker.Up()
	}},
	{name: "database paused longer than the lease", not: noServer, database: true, run: func(c *trial) {
		c.database.Pause()
		c.wait(faultLease * 3 / 2)
		c.database.Resume()
	}},
	{name: "broker paused longer than the lease", broker: true, run: func(c *trial) {
		c.broker.Pause()
		c.wait(faultLease * 3 / 2)
		c.broker.Resume()
	}},
	{name: "database restarted", not: noServer, database: true, heavy: true, run: func(c *trial) { c.database.Restart() }},
	{name: "broker restarted", broker: true, heavy: true, run: func(c *trial) { c.broker.Restart() }},

	{name: "database connections cut", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		for range scale(15) {
			c.wait(c.between(50*time.Millisecond, 150*time.Millisecond))
			c.databaseWire.Cut()
		}
	}},
	{name: "broker connections cut", brokerWire: true, run: func(c *trial) {
		for range scale(15) {
			c.wait(c.between(50*time.Millisecond, 150*time.Millisecond))
			c.brokerWire.Cut()
		}
	}},
	{name: "database slow", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		c.databaseWire.Slow(c.between(30*time.Millisecond, 150*time.Millisecond))
		c.wait(time.Duration(scale(2)) * time.Second)
		c.databaseWire.Slow(0)
	}},
	{name: "broker slow", brokerWire: true, run: func(c *trial) {
		c.brokerWire.Slow(c.between(30*time.Millisecond, 150*time.Millisecond))
		c.wait(time.Duration(scale(2)) * time.Second)
		c.brokerWire.Slow(0)
	}},
	{name: "database connections stalled longer than the lease", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		c.databaseWire.Deaf(true)
		c.databaseWire.Mute(true)
		c.wait(faultLease * 3 / 2)
		c.databaseWire.Deaf(false)
		c.databaseWire.Mute(false)
	}},
	{name: "broker connections stalled longer than the lease", brokerWire: true, run: func(c *trial) {
		c.brokerWire.Deaf(true)
		c.brokerWire.Mute(true)
		c.wait(faultLease * 3 / 2)
		c.brokerWire.Deaf(false)
		c.brokerWire.Mute(false)
	}},
	{name: "database connections half open", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		c.databaseWire.HalfOpen()
		c.wait(faultLease)
	}},
	{name: "broker connections half open", brokerWire: true, run: func(c *trial) {
		c.brokerWire.HalfOpen()
		c.wait(faultLease)
	}},
	{name: "relay's host gone, the database not told", not: noServer, databaseWire: true, run: func(c *trial) {
		c.databaseWire.Keep(true)
		c.killRelay(c.relays[0])
		c.relay(nil)
		c.wait(faultLease)
		c.databaseWire.Keep(false)
	}},
	{name: "database accepts connections and never answers", not: noServer, databaseWire: true, producersToo: true, run: func(c *trial) {
		c.databaseWire.Cut()
		c.databaseWire.Deaf(true)
		c.wait(faultLease * 3 / 2)
		c.databaseWire.Deaf(false)
	}},
	{name: "broker accepts connections and never answers", brokerWire: true, run: func(c *trial) {
		c.brokerWire.Cut()
		c.brokerWire.Deaf(true)
		c.wait(faultLease * 3 / 2)
		c.brokerWire.Deaf(false)
	}},
}
