package mysql

// statements are what a Store sends, with the names filled in once. They are
// fields, not constants, so that a test can put a wrong one in place and see that
// it is wrong.
type statements struct {
	peek, pausesOver, due, promote, parked, unpark                                      string
	markers, drainedLanes, entries, remove, lowest, held, release, mark, unmark         string
	candidates, lease, suspect, seqs, read, ahead, body, park, pause, enter, hold, hand string
	owners, standing, publish, file, fileMeta, settle, free, extendLanes, extendRows    string
}

func newStatements(n names) statements {
	return statements{
		peek: n.sql(peekSQL), pausesOver: n.sql(pausesOverSQL), due: n.sql(dueSQL), promote: n.sql(promoteSQL), parked: n.sql(parkedSQL), unpark: n.sql(unparkSQL),
		markers: n.sql(markersSQL), drainedLanes: n.sql(drainedLanesSQL), entries: n.sql(entriesSQL), remove: n.sql(removeSQL),
		lowest: n.sql(lowestSQL), held: n.sql(heldSQL), release: n.sql(releaseSQL), mark: n.sql(markSQL), unmark: n.sql(unmarkSQL),
		candidates: n.sql(candidatesSQL), lease: n.sql(leaseSQL), suspect: n.sql(suspectSQL), seqs: n.sql(seqsSQL), read: n.sql(readSQL(true)), ahead: n.sql(readSQL(false)), body: n.sql(bodySQL),
		park: n.sql(parkSQL), pause: n.sql(pauseSQL), enter: n.sql(enterSQL), hold: n.sql(holdSQL), hand: n.sql(handSQL),
		owners: n.sql(ownersSQL), standing: n.sql(standingSQL), publish: n.sql(publishSQL), file: n.sql(fileSQL(true)), fileMeta: n.sql(fileSQL(false)),
		settle: n.sql(settleSQL), free: n.sql(freeSQL), extendLanes: n.sql(extendLanesSQL), extendRows: n.sql(extendRowsSQL),
	}
}

// all lists the statements with their names, for the golden file.
func (q statements) all() []struct{ name, sql string } {
	return []struct{ name, sql string }{
		{"peek", q.peek}, {"due", q.due}, {"promote", q.promote}, {"pauses over", q.pausesOver}, {"parked", q.parked}, {"unpark", q.unpark},
		{"markers", q.markers}, {"drained lanes", q.drainedLanes}, {"lowest", q.lowest}, {"held", q.held}, {"release", q.release}, {"mark", q.mark}, {"unmark", q.unmark},
		{"candidates", q.candidates}, {"lease", q.lease}, {"suspect", q.suspect}, {"one lane of read", q.seqs}, {"read", q.read}, {"ahead", q.ahead}, {"body", q.body},
		{"park", q.park}, {"pause", q.pause}, {"enter", q.enter}, {"hold", q.hold}, {"hand", q.hand},
		{"owners", q.owners}, {"standing", q.standing}, {"file", q.file}, {"file, metadata", q.fileMeta}, {"publish", q.publish},
		{"entries", q.entries}, {"remove", q.remove}, {"settle", q.settle}, {"free", q.free},
		{"extend lanes", q.extendLanes}, {"extend rows", q.extendRows},
	}
}
