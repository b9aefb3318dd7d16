package suite

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/outward-dev/outward/engine"
)

// randomSteps bounds the random clause.
const randomSteps = 500

// slack is how long a lease may differ from what the model thinks, for the real
// time that passes while the clause runs.
const slack = lease / 3

func randomClauses() []Clause {
	return []Clause{
		clause("store.random", "Whatever three processes, crashes, late and repeated answers, operators and time do in any sequence: order, exclusiveness and counts hold, and nothing is lost.", func(b *bench) {
			seed := b.s.Seed
			if seed == 0 {
				seed = rand.Uint64()
			}
			b.Logf("seed %d", seed)
			s := &sim{bench: b, rng: rand.New(rand.NewPCG(seed, 0)), seed: seed, sent: map[engine.ID]*sent{}, byKey: map[string][]*sent{}}
			for range 3 {
				s.procs = append(s.procs, &proc{worker: b.worker()})
			}
			s.op, _ = s.procs[0].Store.(engine.Operator)
			for range randomSteps {
				s.step()
			}
			s.finish()
		}),
	}
}

// sim is a model of a table, beside the table: what was enqueued, who has it, and
// what has been said of it.
type sim struct {
	*bench
	rng   *rand.Rand
	seed  uint64
	now   time.Duration // by Shift alone
	procs []*proc
	ghost []*grip // in the hands of processes that died or stalled
	sent  map[engine.ID]*sent
	byKey map[string][]*sent
	op    engine.Operator // nil: none
	trail []string
}

// sent is a message as its producer and its receiver see it.
type sent struct {
	id       engine.ID
	n        int
	key      string
	before   []*sent // of its key, committed before it was enqueued
	excused  bool    // asked to hold nothing back: delayed, or passed over
	accepted bool    // the broker has it
	done     bool    // settled as published
	dead     bool
	attempts int
	crashes  int
	holder   *grip
}

// proc is a process.
type proc struct {
	*worker
	claims [][]*grip             // open ones
	said   [][]engine.Settlement // to be repeated some time
}

// grip is a message in somebody's hand.
type grip struct {
	engine.Claimed
	m        *sent
	p        *proc
	until    time.Duration // when the lease ends
	closed   bool          // an earlier message of its key failed in this claim: not to be sent
	detached bool
	answered bool
}

// live reports whether g's lease surely lives.
func (s *sim) live(g *grip) bool { return g != nil && !g.answered && s.now < g.until-slack }

func (s *sim) did(format string, args ...any) {
	s.trail = append(s.trail, fmt.Sprintf(format, args...))
}

func (s *sim) fail(format string, args ...any) {
	s.Helper()
	last := s.trail[max(0, len(s.trail)-60):]
	s.Fatalf("%s\nseed %d, after %d operations; the last ones:\n  %s", fmt.Sprintf(format, args...), s.seed, len(s.trail), strings.Join(last, "\n  "))
}

func (s *sim) step() {
	s.Helper()
	p := s.procs[s.rng.IntN(len(s.procs))]
	switch n := s.rng.IntN(100); {
	case n < 18:
		s.produce()
	case n < 45:
		s.claimFor(p)
	case n < 72:
		s.answer(p)
	case n < 78:
		s.renew(p)
	case n < 83:
		s.repeat(p)
	case n < 87:
		s.crashProc(p)
	case n < 91:
		s.haunt()
	case n < 98:
		d := time.Duration(1+s.rng.IntN(45)) * time.Second
		s.did("%v pass", d)
		s.pass(d)
		s.now += d
	default:
		s.requeueAll()
	}
}

func (s *sim) produce() {
	s.Helper()
	var msgs []engine.Message
	for range 1 + s.rng.IntN(3) {
		m := message([]string{"", "a", "b", "c"}[s.rng.IntN(4)])
		if s.rng.IntN(10) == 0 {
			m.Delay = time.Duration(1+s.rng.IntN(100)) * time.Second
		}
		msgs = append(msgs, m)
	}
	for i, id := range s.enqueue(msgs...) {
		m := &sent{id: id, n: len(s.sent), key: msgs[i].Key, excused: msgs[i].Delay > 0}
		if m.key != "" {
			if !m.excused { // a delayed one takes its place when it is due
				m.before = slices.Clone(s.byKey[m.key])
			}
			s.byKey[m.key] = append(s.byKey[m.key], m)
		}
		s.sent[id] = m
		s.did("message %d of key %q, delay %v", m.n, m.key, msgs[i].Delay)
	}
}

// claimFor lets p claim, as a relay would: nothing while a suspect is in flight.
func (s *sim) claimFor(p *proc) {
	s.Helper()
	idle := true
	for _, c := range p.claims {
		for _, g := range c {
			if idle = false; g.Company > 0 {
				return
			}
		}
	}
	cs := p.ask(engine.ClaimRequest{Limit: 1 + s.rng.IntN(6), Idle: idle})
	if len(cs) > 0 {
		s.check(p, cs, idle)
	}
}

// check compares a claim with the model and puts it into p's hands.
func (s *sim) check(p *proc, cs []engine.Claimed, idle bool) []*grip {
	s.Helper()
	var names []string
	for _, c := range cs {
		if m := s.sent[c.ID]; m != nil {
			names = append(names, fmt.Sprint(m.n, " of ", m.key))
		}
	}
	s.did("process %d claims %v, idle: %v", slices.Index(s.procs, p), names, idle)
	here := map[*sent]bool{}
	var grips []*grip
	for _, c := range cs {
		m := s.sent[c.ID]
		switch {
		case m == nil:
			s.fail("a claim returned message %v, which nobody enqueued", c.ID)
		case m.done:
			s.fail("message %d was settled as published and is claimed again", m.n)
		case m.dead:
			s.fail("message %d is dead and is claimed", m.n)
		case s.live(m.holder):
			s.fail("message %d is claimed while another claim has it", m.n)
		case c.Company > 0 && !idle:
			s.fail("message %d is a suspect and came to a claim that was not idle", m.n)
		case c.Company > 0 && len(cs) > c.Company:
			s.fail("message %d has company %d and came in a claim of %d", m.n, c.Company, len(cs))
		}
		for _, b := range m.before {
			if !b.done && !b.excused && !here[b] {
				s.fail("message %d is claimed before message %d of its key is gone", m.n, b.n)
			}
		}
		if h := m.holder; h != nil && !h.answered {
			if c.Company == 0 {
				s.fail("message %d was in hand when a lease ran out, and is no suspect", m.n)
			}
			if h.Company == 1 && !h.detached {
				m.crashes++
			}
		}
		if c.Attempts != m.attempts || c.Crashes != m.crashes {
			s.fail("message %d comes with %d attempts and %d crashes, want %d and %d", m.n, c.Attempts, c.Crashes, m.attempts, m.crashes)
		}
		here[m] = true
		m.holder = &grip{Claimed: c, m: m, p: p, until: s.now + lease}
		grips = append(grips, m.holder)
	}
	p.claims = append(p.claims, slices.Clone(grips))
	return grips
}

// answer settles the first few messages of one of p's claims.
func (s *sim) answer(p *proc) {
	s.Helper()
	if len(p.claims) == 0 {
		return
	}
	i := s.rng.IntN(len(p.claims))
	claim := slices.Clone(p.claims[i])
	n := 1 + s.rng.IntN(len(claim))
	var ss []engine.Settlement
	for _, g := range claim[:n] {
		ss = append(ss, s.verdict(g, claim))
	}
	s.tell(p, claim[:n], ss)
}

// verdict chooses what becomes of g; what follows it in its claim is closed unless
// it is confirmed.
func (s *sim) verdict(g *grip, claim []*grip) engine.Settlement {
	s.Helper()
	behind := func() {
		for _, o := range claim {
			if o.m.key == g.m.key && g.m.key != "" && o.Receipt.Seq > g.Receipt.Seq {
				o.closed = true
			}
		}
	}
	n := s.rng.IntN(20)
	switch {
	case g.closed:
		return release(g.Claimed)
	case g.detached && !s.live(g):
		// What else it may say of a lease that ran out depends on who looked meanwhile.
		s.accept(g)
		return published(g.Claimed)
	case n < 12 && (s.live(g) || g.m.accepted):
		s.accept(g)
		return published(g.Claimed)
	}
	behind()
	switch {
	case n < 15:
		return engine.Reschedule(g.Receipt, time.Duration(s.rng.IntN(60))*time.Second, refused,
			engine.RescheduleOptions{Charge: s.rng.IntN(2) == 0, HoldKey: s.rng.IntN(5) > 0})
	case n < 16 && s.op != nil:
		return bury(g.Claimed)
	case n < 17 && s.op != nil:
		return buryPassing(g.Claimed)
	case n < 19 && !g.detached:
		return detach(g.Claimed)
	}
	return release(g.Claimed)
}

// accept is the broker taking a message.
func (s *sim) accept(g *grip) {
	s.Helper()
	if g.m.accepted {
		return
	}
	g.m.accepted = true
	for _, b := range g.m.before {
		if !b.accepted && !b.excused {
			s.fail("message %d goes before message %d of its key", g.m.n, b.n)
		}
	}
}

// tell settles grips and writes down what the store must now think.
func (s *sim) tell(p *proc, grips []*grip, ss []engine.Settlement) {
	s.Helper()
	var names []string
	for i, g := range grips {
		names = append(names, fmt.Sprint(ss[i].Kind, " ", g.m.n))
	}
	lost, err := p.Settle(s.Context(), ss...)
	s.did("process %d says %v; %d are lost", slices.Index(s.procs, p), names, len(lost))
	if err != nil {
		s.fail("Settle: %v", err)
	}
	for i, g := range grips {
		st := ss[i]
		if slices.Contains(lost, g.Receipt) {
			if s.live(g) {
				s.fail("message %d is lost, although its lease lives", g.m.n)
			}
			// Its process stops work; for the table the message was in hand to the end.
			s.drop(g)
			continue
		}
		if other := g.m.holder; other != g && s.live(other) {
			s.fail("a late worker's word on message %d, %s, counts while another has it", g.m.n, st.Kind)
		}
		if st.Kind == engine.Detached {
			g.detached, g.until = true, s.now+st.After
			continue
		}
		g.answered = true
		s.drop(g)
		switch st.Kind {
		case engine.Published:
			g.m.done = true
		case engine.Retried:
			if st.Charge {
				g.m.attempts++
			}
			g.m.excused = g.m.excused || !st.HoldKey
		case engine.Buried:
			g.m.dead = true
			g.m.excused = g.m.excused || !st.HoldKey
		}
	}
	p.said = append(p.said, ss)
}

// drop takes a grip out of its process's hands.
func (s *sim) drop(g *grip) {
	for i, c := range g.p.claims {
		g.p.claims[i] = slices.DeleteFunc(c, func(o *grip) bool { return o == g })
	}
	g.p.claims = slices.DeleteFunc(g.p.claims, func(c []*grip) bool { return len(c) == 0 })
}

func (s *sim) renew(p *proc) {
	s.Helper()
	all := slices.Concat(p.claims...)
	var rs []engine.Receipt
	for _, g := range all {
		rs = append(rs, g.Receipt)
	}
	lost, err := p.Extend(s.Context(), rs, lease)
	s.did("process %d extends %d; %d are lost", slices.Index(s.procs, p), len(rs), len(lost))
	if err != nil {
		s.fail("Extend: %v", err)
	}
	for _, g := range all {
		switch {
		case !slices.Contains(lost, g.Receipt):
			g.until = s.now + lease
		case s.live(g):
			s.fail("message %d is lost, although its lease lives", g.m.n)
		default:
			s.drop(g)
		}
	}
}

// repeat says something again, as after a lost answer.
func (s *sim) repeat(p *proc) {
	s.Helper()
	if len(p.said) == 0 {
		return
	}
	ss := p.said[s.rng.IntN(len(p.said))]
	lost, err := p.Settle(s.Context(), ss...)
	s.did("process %d repeats %d answers; %d are lost", slices.Index(s.procs, p), len(ss), len(lost))
	if err != nil {
		s.fail("Settle: %v", err)
	}
}

// crashProc kills a process; a part of what it had in hand had been sent.
func (s *sim) crashProc(p *proc) {
	s.Helper()
	for _, claim := range p.claims {
		for _, g := range claim {
			if s.live(g) && !g.closed && s.rng.IntN(2) == 0 {
				s.accept(g)
			} else {
				break
			}
		}
		s.ghost = append(s.ghost, claim...)
	}
	i := slices.Index(s.procs, p)
	s.did("process %d dies with %d claims", i, len(p.claims))
	p.claims = nil
	s.procs[i] = &proc{worker: s.worker()}
}

// haunt lets a process that was thought dead speak.
func (s *sim) haunt() {
	s.Helper()
	if len(s.ghost) == 0 {
		return
	}
	i := s.rng.IntN(len(s.ghost))
	g := s.ghost[i]
	st := release(g.Claimed)
	switch {
	case g.m.accepted:
		st = published(g.Claimed)
	case g.detached:
		return
	case s.rng.IntN(2) == 0:
		st = retry(g.Claimed, time.Minute)
	}
	s.ghost = slices.Delete(s.ghost, i, i+1)
	s.tell(g.p, []*grip{g}, []engine.Settlement{st})
}

func (s *sim) requeueAll() {
	s.Helper()
	if s.op == nil {
		return
	}
	n, err := s.op.Requeue(s.Context(), engine.Filter{}, anna)
	s.did("an operator requeues %d", n)
	if err != nil {
		s.fail("Requeue: %v", err)
	}
	for _, m := range s.sent {
		if m.dead {
			n--
			m.dead, m.attempts, m.crashes = false, 0, 0
		}
	}
	if n != 0 {
		s.fail("Requeue of everything that is dead says %d more than are dead", n)
	}
}

// finish lets everything that is left go, and checks that nothing is missing.
func (s *sim) finish() {
	s.Helper()
	w := &proc{worker: s.worker()}
	s.procs = append(s.procs, w)
	s.requeueAll()
	for range 4 {
		s.pass(time.Hour)
		s.now += time.Hour
		s.did("an hour passes")
		for empty := 0; empty < 3; {
			cs := w.claim(50)
			if len(cs) == 0 {
				empty++
				continue
			}
			grips := s.check(w, cs, true)
			var ss []engine.Settlement
			for _, g := range grips {
				s.accept(g)
				ss = append(ss, published(g.Claimed))
			}
			s.tell(w, grips, ss)
			w.claims = nil
		}
	}
	for _, m := range s.sent {
		if !m.accepted || !m.done {
			s.fail("message %d of key %q never came, or was never settled: %s", m.n, m.key, s.row(m.id).State)
		}
	}
}
