package memory

// A rule of the protocol. Tests switch rules off one by one, to show that the
// conformance suite notices; in every other use all of them are kept.
type rule int

const (
	_ rule = iota

	// Claims.
	leaseExcludes  // a live lease keeps a lane from others
	claimLooksOn   // a claim that finds nothing in some lanes looks at the next
	lruLanes       // the lane that was used longest ago comes first
	inSeqOrder     // a lane is read in the order of seq
	limitHolds     // a claim is no larger than its limit
	freesEmpty     // lanes without a row for this claim are freed when it is empty
	freesCut       // and those that the limit cut off
	freesAnswered  // the last answer frees the lanes
	freesOnlyThen  // and no earlier one
	keepsToken     // a freed lane keeps its token
	movesBehind    // rows behind a block leave the ready set
	readSeesBlocks // a row behind an entry does not go
	smallerBlocks  // only an entry with a smaller seq blocks

	// Suspects.
	onlyHanded      // a takeover makes suspects of what was handed out, not of the lane
	takeoverStamp   // and only of what was not answered since
	halves          // company is half of what the claim had
	wholeClaim      // the claim, not the lane
	crashAlone      // a crash is counted for a row that was alone
	crashOnlyAlone  // and for no other
	suspectsIdle    // suspects go to idle claims only
	suspectsAside   // those that wait hold up nobody else
	suspectCloses   // but the later rows of their key
	companyLimits   // a claim with a suspect is no larger than its company
	retryClears     // a suspect that was answered is none any more
	releaseKeeps    // a suspect that was released is still one
	detachedAlone   // a detached row whose lease ran out goes alone
	promoteClears   // and its old token is void
	promoteBlocks   // a promoted row still blocks its key
	delayPassesKey  // a row that is not due holds nothing back
	pausedParks     // rows of a paused topic are parked
	pausedLeaves    // and leave the ready set
	pausedBlocks    // and block their key
	pausedNamed     // under the topic's name, where the pause has none
	pausesEnd       // a row parked for a pause that has ended is ready
	resumesItsOwn   // a resume releases what was parked for it, and no more
	fenced          // a settlement needs the token
	lateCounts      // a lease that ran out and was not taken still counts
	goneIsDone      // what was answered under a standing token is not lost
	answeredOnce    // and is not changed again
	stampCompared   // a verdict on an older stamp changes nothing
	detachBlocks    // a detached row blocks its key
	detachAnswers   // a detach answers for the lane
	detachedByToken // a detached row is its holder's whoever has the lane
	detachLease     // a detached row's lease is its own
	releaseNow      // a released row is due at once
	parksForPause   // a reschedule for a pause waits for its end
	retryHolds      // a retry that holds its key blocks it
	retryPasses     // one that does not, does not
	deadHolds       // a death that holds its key blocks it
	passReleases    // one that does not releases what waited
	entryEach       // every row that blocks a key has an entry
	upToNext        // one that goes leaves the others
	releasesAll     // and everything before the next is released
	extendsFromNow  // extend counts from now
	extendShortens  // and may shorten
	noRevival       // and never revives a freed lane
	firstFailure    // the first charged failure counts, not the last

	// Operators and the rest.
	requeueResets // a requeued row starts from zero
	requeuePassed // also one that did not hold its key
	deadOnly      // operators touch dead rows only
	discardFrees  // a discarded row blocks nothing
	replaySameID  // a replayed message keeps its id
	purgeArchive  // a purge takes nothing but the archive
	idsReusable   // an id that was settled may be used again
	copies        // messages are copied

	ruleCount
)

// keeps reports whether r is in force.
func (db *Database) keeps(r rule) bool { return db.off != r }
