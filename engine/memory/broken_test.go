package memory

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance/suite"
	"github.com/outward-dev/outward/engine"
)

// A variant is a store that breaks one promise: a rule of the reference store that
// is switched off, or a fault put in front of it. Each is a mistake that a dialect
// could make.
type variant struct {
	name  string
	aims  string // the clauses that it is for: all of them must fail
	off   rule
	front func(*front) // what stands in front of the store
	tx    func(*frontTx)
}

// front is a store in front of the reference store, with what it does otherwise.
type front struct {
	*Store
	claim    func(context.Context, engine.ClaimRequest) ([]engine.Claimed, error)
	settle   func(context.Context, ...engine.Settlement) ([]engine.Receipt, error)
	extend   func(context.Context, []engine.Receipt, time.Duration) ([]engine.Receipt, error)
	describe func() engine.StoreInfo
	suspects func() bool
	listen   func(context.Context) (<-chan struct{}, error)
	purge    func(context.Context, int) (int, error)
	backlog  func(context.Context) (engine.Backlog, error)
	dead     func(context.Context, engine.Filter) iter.Seq2[engine.Record, error]
	archived func(context.Context, engine.Filter) iter.Seq2[engine.Record, error]
	resume   func(context.Context, string, engine.Actor) (bool, error)
	pauses   func(context.Context) ([]engine.Pause, error)
	probe    func(context.Context, string, time.Duration) (bool, error)
}

func (f *front) Claim(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
	return f.claim(ctx, req)
}
func (f *front) Settle(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
	return f.settle(ctx, ss...)
}
func (f *front) Extend(ctx context.Context, rs []engine.Receipt, lease time.Duration) ([]engine.Receipt, error) {
	return f.extend(ctx, rs, lease)
}
func (f *front) Describe() engine.StoreInfo { return f.describe() }
func (f *front) Suspects() bool             { return f.suspects() }
func (f *front) Listen(ctx context.Context) (<-chan struct{}, error) {
	return f.listen(ctx)
}
func (f *front) Purge(ctx context.Context, limit int) (int, error) { return f.purge(ctx, limit) }
func (f *front) Backlog(ctx context.Context) (engine.Backlog, error) {
	return f.backlog(ctx)
}
func (f *front) Dead(ctx context.Context, filter engine.Filter) iter.Seq2[engine.Record, error] {
	return f.dead(ctx, filter)
}
func (f *front) Archived(ctx context.Context, filter engine.Filter) iter.Seq2[engine.Record, error] {
	return f.archived(ctx, filter)
}
func (f *front) Resume(ctx context.Context, d string, by engine.Actor) (bool, error) {
	return f.resume(ctx, d, by)
}
func (f *front) Pauses(ctx context.Context) ([]engine.Pause, error) { return f.pauses(ctx) }
func (f *front) TakeProbe(ctx context.Context, d string, next time.Duration) (bool, error) {
	return f.probe(ctx, d, next)
}

func newFront(s *Store) *front {
	return &front{Store: s, claim: s.Claim, settle: s.Settle, extend: s.Extend, describe: s.Describe, suspects: s.Suspects, listen: s.Listen,
		purge: s.Purge, backlog: s.Backlog, dead: s.Dead, archived: s.Archived, resume: s.Resume, pauses: s.Pauses, probe: s.TakeProbe}
}

// settling changes each settlement on its way in.
func settling(change func(*engine.Settlement)) func(*front) {
	return func(f *front) {
		f.settle = func(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
			ss = slices.Clone(ss)
			for i := range ss {
				change(&ss[i])
			}
			return f.Store.Settle(ctx, ss...)
		}
	}
}

// claiming changes each message on its way out.
func claiming(change func(*engine.Claimed)) func(*front) {
	return func(f *front) {
		f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
			cs, err := f.Store.Claim(ctx, req)
			for i := range cs {
				change(&cs[i])
			}
			return cs, err
		}
	}
}

// frontTx is a transaction in front of the reference's.
type frontTx struct {
	*Tx
	enqueue  func(context.Context, ...engine.Message) ([]engine.ID, error)
	commit   func(context.Context) error
	rollback func(context.Context) error
}

func (f *frontTx) Enqueue(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
	return f.enqueue(ctx, msgs...)
}
func (f *frontTx) Commit(ctx context.Context) error   { return f.commit(ctx) }
func (f *frontTx) Rollback(ctx context.Context) error { return f.rollback(ctx) }

// enqueueing changes each message on its way in.
func enqueueing(change func(*engine.Message)) func(*frontTx) {
	return func(f *frontTx) {
		f.enqueue = func(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
			msgs = slices.Clone(msgs)
			for i := range msgs {
				change(&msgs[i])
			}
			return f.Tx.Enqueue(ctx, msgs...)
		}
	}
}

// subject is the variant as the suite sees it.
func (v variant) subject() *suite.StoreSubject {
	db := NewDatabase(nil)
	db.off = v.off
	s := subject(db)
	s.Seed = 1
	if v.front != nil {
		s.Open = func(suite.T) engine.Store {
			f := newFront(db.NewStore())
			v.front(f)
			return f
		}
	}
	if v.tx != nil {
		s.Begin = func(suite.T) suite.Tx {
			tx := db.Begin()
			f := &frontTx{Tx: tx, enqueue: tx.Enqueue, commit: tx.Commit, rollback: tx.Rollback}
			v.tx(f)
			return f
		}
	}
	return s
}

// The rules of the store, one by one.
var withoutRule = []variant{
	{off: leaseExcludes, aims: "store.claim.exclusive store.order.one_claim store.lease.takeover store.lease.taken_once store.lease.own_claims", name: "a live lease keeps nobody away"},
	{off: claimLooksOn, aims: "store.claim.empty", name: "a claim gives up after the first lanes"},
	{off: lruLanes, aims: "store.starve.newcomers", name: "the first lanes come first"},
	{off: inSeqOrder, aims: "store.order.run store.order.hot_key store.order.many_keys store.concurrent.order", name: "a lane is read backwards"},
	{off: limitHolds, aims: "store.claim.limit", name: "a claim may have one more"},
	{off: freesEmpty, aims: "store.claim.frees_empty", name: "lanes of an empty claim stay leased"},
	{off: freesCut, aims: "store.claim.frees_cut", name: "lanes that the limit cut off stay leased"},
	{off: freesAnswered, aims: "store.claim.freed store.detach.frees_lane", name: "lanes are free when their lease is over"},
	{off: freesOnlyThen, aims: "store.claim.unanswered store.detach.part_of_run store.order.takeover", name: "the first answer frees the lanes"},
	{off: keepsToken, aims: "store.repeat.published store.repeat.retried store.repeat.buried store.repeat.released store.repeat.batch", name: "freeing a lane clears its token"},
	{off: movesBehind, aims: "store.starve.blocked_key", name: "rows behind a block are filtered, not moved"},
	{off: readSeesBlocks, aims: "store.order.newcomers", name: "the read does not ask whether a key is blocked"},
	{off: smallerBlocks, aims: "store.order.head_before_failure", name: "any entry but its own blocks a row"},
	{off: onlyHanded, aims: "store.suspect.unhanded", name: "a takeover suspects the whole lane"},
	{off: takeoverStamp, aims: "store.repeat.retried_taken", name: "a takeover suspects what was answered"},
	{off: halves, aims: "store.suspect.company", name: "suspects keep all their company"},
	{off: wholeClaim, aims: "store.suspect.whole_claim", name: "company is counted by lane"},
	{off: crashAlone, aims: "store.suspect.alone store.random", name: "no crash is counted"},
	{off: crashOnlyAlone, aims: "store.suspect.company", name: "bystanders are charged with crashes"},
	{off: suspectsIdle, aims: "store.suspect.idle", name: "suspects go to busy processes"},
	{off: suspectsAside, aims: "store.starve.suspects store.suspect.idle", name: "a suspect that waits stops the claim"},
	{off: suspectCloses, aims: "store.suspect.key", name: "a suspect that waits does not keep its key back"},
	{off: companyLimits, aims: "store.suspect.alone_in_claim", name: "suspects go with everything else"},
	{off: retryClears, aims: "store.suspect.cleared", name: "a suspect that was answered stays one"},
	{off: releaseKeeps, aims: "store.suspect.released", name: "a released suspect is none any more"},
	{off: detachedAlone, aims: "store.detach.expired", name: "a detached row that expired is no suspect"},
	{off: promoteClears, aims: "store.detach.fence store.detach.promoted", name: "a promoted row keeps its old token"},
	{off: promoteBlocks, aims: "store.order.head_retried store.order.lone_head", name: "a promoted row no longer blocks its key"},
	{off: delayPassesKey, aims: "store.delay.holds_nothing", name: "a row that is not due blocks its key"},
	{off: pausedParks, aims: "store.pause.parked store.pause.resumed", name: "paused topics go all the same"},
	{off: pausedLeaves, aims: "store.starve.paused_topic", name: "paused rows stay in the ready set"},
	{off: pausedBlocks, aims: "store.pause.two_topics", name: "paused rows let their key go on"},
	{off: pausedNamed, aims: "store.pause.own_name", name: "a pause without a name parks for none"},
	{off: pausesEnd, aims: "store.pause.ended_before", name: "only resume releases what is parked"},
	{off: resumesItsOwn, aims: "store.pause.only_its_own", name: "a resume releases everything"},
	{off: fenced, aims: "store.fence.published store.fence.retried store.fence.buried store.fence.released store.fence.detached store.fence.extend store.fence.after_success store.fence.forged", name: "the token is not compared"},
	{off: lateCounts, aims: "store.lease.late store.lease.revived store.detach.late", name: "a lease that ran out is lost at once"},
	{off: goneIsDone, aims: "store.repeat.published store.repeat.retried store.repeat.buried", name: "what was answered before counts as lost"},
	{off: answeredOnce, aims: "store.repeat.retried", name: "a repeated verdict is applied again"},
	{off: stampCompared, aims: "store.repeat.retried_ready store.repeat.requeued", name: "the stamp is not compared"},
	{off: detachBlocks, aims: "store.detach.holds_key store.detach.run", name: "a detached row lets its key go on"},
	{off: detachAnswers, aims: "store.claim.freed store.detach.frees_lane", name: "a detach leaves the lane taken"},
	{off: detachedByToken, aims: "store.detach.lane_taken", name: "a detached row needs its lane's token"},
	{off: detachLease, aims: "store.detach.lease", name: "a detached row has its lane's lease"},
	{off: releaseNow, aims: "store.detach.answers", name: "a released row keeps its due time"},
	{off: parksForPause, aims: "store.pause.reschedule", name: "a reschedule for a pause goes by time"},
	{off: retryHolds, aims: "store.order.head_waiting store.order.many_keys store.random", name: "a retry blocks no key"},
	{off: retryPasses, aims: "store.order.retry_passing", name: "every retry blocks its key"},
	{off: deadHolds, aims: "store.order.dead_holds", name: "a death blocks no key"},
	{off: passReleases, aims: "store.order.dead_passes", name: "a death that passes releases nothing"},
	{off: entryEach, aims: "store.order.two_failures store.detach.order", name: "one entry for each key"},
	{off: upToNext, aims: "store.order.up_to_next store.detach.run", name: "an entry that goes takes the others with it"},
	{off: releasesAll, aims: "store.order.flood", name: "a release ends after one chunk"},
	{off: extendsFromNow, aims: "store.extend.from_now store.detach.extend", name: "extend adds to the old deadline"},
	{off: extendShortens, aims: "store.extend.shorter", name: "extend never shortens"},
	{off: noRevival, aims: "store.lease.freed_stays_free", name: "extend revives a freed lane"},
	{off: firstFailure, aims: "store.claim.failing", name: "the last failure counts as the first"},
	{off: requeueResets, aims: "store.operator.requeue", name: "a requeue keeps the counters"},
	{off: requeuePassed, aims: "store.operator.requeue_passed", name: "a requeue leaves out what blocked nothing"},
	{off: deadOnly, aims: "store.operator.dead_only", name: "operators touch what is not dead"},
	{off: discardFrees, aims: "store.operator.discard", name: "a discarded row goes on blocking"},
	{off: replaySameID, aims: "store.operator.replay", name: "a replay mints a new id"},
	{off: purgeArchive, aims: "store.purge.unsettled", name: "a purge takes old dead rows"},
	{off: idsReusable, aims: "store.enqueue.again", name: "an id is used up for ever"},
	{off: copies, aims: "store.roundtrip.shared", name: "messages are shared with the caller"},
}

// Faults in front of the store.
var withFront = []variant{
	{name: "claims come in the order of the ids' hash", aims: "store.claim.sorted", front: func(f *front) {
		f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
			cs, err := f.Store.Claim(ctx, req)
			slices.SortFunc(cs, func(a, b engine.Claimed) int { return cmp.Compare(a.ID[15], b.ID[15]) })
			return cs, err
		}
	}},
	{name: "a process gets again what it has", aims: "store.lease.own_claims", front: func(f *front) {
		var had []engine.Claimed
		f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
			cs, err := f.Store.Claim(ctx, req)
			if len(cs) == 0 {
				return had[:min(len(had), req.Limit)], err
			}
			had = cs
			return cs, err
		}
	}},
	{name: "receipts are the row's number", aims: "store.claim.receipts store.fence.published store.fence.retried store.fence.buried store.fence.released store.fence.detached", front: func(f *front) {
		last := map[int64]engine.Receipt{}
		f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
			cs, err := f.Store.Claim(ctx, req)
			for i := range cs {
				last[cs[i].Receipt.Seq] = cs[i].Receipt
				cs[i].Receipt = engine.Receipt{Seq: cs[i].Receipt.Seq}
			}
			return cs, err
		}
		f.settle = func(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
			ss = slices.Clone(ss)
			for i := range ss {
				ss[i].Receipt = last[ss[i].Receipt.Seq]
			}
			return f.Store.Settle(ctx, ss...)
		}
	}},
	{name: "lost leases are not reported", aims: "store.fence.published store.fence.retried store.fence.buried store.fence.released store.fence.detached", front: func(f *front) {
		f.settle = func(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
			_, err := f.Store.Settle(ctx, ss...)
			return nil, err
		}
		f.extend = func(ctx context.Context, rs []engine.Receipt, lease time.Duration) ([]engine.Receipt, error) {
			_, err := f.Store.Extend(ctx, rs, lease)
			return nil, err
		}
	}},
	{name: "one lost lease is taken for all", aims: "store.settle.mixed store.extend.mixed", front: func(f *front) {
		f.settle = func(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
			lost, err := f.Store.Settle(ctx, ss...)
			if len(lost) > 0 {
				lost = nil
				for _, s := range ss {
					lost = append(lost, s.Receipt)
				}
			}
			return lost, err
		}
		f.extend = func(ctx context.Context, rs []engine.Receipt, lease time.Duration) ([]engine.Receipt, error) {
			lost, err := f.Store.Extend(ctx, rs, lease)
			if len(lost) > 0 {
				lost = rs
			}
			return lost, err
		}
	}},
	{name: "two calls at once are a deadlock", aims: "store.concurrent.errors store.claim.exclusive", front: func() func(*front) {
		var inside atomic.Int32
		return func(f *front) {
			f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
				defer inside.Add(-1)
				n := inside.Add(1)
				if runtime.Gosched(); n > 1 {
					return nil, errors.New("deadlock detected")
				}
				return f.Store.Claim(ctx, req)
			}
		}
	}()},
	{name: "a lost lease is an error", aims: "store.fence.extend", front: func(f *front) {
		f.extend = func(ctx context.Context, rs []engine.Receipt, lease time.Duration) ([]engine.Receipt, error) {
			lost, err := f.Store.Extend(ctx, rs, lease)
			if len(lost) > 0 {
				err = errors.New("no rows were affected")
			}
			return lost, err
		}
	}},
	{name: "nothing to extend is an error", aims: "store.extend.none", front: func(f *front) {
		f.extend = func(ctx context.Context, rs []engine.Receipt, lease time.Duration) ([]engine.Receipt, error) {
			if len(rs) == 0 {
				return nil, errors.New("syntax error near ()")
			}
			return f.Store.Extend(ctx, rs, lease)
		}
	}},
	{name: "confirmed messages are kept", aims: "store.settle.published", front: settling(func(s *engine.Settlement) {
		if s.Kind == engine.Published {
			*s = engine.Reschedule(s.Receipt, time.Second, engine.Fault{}, engine.RescheduleOptions{})
		}
	})},
	{name: "waits are halved", aims: "store.settle.due", front: settling(func(s *engine.Settlement) { s.After /= 2 })},
	{name: "errors are not recorded", aims: "store.settle.charged", front: settling(func(s *engine.Settlement) { s.Fault.Code = "" })},
	{name: "charges are forgotten", aims: "store.settle.charged store.claim.failing", front: settling(func(s *engine.Settlement) { s.Charge = false })},
	{name: "every reschedule is charged", aims: "store.settle.uncharged", front: settling(func(s *engine.Settlement) { s.Charge = s.Kind == engine.Retried })},
	{name: "a release is a reschedule", aims: "store.settle.released store.order.release_gap", front: settling(func(s *engine.Settlement) {
		if s.Kind == engine.Released {
			*s = engine.Reschedule(s.Receipt, time.Second, engine.Fault{}, engine.RescheduleOptions{})
		}
	})},
	{name: "the dead rise", aims: "store.settle.dead store.order.dead_holds", front: settling(func(s *engine.Settlement) {
		if s.Kind == engine.Buried {
			*s = engine.Reschedule(s.Receipt, 24*time.Hour, s.Fault, engine.RescheduleOptions{HoldKey: s.HoldKey})
		}
	})},
	{name: "answers are paired with rows in another order", aims: "store.settle.each_its_own", front: func(f *front) {
		f.settle = func(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
			rows := slices.Clone(ss)
			slices.SortFunc(rows, func(a, b engine.Settlement) int { return cmp.Compare(a.Receipt.Seq, b.Receipt.Seq) })
			ss = slices.Clone(ss)
			for i := range ss {
				ss[i].Receipt = rows[i].Receipt
			}
			return f.Store.Settle(ctx, ss...)
		}
	}},
	{name: "only the first claim of a batch is settled", aims: "store.settle.claims_mixed", front: func(f *front) {
		f.settle = func(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
			return f.Store.Settle(ctx, slices.DeleteFunc(slices.Clone(ss), func(s engine.Settlement) bool {
				return s.Receipt.Token != ss[0].Receipt.Token
			})...)
		}
	}},
	{name: "a second detach gives the message back", aims: "store.repeat.detached", front: func(f *front) {
		detached := map[engine.Receipt]bool{}
		f.settle = func(ctx context.Context, ss ...engine.Settlement) ([]engine.Receipt, error) {
			ss = slices.Clone(ss)
			for i, s := range ss {
				if s.Kind == engine.Detached && detached[s.Receipt] {
					ss[i] = engine.Release(s.Receipt)
				}
				detached[s.Receipt] = s.Kind == engine.Detached
			}
			return f.Store.Settle(ctx, ss...)
		}
	}},
	{name: "a claim buries what failed often", aims: "store.suspect.buried", front: func(f *front) {
		f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
			cs, err := f.Store.Claim(ctx, req)
			for i, c := range slices.Backward(cs) {
				if c.Attempts >= 25 || c.Crashes >= 5 {
					cs = slices.Delete(cs, i, i+1)
					if _, err := f.Store.Settle(ctx, engine.DeadLetter(c.Receipt, true, engine.Fault{})); err != nil {
						return nil, err
					}
				}
			}
			return cs, err
		}
	}},
	{name: "failed messages go again at once", aims: "store.starve.poison", front: settling(func(s *engine.Settlement) {
		if s.Kind == engine.Retried {
			s.After = 0
		}
	})},
	{name: "suspects are not reported", aims: "store.suspect.reported", front: func(f *front) {
		f.suspects = func() bool { return false }
	}},
	{name: "the context is ignored", aims: "store.context", front: func(f *front) {
		f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
			return f.Store.Claim(context.WithoutCancel(ctx), req)
		}
	}},
	{name: "Describe says nothing", aims: "store.describe", front: func(f *front) {
		f.describe = func() engine.StoreInfo { return engine.StoreInfo{} }
	}},
	{name: "a bad row makes the claim fail", aims: "store.bad_row.claimed", front: func(f *front) {
		f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
			cs, err := f.Store.Claim(ctx, req)
			for _, c := range cs {
				if c.Bad != nil {
					return nil, c.Bad
				}
			}
			return cs, err
		}
	}},
	{name: "a purge knows no limit", aims: "store.purge.archive", front: func(f *front) {
		f.purge = func(ctx context.Context, _ int) (int, error) { return f.Store.Purge(ctx, 1<<30) }
	}},
	{name: "held messages are not counted", aims: "store.backlog.counts", front: func(f *front) {
		f.backlog = func(ctx context.Context) (engine.Backlog, error) {
			b, err := f.Store.Backlog(ctx)
			b.Held.N = 0
			return b, err
		}
	}},
	{name: "the dead count among the oldest", aims: "store.backlog.ages", front: func(f *front) {
		f.backlog = func(ctx context.Context) (engine.Backlog, error) {
			b, err := f.Store.Backlog(ctx)
			b.Oldest = max(b.Oldest, b.OldestHold)
			return b, err
		}
	}},
	{name: "a listener hears nothing", aims: "store.notify.signal store.notify.closed", front: func(f *front) {
		f.listen = func(context.Context) (<-chan struct{}, error) { return make(chan struct{}), nil }
	}},
	{name: "Dead never says what holds a key", aims: "store.operator.list", front: func(f *front) {
		f.dead = func(ctx context.Context, filter engine.Filter) iter.Seq2[engine.Record, error] {
			return func(yield func(engine.Record, error) bool) {
				for rec, err := range f.Store.Dead(ctx, filter) {
					rec.HoldsKey = false
					if !yield(rec, err) {
						return
					}
				}
			}
		}
	}},
	{name: "a filter knows no class", aims: "store.operator.filter", front: func(f *front) {
		f.dead = func(ctx context.Context, filter engine.Filter) iter.Seq2[engine.Record, error] {
			filter.ErrorClass = ""
			return f.Store.Dead(ctx, filter)
		}
	}},
	{name: "the archive is listed by number", aims: "store.operator.archived", front: func(f *front) {
		f.archived = func(ctx context.Context, filter engine.Filter) iter.Seq2[engine.Record, error] {
			return func(yield func(engine.Record, error) bool) {
				var recs []engine.Record
				for rec, err := range f.Store.Archived(ctx, filter) {
					if err != nil {
						yield(rec, err)
						return
					}
					recs = append(recs, rec)
				}
				slices.SortFunc(recs, func(a, b engine.Record) int { return a.ID.Compare(b.ID) })
				for _, rec := range recs {
					if !yield(rec, nil) {
						return
					}
				}
			}
		}
	}},
	{name: "Dead goes on without its context", aims: "store.operator.dead_stops", front: func(f *front) {
		f.dead = func(ctx context.Context, filter engine.Filter) iter.Seq2[engine.Record, error] {
			return f.Store.Dead(context.WithoutCancel(ctx), filter)
		}
	}},
	{name: "a relay lifts an operator's pause", aims: "store.pause.precedence", front: func(f *front) {
		f.resume = func(ctx context.Context, d string, by engine.Actor) (bool, error) {
			by.Relay = false
			return f.Store.Resume(ctx, d, by)
		}
	}},
	{name: "a pause has no age", aims: "store.pause.listed", front: func(f *front) {
		f.pauses = func(ctx context.Context) ([]engine.Pause, error) {
			ps, err := f.Store.Pauses(ctx)
			for i := range ps {
				ps[i].For = 0
			}
			return ps, err
		}
	}},
	{name: "every relay probes", aims: "store.pause.probe", front: func(f *front) {
		f.probe = func(context.Context, string, time.Duration) (bool, error) { return true, nil }
	}},
	{name: "text loses its last blanks", aims: "store.roundtrip.text", front: claiming(func(c *engine.Claimed) { c.Topic = strings.TrimRight(c.Topic, " ") })},
	{name: "times are kept to the millisecond", aims: "store.roundtrip.numbers", front: claiming(func(c *engine.Claimed) {
		c.OccurredAt = c.OccurredAt.Truncate(time.Millisecond)
	})},
	{name: "a payload ends at 64 KiB", aims: "store.roundtrip.payload", front: claiming(func(c *engine.Claimed) {
		c.Payload = c.Payload[:min(len(c.Payload), 1<<16-1)]
	})},
	{name: "a payload of no bytes is none", aims: "store.roundtrip.empty", front: claiming(func(c *engine.Claimed) {
		if len(c.Payload) == 0 {
			c.Payload = nil
		}
	})},
	{name: "created-at is the client's clock", aims: "store.roundtrip.defaults", front: claiming(func(c *engine.Claimed) { c.CreatedAt = time.Now() })},
	{name: "a snapshot gives again what is gone", aims: "store.claim.snapshot", front: func(f *front) {
		var first []engine.Claimed
		f.claim = func(ctx context.Context, req engine.ClaimRequest) ([]engine.Claimed, error) {
			cs, err := f.Store.Claim(ctx, req)
			if first == nil {
				first = cs
			}
			if len(cs) == 0 {
				return first, err
			}
			return cs, err
		}
	}},
}

// Faults of the writer.
var withTx = []variant{
	{name: "a rollback commits", aims: "store.enqueue.atomic", tx: func(f *frontTx) { f.rollback = f.Tx.Commit }},
	{name: "each enqueue commits by itself", aims: "store.enqueue.uncommitted store.enqueue.atomic", tx: func(f *frontTx) {
		f.enqueue = func(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
			return f.db.Enqueue(ctx, msgs...)
		}
	}},
	{name: "what commits behind a higher number is never seen", aims: "store.order.late_commit store.concurrent.enqueue", tx: func(f *frontTx) {
		f.commit = func(ctx context.Context) error {
			f.db.mu.Lock()
			late := len(f.rows) > 0 && f.rows[len(f.rows)-1].seq < f.db.seq
			f.db.mu.Unlock()
			if late { // as under a cursor that went on
				return f.Tx.Rollback(ctx)
			}
			return f.Tx.Commit(ctx)
		}
	}},
	{name: "the bytes of an id are swapped", aims: "store.enqueue.ids", tx: enqueueing(func(m *engine.Message) { slices.Reverse(m.ID[:4]) })},
	{name: "a duplicate aborts the transaction", aims: "store.enqueue.duplicate", tx: func(f *frontTx) {
		var aborted error
		f.enqueue = func(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
			if aborted != nil {
				return nil, aborted
			}
			ids, err := f.Tx.Enqueue(ctx, msgs...)
			if errors.Is(err, engine.ErrDuplicateID) {
				aborted = errors.New("the transaction is aborted")
			}
			return ids, err
		}
	}},
	{name: "a second copy is dropped silently", aims: "store.enqueue.same_twice", tx: func(f *frontTx) {
		f.enqueue = func(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
			once := map[engine.ID]engine.Message{}
			for _, m := range msgs {
				once[cmp.Or(m.ID, engine.NewID())] = m
			}
			if len(once) == len(msgs) {
				return f.Tx.Enqueue(ctx, msgs...)
			}
			return f.Tx.Enqueue(ctx, slices.Collect(maps.Values(once))...)
		}
	}},
	{name: "only the first fault is told", aims: "store.enqueue.checked", tx: func(f *frontTx) {
		f.enqueue = func(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
			ids, err := f.Tx.Enqueue(ctx, msgs...)
			if err != nil && !errors.Is(err, engine.ErrDuplicateID) {
				first, _, _ := strings.Cut(err.Error(), "\n")
				err = errors.New(first)
			}
			return ids, err
		}
	}},
	{name: "a batch is inserted backwards", aims: "store.enqueue.order", tx: func(f *frontTx) {
		f.enqueue = func(ctx context.Context, msgs ...engine.Message) ([]engine.ID, error) {
			msgs = slices.Clone(msgs)
			slices.Reverse(msgs)
			ids, err := f.Tx.Enqueue(ctx, msgs...)
			slices.Reverse(ids)
			return ids, err
		}
	}},
	{name: "keys are compared by the rules of a language", aims: "store.roundtrip.keys", tx: enqueueing(func(m *engine.Message) {
		m.Key = strings.ToLower(strings.TrimRight(m.Key, " "))
	})},
	{name: "delays are dropped", aims: "store.delay.due", tx: enqueueing(func(m *engine.Message) { m.Delay = 0 })},
}

var table = flag.Bool("table", false, "run every clause on every broken store and print what fails")

func variants() []variant { return slices.Concat(withoutRule, withFront, withTx) }

// run runs a clause on a variant. A broken store may wait for what never comes, so
// it gets little time.
func (v variant) run(t *testing.T, c suite.Clause) suite.Report {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return suite.Run(ctx, c, func(suite.T) *suite.StoreSubject { return v.subject() })
}

// The suite is tested: every clause fails on a store that breaks it. With -table
// it also prints what else fails on each of them.
func TestSuite(t *testing.T) {
	clauses, broken := suite.Stores(), map[string]bool{}
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			for _, id := range strings.Fields(v.aims) {
				i := slices.IndexFunc(clauses, func(c suite.Clause) bool { return c.ID == id })
				if i < 0 {
					t.Fatalf("there is no clause %s", id)
				}
				broken[id] = true
				if rep := v.run(t, clauses[i]); rep.Outcome != suite.Failed {
					t.Errorf("%v\n%s: the store that is broken this way has %s\n%s", clauses[i], v.name, rep.Outcome, strings.Join(rep.Log, "\n"))
				}
			}
			if v.aims == "" {
				t.Error("no clause is named that this store must fail")
			}
			if *table {
				var failed []string
				for _, c := range clauses {
					if v.run(t, c).Outcome == suite.Failed {
						failed = append(failed, strings.TrimPrefix(c.ID, "store."))
					}
				}
				fmt.Printf("%-60s %s\n", v.name, strings.Join(failed, " "))
			}
		})
	}
	for _, c := range clauses {
		if !broken[c.ID] {
			t.Errorf("no broken store is there for %v", c)
		}
	}
}

// Every rule of the reference store is switched off by a variant.
func TestEveryRuleIsBroken(t *testing.T) {
	for r := rule(1); r < ruleCount; r++ {
		if !slices.ContainsFunc(withoutRule, func(v variant) bool { return v.off == r }) {
			t.Errorf("rule %d of rules.go is never switched off", r)
		}
	}
}
