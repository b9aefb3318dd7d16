package engine

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"
)

const (
	pauseRefresh = time.Second            // how soon another relay's or an operator's pause is noticed
	probeFirst   = 500 * time.Millisecond // the first probe of a pause, and the least wait between two
	probeMost    = 30 * time.Second
	relapseIn    = time.Minute // a pause that comes back within this time is the same trouble, and is probed less often
)

// A pause as this relay knows it.
type pause struct {
	Pause
	fault   Fault
	made    time.Time // local, for a store that keeps no pauses
	probeAt time.Time // likewise
	fresh   bool      // not in the table yet
}

// A relapse is what is remembered of a pause that ended.
type relapse struct {
	ended time.Time
	wait  time.Duration // before its first probe
}

// pauseKinds are what the names of pauses begin with, beside names of transports.
var pauseKinds = []string{"transport", "topic", "given_up"}

// givenUp names the state after a pause that lasted for GiveUpAfter: the
// destination's messages are buried as they are met, and it is still probed.
func givenUp(key string) string { return "given_up:" + key }

// pauseOf returns the pause that keeps a message from its destination, or nil.
func (r *Relay) pauseOf(d *destination, topic string) *pause {
	if len(r.pauses) == 0 {
		return nil
	}
	for _, key := range [...]string{d.key, d.broker.pauseKey, d.name, TopicPause(topic), givenUp(d.key), givenUp(d.broker.pauseKey)} {
		if p := r.pauses[key]; p != nil {
			return p
		}
	}
	return nil
}

// meetPause gives a message of a paused destination its outcome.
func (r *Relay) meetPause(i *item, p *pause) {
	f := p.fault
	if f.Err == nil {
		f = Fault{Class: p.Class, Code: "paused", Err: errors.New("paused by " + p.By.Name)}
	}
	if strings.HasPrefix(p.Destination, givenUp("")) {
		r.bury(i, f)
		return
	}
	r.park(i, p.Destination, f)
}

// pausedTopics lists the topics that a claim should park, with their pauses.
func (r *Relay) pausedTopics() (topics []string, pausedFor map[string]string) {
	if len(r.pauses) == 0 {
		return nil, nil
	}
	pausedFor = map[string]string{}
	add := func(topic, key string) {
		if _, known := pausedFor[topic]; !known {
			topics = append(topics, topic)
			pausedFor[topic] = key
		}
	}
	for key := range r.pauses {
		if topic, ok := strings.CutPrefix(key, TopicPause("")); ok {
			add(topic, key)
		}
	}
	for topic, d := range r.topics {
		if p := r.pauseOf(d, topic); p != nil && !strings.HasPrefix(p.Destination, givenUp("")) {
			add(topic, p.Destination)
		}
	}
	// A pause may name a topic that this relay has not met: a destination of the
	// same name, say. It is found out here rather than by handing its rows out.
	for key, p := range r.pauses {
		if rt := r.routeOf(key); rt != nil && rt.destination == "" && !strings.HasPrefix(key, givenUp("")) {
			add(key, p.Destination)
		}
	}
	sort.Strings(topics)
	return topics, pausedFor
}

// allPaused reports whether no transport takes anything, so that claiming would
// only move rows to and fro.
func (r *Relay) allPaused() bool {
	for _, b := range r.byName {
		if r.pauses[b.pauseKey] == nil {
			return false
		}
	}
	return true
}

// failed returns the name of the pause that a failed destination calls for. Where
// nothing takes a topic only this topic stops: others may go the same way.
func failed(d *destination, topic string, f Fault) string {
	switch {
	case f.Class == Unavailable:
		return d.broker.pauseKey
	case f.Code == CodeNoRoute:
		return TopicPause(topic)
	}
	return d.key
}

// pauseFor pauses what key names because of f, for this relay at once and for all
// relays on the table as soon as it is written.
func (r *Relay) pauseFor(key string, f Fault) {
	if r.pauses[key] != nil {
		return
	}
	now := time.Now()
	wait := probeFirst
	if last, ok := r.relapses[key]; ok && now.Sub(last.ended) < relapseIn {
		wait = min(2*last.wait, probeMost)
	}
	if len(r.relapses) >= maxTopics {
		clear(r.relapses)
	}
	r.relapses[key] = relapse{ended: now, wait: wait}
	r.addPause(&pause{
		Pause: Pause{Destination: key, Class: f.Class, ProbeAfter: wait,
			By: Actor{Name: r.opts.Worker, Reason: f.Text(), Relay: true}},
		fault: f, made: now, probeAt: now.Add(wait), fresh: r.operator != nil,
	})
	if r.work != nil {
		signal(r.work.pause)
	}
}

// addPause takes note of a pause and parks what waits for its destination.
func (r *Relay) addPause(p *pause) {
	r.pauses[p.Destination] = p
	as := p.Pause
	r.later(func() {
		about := []any{"destination", as.Destination, "by", as.By.Name, "reason", as.By.Reason}
		if as.By.Relay {
			about = append(about, "class", as.Class.String())
		}
		r.log.Warn("paused", about...)
		if f := r.opts.Hooks.Paused; f != nil {
			f(as)
		}
	})
	for _, d := range r.destinations {
		kept := d.queue[:0]
		for _, unit := range d.queue {
			met := r.pauseOf(d, unit[0].Topic)
			if unit[0].state != itemQueued || met == nil {
				kept = append(kept, unit)
				continue
			}
			d.queued -= len(unit)
			r.meetPause(unit[0], met)
			r.withdraw(unit[1:])
		}
		d.queue = kept
	}
}

// endPause forgets a pause that is over.
func (r *Relay) endPause(p *pause) {
	delete(r.pauses, p.Destination)
	r.ended++
	key := p.Destination
	if last, ok := r.relapses[key]; ok {
		last.ended = time.Now()
		r.relapses[key] = last
	}
	r.later(func() {
		r.log.Info("resumed", "destination", key)
		if f := r.opts.Hooks.Resumed; f != nil {
			f(key)
		}
	})
	if r.work != nil {
		signal(r.work.free)
	}
	signal(r.wake)
}

// pauseLoop keeps this relay's view of the pauses and the table's in step, and
// probes what is paused. It does not wait for probes: one that hangs must not keep
// it from noticing what an operator does.
func (r *Relay) pauseLoop(w *work) {
	beat := r.heartbeat("pause")
	var probes sync.WaitGroup
	defer probes.Wait()
	for w.ctx.Err() == nil {
		beat.touch()
		if err := r.refreshPauses(w.ctx); err != nil && w.ctx.Err() == nil {
			r.storeFailed("pauses", err)
		}
		r.probeDue(w.ctx, &probes)
		wait := pauseRefresh
		r.lock()
		if len(r.pauses) > 0 {
			wait = probeFirst / 2
		}
		r.unlock()
		sleep(w.ctx, wait, w.pause)
	}
}

// refreshPauses writes the pauses that were made here and reads all of them.
func (r *Relay) refreshPauses(ctx context.Context) error {
	if r.operator == nil {
		r.lock()
		r.knowPauses()
		r.unlock()
		return nil
	}
	r.refreshing.Lock() // Step does it as well as pauseLoop
	defer r.refreshing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.opts.SettleTimeout)
	defer cancel()
	r.lock()
	ended := r.ended
	var fresh []*pause
	for _, p := range r.pauses {
		if p.fresh {
			fresh = append(fresh, p)
		}
	}
	r.unlock()
	for _, p := range fresh { // nobody else changes what is fresh
		if err := r.operator.Pause(ctx, p.Pause); err != nil {
			return err
		}
		r.lock()
		p.fresh = false
		r.unlock()
	}
	list, err := r.operator.Pauses(ctx)
	if err != nil {
		return err
	}
	r.storeAnswered("pauses")
	r.lock()
	defer r.unlock()
	r.knowPauses()
	listed := make(map[string]bool, len(list))
	for _, p := range list {
		listed[p.Destination] = true
		if known := r.pauses[p.Destination]; known == nil {
			if r.ended == ended { // else it may be the one that a probe has ended since
				r.addPause(&pause{Pause: p})
			}
		} else if !known.fresh {
			known.Pause = p
		}
	}
	for _, p := range r.pauses {
		if !p.fresh && !listed[p.Destination] {
			r.endPause(p)
		}
	}
	return nil
}

func (r *Relay) knowPauses() {
	if !r.pausesKnown {
		r.pausesKnown = true
		if r.work != nil {
			signal(r.work.free)
		}
	}
}

// probeDue begins to probe the relays' pauses whose time has come, side by side, so
// that one that does not answer delays no other.
func (r *Relay) probeDue(ctx context.Context, probes *sync.WaitGroup) {
	now := time.Now()
	r.lock()
	type probe struct {
		pause *pause
		as    Pause // as it was known when the probe was decided on
	}
	var due []probe
	for key, p := range r.pauses {
		mine := p.By.Relay && !p.fresh && !r.probing[key] && r.canProbe(key)
		if mine && (r.operator != nil && p.ProbeIn <= 0 || r.operator == nil && !now.Before(p.probeAt)) {
			due = append(due, probe{p, p.Pause})
			r.probing[key] = true
		}
	}
	r.unlock()
	for _, p := range due {
		probes.Go(func() {
			r.probe(ctx, p.pause, p.as)
			r.lock()
			delete(r.probing, p.as.Destination)
			r.unlock()
		})
	}
}

// canProbe reports whether this relay knows what a pause stands for.
func (r *Relay) canProbe(key string) bool {
	key = strings.TrimPrefix(key, givenUp(""))
	if topic, ok := strings.CutPrefix(key, TopicPause("")); ok {
		return r.routeOf(topic) != nil
	}
	if name, ok := strings.CutPrefix(key, TransportPause("")); ok {
		return r.byName[name] != nil
	}
	return r.destinationByKey(key) != nil
}

// probe looks whether a paused destination takes messages again, and ends the
// pause if it does.
func (r *Relay) probe(ctx context.Context, p *pause, as Pause) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Delivery.ConfirmTimeout)
	defer cancel()
	key := as.Destination
	next := min(max(as.For/4, probeFirst), probeMost)
	if r.operator != nil {
		mine, err := r.operator.TakeProbe(ctx, key, next)
		if err != nil {
			r.storeFailed("probe", err)
			return
		}
		r.storeAnswered("probe")
		if !mine {
			return
		}
	} else {
		r.lock()
		p.probeAt = time.Now().Add(min(max(time.Since(p.made)/4, as.ProbeAfter), probeMost))
		r.unlock()
	}
	ok, trial := r.answers(ctx, strings.TrimPrefix(key, givenUp("")))
	if !ok {
		r.giveUp(ctx, as)
		return
	}
	r.lock()
	for _, d := range r.destinations {
		if d.key == key || d.broker.pauseKey == key {
			d.trial = true
		}
		if d.key == key && !trial {
			d.probes++
		}
	}
	r.unlock()
	if r.operator != nil {
		ended, err := r.operator.Resume(ctx, key, Actor{Name: r.opts.Worker, Reason: "probe succeeded", Relay: true})
		if err != nil {
			r.storeFailed("resume", err)
			return
		}
		r.storeAnswered("resume")
		if !ended {
			return // an operator has taken the pause over
		}
	}
	r.lock()
	defer r.unlock()
	if r.pauses[key] == p {
		r.endPause(p)
	}
}

// answers reports whether what key names takes messages. trial says that nobody
// could tell without sending one.
func (r *Relay) answers(ctx context.Context, key string) (ok, trial bool) {
	if strings.HasPrefix(key, TopicPause("")) {
		// It was paused for want of a route, here or in the broker. Here there is one
		// now; whether the broker has one, only a message can tell.
		return true, true
	}
	r.lock()
	var b *broker
	dest := ""
	if name, isTransport := strings.CutPrefix(key, TransportPause("")); isTransport {
		b = r.byName[name]
	} else if d := r.destinationByKey(key); d != nil {
		b, dest = d.broker, d.name
	}
	r.unlock()
	if b == nil {
		return false, false
	}
	if b.prober == nil {
		return true, true
	}
	f := b.probe(ctx, dest)
	r.log.Debug("probed", "destination", key, "result", f)
	return f == nil || dest == "" && f.Class != Unavailable, false
}

// probe asks the transport, and survives it.
func (b *broker) probe(ctx context.Context, destination string) (f *Fault) {
	defer func() {
		if p := recover(); p != nil {
			f = &Fault{Class: Unavailable, Code: CodePanic, Err: fmt.Errorf("the probe of transport %q panicked: %v", b.info.Name, p)}
		}
	}()
	return b.prober.Probe(ctx, destination)
}

// giveUp turns a pause that has lasted too long into one under which messages are
// buried.
func (r *Relay) giveUp(ctx context.Context, p Pause) {
	if r.operator == nil || strings.HasPrefix(p.Destination, givenUp("")) {
		return
	}
	limit := r.opts.Delivery.GiveUpAfter
	r.lock()
	if d := r.destinationByKey(p.Destination); d != nil {
		limit = r.deliveryTo(d.broker, d.name).GiveUpAfter
	}
	r.unlock()
	if limit == 0 || p.For < limit {
		return
	}
	by := Actor{Name: r.opts.Worker, Reason: "gave up after " + limit.String() + ": " + p.By.Reason, Relay: true}
	err := r.operator.Pause(ctx, Pause{Destination: givenUp(p.Destination), By: by, Class: p.Class, ProbeAfter: probeFirst})
	if err == nil {
		_, err = r.operator.Resume(ctx, p.Destination, by)
	}
	if err != nil {
		r.storeFailed("give up", err)
		return
	}
	r.storeAnswered("give up")
}
