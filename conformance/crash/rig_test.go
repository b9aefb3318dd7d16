package crash_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/conformance/crash"
	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/engine/memory"
)

// At each boundary the world is as its sentence says, and nothing moves any more. The
// relay of a rig never ends; it dies with the test program.
func TestBoundaries(t *testing.T) {
	const messages = 7
	for _, tt := range []struct {
		at        crash.Boundary
		delivered []int
		states    []string
	}{
		{crash.Claimed, []int{0}, []string{"ready"}},
		{crash.Handed, []int{0}, []string{"ready"}},
		{crash.Confirmed, []int{messages}, []string{"ready"}},
		{crash.Settled, []int{messages}, []string{"published"}},
	} {
		t.Run(string(tt.at), func(t *testing.T) {
			db, broker := memory.NewDatabase(nil), memory.NewTransport(nil)
			var msgs []engine.Message
			for i := range messages {
				msgs = append(msgs, engine.Message{Topic: "orders", Type: "order.v1", Key: []string{"", "a"}[i%2]})
			}
			ids, err := db.Enqueue(t.Context(), msgs...)
			if err != nil {
				t.Fatal(err)
			}
			out, in := io.Pipe()
			rig := &crash.Rig{At: tt.at, After: messages, Signal: in}
			relay, err := engine.New(rig.Store(db.NewStore()), engine.AllTo(rig.Transport(broker)), &engine.Options{Poll: engine.Poll{Min: time.Millisecond}})
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = relay.Run(context.Background()) }()
			got := make([]byte, 2)
			if n, err := out.Read(got); n != 1 || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
			again := make(chan struct{})
			go func() {
				_, _ = out.Read(got)
				close(again)
			}()
			select {
			case <-again:
				t.Error("a second byte")
			case <-time.After(50 * time.Millisecond): // time enough for a relay to go on, if it could
			}
			if n := len(broker.Delivered()); !slices.Contains(tt.delivered, n) {
				t.Errorf("%d messages are at the broker", n)
			}
			for _, id := range ids {
				if s := db.Look(id).State; !slices.Contains(tt.states, s) {
					t.Errorf("a message is %s", s)
				}
			}
		})
	}
}

// With no boundary a relay does its work.
func TestNoBoundary(t *testing.T) {
	db, broker := memory.NewDatabase(nil), memory.NewTransport(nil)
	ids, err := db.Enqueue(t.Context(), engine.Message{Topic: "orders", Type: "order.v1"}, engine.Message{Topic: "orders", Type: "order.v1"})
	if err != nil {
		t.Fatal(err)
	}
	rig := &crash.Rig{After: 2}
	relay, err := engine.New(rig.Store(db.NewStore()), engine.AllTo(rig.Transport(broker)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := relay.Step(t.Context()); n != 2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	for _, id := range ids {
		if s := db.Look(id).State; s != "published" {
			t.Errorf("a message is %s", s)
		}
	}
}

// full has every ability that a relay looks for, and bare has none.
type (
	full struct{ engine.Store }
	bare struct{ engine.Store }

	fullTransport struct{ engine.Transport }
	bareTransport struct{ engine.Transport }
)

var errFull = errors.New("it was asked")

type operator struct{ engine.Operator }

func (full) Listen(context.Context) (<-chan struct{}, error) { return nil, errFull }
func (full) Purge(context.Context, int) (int, error)         { return 0, errFull }
func (full) Backlog(context.Context) (engine.Backlog, error) { return engine.Backlog{}, errFull }
func (full) Check(context.Context) []engine.Finding          { return []engine.Finding{{Code: "asked"}} }
func (full) Suspects() bool                                  { return true }
func (fullTransport) Check(context.Context) []engine.Finding {
	return []engine.Finding{{Code: "asked"}}
}
func (fullTransport) Probe(context.Context, string) *engine.Fault {
	return &engine.Fault{Code: "asked"}
}

// A relay finds in what the rig is around what it would find without, also where
// the engine looks for an ability that was made after this test.
func TestAbilities(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	rig := &crash.Rig{}
	wrapped := map[string]map[string]any{
		"store": {
			"with": rig.Store(struct {
				full
				operator
			}{}),
			"without": rig.Store(bare{}),
		},
		"t": {"with": rig.Transport(fullTransport{}), "without": rig.Transport(bareTransport{})},
	}
	asked := func(fs []engine.Finding) bool { return len(fs) == 1 && fs[0].Code == "asked" }
	// What a relay finds in the wrapper of one that has the ability, and of one that
	// lacks it: there nothing, or something that says nothing.
	abilities := map[string]func(v any, has bool) bool{
		"Notifier": func(v any, has bool) bool {
			signals, err := v.(engine.Notifier).Listen(ctx)
			if has {
				return errors.Is(err, errFull)
			}
			end()
			_, open := <-signals
			return err == nil && !open
		},
		"Purger": func(v any, has bool) bool {
			n, err := v.(engine.Purger).Purge(ctx, 1)
			return n == 0 && errors.Is(err, errFull) == has
		},
		"Monitor": func(v any, has bool) bool {
			_, err := v.(engine.Monitor).Backlog(ctx)
			return errors.Is(err, errFull) == has && errors.Is(err, errors.ErrUnsupported) != has
		},
		"Checker": func(v any, has bool) bool { return asked(v.(engine.Checker).Check(ctx)) == has },
		"Operator": func(v any, has bool) bool {
			_, ok := v.(engine.Operator)
			return ok == has
		},
		"Suspicious": func(v any, has bool) bool {
			s, ok := v.(engine.Suspicious)
			return ok == has && (!ok || s.Suspects())
		},
		"Prober": func(v any, has bool) bool {
			p, ok := v.(engine.Prober)
			return ok == has && (!ok || p.Probe(ctx, "").Code == "asked")
		},
	}
	looked := lookedFor(t)
	if len(looked) < 8 {
		t.Errorf("the engine looks for %v only", looked)
	}
	for _, l := range looked {
		of, name, _ := strings.Cut(l, ".")
		check, known := abilities[name]
		if !known {
			t.Errorf("the engine looks for a %s, of which the rig knows nothing", name)
			continue
		}
		if !check(wrapped[of]["with"], true) {
			t.Errorf("%s: it is not passed on", l)
		}
		if !check(wrapped[of]["without"], false) {
			t.Errorf("%s: it is pretended", l)
		}
	}
	for _, s := range []engine.Store{struct {
		bare
		operator
	}{}, onlySuspicious{}} {
		_, operates := s.(engine.Operator)
		_, suspects := s.(engine.Suspicious)
		w := rig.Store(s)
		if !abilities["Operator"](w, operates) || !abilities["Suspicious"](w, suspects) {
			t.Errorf("%T: abilities are not as they were", s)
		}
	}
}

type onlySuspicious struct{ engine.Store }

func (onlySuspicious) Suspects() bool { return true }

// lookedFor gives the interfaces that package engine asks a store or a transport
// for, each with the name of the variable in which that is.
func lookedFor(t *testing.T) (found []string) {
	t.Helper()
	files, err := filepath.Glob("../../engine/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no engine: %v", err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			assertion, is := n.(*ast.TypeAssertExpr)
			if !is || assertion.Type == nil {
				return true
			}
			of, isName := assertion.X.(*ast.Ident)
			as, isType := assertion.Type.(*ast.Ident)
			if isName && isType && (of.Name == "store" || of.Name == "t") {
				found = append(found, of.Name+"."+as.Name)
			} else {
				t.Errorf("%s: an assertion that this test does not understand: is the rig to pass it on?", path+":"+strconv.Itoa(int(n.Pos())))
			}
			return true
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}
