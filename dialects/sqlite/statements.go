package sqlite

// statements are what a Store sends, with the names filled in once. They are
// fields, not constants, so that a test can put a wrong one in place and see that
// it is wrong.
type statements struct {
	peek, pausesOver, promote, unpark               string
	markers, lowest, release, more, mark, unmark    string
	free                                            string
	lease, suspect, body, hand                      string
	read, ahead                                     [lanesPerClaim]string // by how many lanes there are to read
	park, pause, enter, hold, leave                 string
	owners, publish, file, fileMeta, settle, remove string
	extendLanes, extendRows, states                 string
}

func newStatements(n names) statements {
	q := statements{
		peek: n.sql(peekSQL), pausesOver: n.sql(pausesOverSQL), promote: n.sql(promoteSQL), unpark: n.sql(unparkSQL),
		markers: n.sql(markersSQL), lowest: n.sql(lowestSQL), release: n.sql(releaseSQL), more: n.sql(moreSQL), mark: n.sql(markSQL), unmark: n.sql(unmarkSQL),
		free:  n.sql(freeSQL),
		lease: n.sql(leaseSQL), suspect: n.sql(suspectSQL), body: n.sql(bodySQL), hand: n.sql(handSQL),
		park: n.sql(parkSQL), pause: n.sql(pauseSQL), enter: n.sql(enterSQL), hold: n.sql(holdSQL), leave: n.sql(leaveSQL),
		owners: n.sql(ownersSQL), publish: n.sql(publishSQL), file: n.sql(fileSQL(true)), fileMeta: n.sql(fileSQL(false)),
		settle: n.sql(settleSQL), remove: n.sql(removeSQL),
		extendLanes: n.sql(extendLanesSQL), extendRows: n.sql(extendRowsSQL), states: n.sql(statesSQL),
	}
	for i := range lanesPerClaim {
		q.read[i], q.ahead[i] = n.sql(readSQL(i+1, true)), n.sql(readSQL(i+1, false))
	}
	return q
}

// all lists the statements with their names, for the golden file and for tests
// that look at plans.
func (q statements) all() []struct{ name, sql string } {
	return []struct{ name, sql string }{
		{"begin", beginSQL},
		{"peek", q.peek}, {"promote", q.promote}, {"pauses over", q.pausesOver}, {"unpark", q.unpark},
		{"markers", q.markers}, {"lowest", q.lowest}, {"release", q.release}, {"more", q.more}, {"mark", q.mark}, {"unmark", q.unmark},
		{"lease", q.lease}, {"suspect", q.suspect}, {"read one lane", q.read[0]}, {"read", q.read[lanesPerClaim-1]}, {"ahead", q.ahead[lanesPerClaim-1]}, {"body", q.body},
		{"park", q.park}, {"pause", q.pause}, {"enter", q.enter}, {"hold", q.hold}, {"leave", q.leave}, {"hand", q.hand},
		{"owners", q.owners}, {"file", q.file}, {"file, metadata", q.fileMeta}, {"publish", q.publish}, {"remove", q.remove},
		{"settle", q.settle}, {"free", q.free},
		{"extend lanes", q.extendLanes}, {"extend rows", q.extendRows}, {"states", q.states},
		{"commit", commitSQL}, {"rollback", rollbackSQL},
	}
}
