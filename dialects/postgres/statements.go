package postgres

// statements are what a Store sends, with the names filled in once. They are
// fields, not constants, so that a test can put a wrong one in place and see that
// it is wrong.
type statements struct {
	promote, unpark, draining            string
	lease, suspect, read, ahead, body    string
	park, pause                          string
	hand                                 string
	lock, lockFree                       string
	hold                                 string
	drain                                string
	publish, publishFull, publishMeta    string
	settle, resolve, free                string
	extendLanes, extendRows, extendLosts string
	requeue, discard, purge, backlog     string
}

func newStatements(n names) statements {
	return statements{
		promote: n.sql(promoteSQL), unpark: n.sql(unparkSQL), draining: n.sql(drainingSQL),
		lease: n.sql(leaseSQL), suspect: n.sql(suspectSQL), read: n.sql(readSQL), ahead: n.sql(aheadSQL), body: n.sql(bodySQL),
		park: n.sql(parkSQL), pause: n.sql(pauseSQL), hand: n.sql(handSQL),
		lock: n.sql(lockSQL), lockFree: n.sql(lockFreeSQL),
		hold:    n.sql(holdSQL),
		drain:   n.sql(drainSQL),
		publish: n.sql(publishSQL("")), publishFull: n.sql(publishSQL("full")), publishMeta: n.sql(publishSQL("metadata")),
		settle: n.sql(settleSQL), resolve: n.sql(resolveSQL), free: n.sql(freeSQL),
		extendLanes: n.sql(extendLanesSQL), extendRows: n.sql(extendRowsSQL), extendLosts: n.sql(extendLostsSQL),
		requeue: n.sql(requeueSQL), discard: n.sql(discardSQL), purge: n.sql(purgeSQL), backlog: n.sql(backlogSQL),
	}
}

// all lists the statements with their names, for the golden file and for tests
// that look at plans.
func (q statements) all() []struct{ name, sql string } {
	return []struct{ name, sql string }{
		{"begin", beginSQL}, {"limits", limitsSQL},
		{"promote", q.promote}, {"unpark", q.unpark}, {"draining", q.draining},
		{"lease", q.lease}, {"suspect", q.suspect}, {"read", q.read}, {"ahead", q.ahead}, {"body", q.body},
		{"park", q.park}, {"pause", q.pause}, {"hand", q.hand},
		{"lock", q.lock}, {"lock free", q.lockFree}, {"hold", q.hold},
		{"drain", q.drain},
		{"publish", q.publish}, {"publish, archive full", q.publishFull}, {"publish, archive metadata", q.publishMeta},
		{"settle", q.settle}, {"resolve", q.resolve}, {"free", q.free},
		{"extend lanes", q.extendLanes}, {"extend rows", q.extendRows}, {"extend lost", q.extendLosts},
		{"requeue", q.requeue}, {"discard", q.discard}, {"purge", q.purge}, {"backlog", q.backlog},
		{"commit", commitSQL},
	}
}
