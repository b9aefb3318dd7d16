// Package judge decides whether an outbox kept its promises. Producers write down
// in a [Ledger] what they committed, rolled back, or don't know of; a test gathers
// as [Evidence] what is at the broker, what the table says, and what went wrong
// meanwhile on purpose; [Judge] compares:
//
//	ids, err := enqueueAndCommit(msgs)
//	ledger.Log(judge.Committed, ids, msgs)
//	…
//	v := judge.Judge(ledger, judge.Evidence{Deliveries: consumed, Rows: rows, Incidents: killed})
//	if err := v.Err(); err != nil {
//		t.Error(err)
//	}
//
// What was not looked at is not judged: without rows nothing is found to be charged.
// A message that came again needs an explanation, and each thing that happened
// explains no more repeats than messages were in flight when it did.
//
// The package is free of package testing and imports nothing but the standard
// library and Outward's engine.
package judge
