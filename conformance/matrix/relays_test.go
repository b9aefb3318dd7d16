package matrix

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance/judge"
	"github.com/outward-dev/outward/engine"
)

const (
	keys      = 20
	perKey    = 500
	keyless   = 10_000
	topicOne  = "matrix.one"
	topicTwo  = "matrix.two"
	kind      = "matrix.test.v1"
	soakLimit = 3 * time.Minute
)

// produce commits the keyed and the keyless messages of the tests below, in many
// transactions that overlap, so that numbers do not follow commits. Transactions
// of one key do not overlap: that is what order per key rests on.
func (p *pair) produce(l *judge.Ledger) {
	late := func(ctx context.Context) error { // others commit with higher numbers meanwhile
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rand.IntN(5000)) * time.Microsecond):
		}
		return nil
	}
	send := func(msgs []engine.Message) {
		ids, err := p.outbox.enqueue(p.t.Context(), late, msgs...)
		if err != nil {
			p.t.Errorf("enqueue: %v", err)
			return
		}
		l.Log(judge.Committed, ids, msgs)
	}
	less := max(p.dialect.less, 1)
	var producers sync.WaitGroup
	for k := range keys {
		producers.Go(func() {
			for n := 0; n < perKey/less; {
				var msgs []engine.Message
				for range min(1+rand.IntN(20), perKey/less-n) {
					msgs = append(msgs, engine.Message{Topic: topicOne, Type: kind, Key: fmt.Sprint("key-", k), Payload: []byte(strconv.Itoa(n))})
					n++
				}
				send(msgs)
			}
		})
	}
	for k := range 4 {
		producers.Go(func() {
			for n := 0; n < keyless/4/less; n += 50 {
				msgs := make([]engine.Message, 50)
				for i := range msgs {
					msgs[i] = engine.Message{Topic: topicOne, Type: kind, Payload: fmt.Appendf(nil, "keyless %d %d", k, n+i)}
				}
				send(msgs)
			}
		})
	}
	producers.Wait()
}

// wantAll checks that what was committed is at the broker, and that the promises were
// kept on the way there; incidents explain that messages came again.
func (p *pair) wantAll(l *judge.Ledger, incidents ...judge.Incident) judge.Verdict {
	p.t.Helper()
	e := p.evidence(p.taken())
	e.Incidents = incidents
	v := judge.Judge(l, e)
	if err := v.Err(); err != nil {
		p.t.Fatal(err)
	}
	return v
}

// patient is for relays of which none dies, so that nobody waits for a lease: a short
// one runs out where the disk stalls, and then messages do come again.
func patient(s *relaySpec) { s.Lease = 20 * time.Second }

func TestFourRelays(t *testing.T) {
	pairs(t, func(t *testing.T, p *pair) {
		var relays []*relayProcess
		for range 4 {
			relays = append(relays, p.startRelay(patient))
		}
		var l judge.Ledger
		p.produce(&l)
		p.settled(soakLimit)
		for _, r := range relays {
			r.stop()
		}
		p.wantAll(&l)
	})
}

func TestFourRelaysUnderAHeldSnapshot(t *testing.T) {
	pairs(t, func(t *testing.T, p *pair) {
		release, err := p.outbox.hold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		var l judge.Ledger
		p.produce(&l)
		var relays []*relayProcess
		for range 4 {
			relays = append(relays, p.startRelay(patient))
		}
		p.settled(soakLimit)
		for _, r := range relays {
			r.stop()
		}
		p.wantAll(&l)
	})
}

// Relays are killed at random moments, and others started. What was on its way to
// the broker may come again; nothing else may.
func TestRelaysAreKilled(t *testing.T) {
	pairs(t, func(t *testing.T, p *pair) {
		const kills, batch = 6, 200
		small := func(s *relaySpec) { s.Batch, s.Lease = batch, time.Second }
		relays := []*relayProcess{p.startRelay(small), p.startRelay(small), p.startRelay(small)}
		var l judge.Ledger
		var producing sync.WaitGroup
		producing.Go(func() { p.produce(&l) })
		var killed []judge.Incident
		for range kills {
			<-time.After(time.Duration(300+rand.IntN(700)) * time.Millisecond)
			n := rand.IntN(len(relays))
			relays[n].kill()
			killed = append(killed, judge.Incident{What: "relay killed", At: time.Now(), InFlight: 4 * batch}) // as many batches are in hand at most
			relays[n] = p.startRelay(small)
		}
		producing.Wait()
		p.settled(soakLimit)
		for _, r := range relays {
			r.stop()
		}
		v := p.wantAll(&l, killed...)
		t.Logf("%d kills, %d messages came again", kills, v.Repeats)
	})
}

func TestAKeyOverTwoTopicsOfWhichOneIsPaused(t *testing.T) {
	pairs(t, func(t *testing.T, p *pair) {
		operator := p.outbox.store.(engine.Operator)
		by := engine.Actor{Name: "anna", Reason: "maintenance"}
		if err := operator.Pause(t.Context(), engine.Pause{Destination: engine.TopicPause(topicTwo), By: by}); err != nil {
			t.Fatal(err)
		}
		var l judge.Ledger
		var msgs []engine.Message
		for n := range 300 {
			topic := topicOne
			if n%7 == 3 {
				topic = topicTwo
			}
			msgs = append(msgs, engine.Message{Topic: topic, Type: kind, Key: "key-0", Payload: []byte(strconv.Itoa(n))})
		}
		ids, err := p.outbox.enqueue(t.Context(), nil, msgs...)
		if err != nil {
			t.Fatal(err)
		}
		l.Log(judge.Committed, ids, msgs)
		relays := []*relayProcess{p.startRelay(patient), p.startRelay(patient)}
		// What comes before the first message of the paused topic goes; the rest waits.
		p.until(30*time.Second, "the head of the key to be parked", func(b engine.Backlog) bool {
			return b.Parked.N == 1 && b.Held.N == 300-4 && b.Ready.N == 0
		})
		if ok, err := operator.Resume(t.Context(), engine.TopicPause(topicTwo), by); err != nil || !ok {
			t.Fatalf("resume: %v, %v", ok, err)
		}
		p.settled(time.Minute)
		for _, r := range relays {
			r.stop()
		}
		p.wantAll(&l)
	})
}

// until waits until the backlog is as cond wants it.
func (p *pair) until(limit time.Duration, what string, cond func(engine.Backlog) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var b engine.Backlog
	for {
		var err error
		if b, err = p.outbox.store.(engine.Monitor).Backlog(ctx); err == nil && cond(b) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("waited %v for %s: %+v, %v", limit, what, b, err)
		}
	}
}

// A message arrives as the plain INSERT of a foreign writer made it.
func TestAPlainInsert(t *testing.T) {
	pairs(t, func(t *testing.T, p *pair) {
		text := "quotes ' \" backslash \\ and \\u00e9, é, an emoji 😀,\na newline and a tab\t."
		quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
		for _, sql := range []string{
			"INSERT INTO {p}messages (topic, type, payload_text) VALUES ('matrix.one', '" + kind + "', " + quoted + ")",
			"INSERT INTO {p}messages (topic, type, payload_text, ordering_key) VALUES ('matrix.one', '" + kind + "', " + quoted + ", 'a key')",
			"INSERT INTO {p}messages (topic, type, payload_text, ordering_key) VALUES ('matrix.one', '" + kind + "', " + quoted + ", '')",
		} {
			if err := p.outbox.exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		r := p.startRelay(nil)
		p.settled(30 * time.Second)
		r.stop()
		ds := p.taken()
		if len(ds) != 3 {
			t.Fatalf("%d deliveries of 3 messages", len(ds))
		}
		keyed := 0
		for _, d := range ds {
			if string(d.payload) != text || d.kind != kind || d.topic != topicOne {
				t.Errorf("it came as topic %q, type %q, payload %q", d.topic, d.kind, d.payload)
			}
			if _, err := engine.ParseID(d.id); err != nil {
				t.Errorf("its id: %v", err)
			}
			if d.key == "a key" {
				keyed++
			} else if d.key != "" {
				t.Errorf("its key is %q", d.key)
			}
		}
		if keyed != 1 {
			t.Errorf("%d of 3 have the key", keyed)
		}
	})
}
