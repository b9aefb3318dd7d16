// Package telemetry turns what relays tell through engine.Hooks into OpenTelemetry
// metrics. It uses the API of OpenTelemetry alone: where the figures go is up to
// the MeterProvider.
//
// Names are part of Outward's public contract. Each begins with "outward." and has
// the attribute relay; a Prometheus exporter writes dots as "_" and appends the unit,
// and "_total" to counters. Topics and destinations are attributes for at most 200
// values each in a process, then "other".
//
//	outward.oldest.age          s   age of the oldest message that is neither settled nor dead
//	outward.messages                rows by state: ready, waiting, parked, held, dead
//	outward.messages.capped         1 where that figure is a floor, by state
//	outward.leased                  lanes or rows under a live lease
//	outward.held.keys               keys that something holds back
//	outward.hold.age            s   age of the oldest row that holds back a key
//	outward.backlog.age         s   since these figures were taken, by this process
//	outward.published               publishes by destination, topic and outcome
//	outward.possible.duplicates     publishes whose outcome stayed unknown
//	outward.publish.duration    s   hand-over to outcome, by destination
//	outward.commit.confirm.duration s  the database's created_at to confirmation by this
//	                                process's clock, by destination
//	outward.attempts                charged attempts before a message was confirmed or died
//	outward.retried                 messages that go again later, by class and charged
//	outward.buried                  messages that died, by class
//	outward.claimed, outward.claim.duration s
//	outward.settled, outward.settle.duration s
//	outward.leases.lost             by operation
//	outward.store.failures          calls of the database that failed, by operation
//	outward.purged                  archived rows deleted
//	outward.in_hand                 messages claimed and not settled
//	outward.relay.ready             1 when the relay has reached its table once
//	outward.relay.ill               1 while its database fails or a loop of it hangs, or it isn't ready
//	outward.paused                  1 for each pause, by destination and by: operator or relay
//	outward.config.reloads          by result: ok or failed
//	outward.config.reload.failed    1 when the last reload was refused
package telemetry
