// Package importrules holds the root module to its layers: which package may
// import which, and which modules each may depend on. It has tests only.
package importrules

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "github.com/outward-dev/outward"

// layers says which of our own packages a package may import. The first pattern
// that matches a package counts. X/... is X and all below it; * is one part of a
// path, and in the second column the part that it was in the first. A package
// always may import what is below itself.
var layers = []struct{ pkg, may string }{
	{"engine/...", "engine/..."},
	{"inbox", "engine"},
	{"inbox/internal/...", "engine inbox inbox/internal/..."},
	{"inbox/*/...", "engine inbox inbox/internal/... inbox/*/... transports/internal/envelope"},
	{"dialects/internal/...", "engine inbox dialects/internal/..."},
	{"dialects/*/...", "engine inbox dialects/internal/... dialects/*/..."},
	{"transports/internal/transporttest", "engine internal/faultproxy internal/testservers"},
	{"transports/internal/...", "engine transports/internal/..."},
	{"transports/*/...", "engine transports/internal/... transports/*/..."},
	{"telemetry/...", "engine telemetry/..."},
	{"conformance/crash/...", "engine"},
	{"conformance/judge/...", "engine"},
	{"conformance/suite/...", "engine/... inbox conformance/suite/..."},
	{"conformance/...", "engine/... inbox conformance/..."},
	{"config/...", "engine/... inbox/... dialects/... transports/... telemetry/... config/..."},
	{"cmd/outward/...", "engine/... inbox/... dialects/... transports/... telemetry/... config/... conformance/suite/... cmd/outward/... internal/..."},
	{"internal/testservers", ""},
	{"internal/cmd/*/...", "internal/cmd/*/..."},
	{"internal/*/...", "internal/*/..."},
}

// forTests is what a package's tests may import besides.
const forTests = "engine/... inbox conformance/... internal/testservers internal/faultproxy"

// testSupport lists the packages that are there for tests: they may import
// testing, and nothing that ships may import them.
var testSupport = []string{"conformance", "internal/testservers", "internal/faultproxy", "transports/internal/transporttest"}

// A pkg is what go list tells of a package. With -test it lists a package again
// for its own tests, and the tests beside it, each with ForTest set, and a main
// package of the name X.test.
type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
	ForTest    string
	Module     *struct{ Path string }
}

// check returns what breaks the rules among the packages, a sentence each.
func check(pkgs []pkg, modules string) []string {
	byPath := map[string]pkg{}
	for _, p := range pkgs {
		byPath[p.ImportPath] = p
	}
	found := map[string]bool{}
	complain := func(format string, args ...any) { found[fmt.Sprintf(format, args...)] = true }

	for _, p := range pkgs {
		path, ours := own(p.ImportPath)
		if !ours || p.ImportPath != plain(p.ImportPath) && p.ForTest == "" {
			continue // not ours, or a variant that go list made to test another
		}
		if strings.HasSuffix(path, ".test") {
			continue // the main package of a test; the modules of its imports are looked at below
		}
		isTest := p.ForTest != ""
		if isTest {
			if path != strings.TrimPrefix(p.ForTest, root+"/") && path != strings.TrimPrefix(p.ForTest, root+"/")+"_test" {
				continue // compiled again because it imports the tested one
			}
			path = strings.TrimPrefix(p.ForTest, root+"/")
		}
		what := path
		if isTest {
			what = "the test of " + path
		}

		may, ruled := layerOf(path)
		if !ruled {
			complain("%s is in no layer: add it to layers", path)
			continue
		}
		if isTest {
			may += " " + forTests
		}
		for _, imp := range p.Imports {
			imp = plain(imp)
			if to, ours := own(imp); ours {
				if !matchAny(may, to) && to != path && !strings.HasPrefix(to, path+"/") {
					complain("%s imports %s", what, to)
				}
				if !isTest && slices.Contains(testSupport, to) && !slices.Contains(testSupport, path) {
					complain("%s imports %s, which is for tests", what, to)
				}
			}
			if (imp == "testing" || strings.HasPrefix(imp, "testing/")) && !isTest && !slices.Contains(testSupport, path) {
				complain("%s imports %s", what, imp)
			}
			if imp == "github.com/google/uuid" && path != "engine/internal/uuid7" && !isTest {
				complain("%s imports %s, which only engine/internal/uuid7 does", what, imp)
			}
		}
		allowed := modulesOf(modules, path)
		for m, via := range reach(byPath, p) {
			if !slices.Contains(allowed, m) {
				complain("%s depends on the module %s (by %s), which modules.txt does not give it", what, m, via)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// reach gives the foreign modules that p depends on, each with a package of it.
func reach(byPath map[string]pkg, p pkg) map[string]string {
	got := map[string]string{}
	seen := map[string]bool{}
	var walk func(p pkg)
	walk = func(p pkg) {
		if seen[p.ImportPath] || p.Standard {
			return
		}
		seen[p.ImportPath] = true
		if p.Module != nil && p.Module.Path != root {
			got[p.Module.Path] = p.ImportPath
		}
		for _, imp := range slices.Sorted(slices.Values(p.Imports)) {
			walk(byPath[imp])
		}
	}
	walk(p)
	return got
}

// own gives a package's path below the root of our module. The root itself is ".".
func own(importPath string) (string, bool) {
	path := plain(importPath)
	if path == root {
		return ".", true
	}
	return strings.CutPrefix(path, root+"/")
}

// plain drops what go list adds to a package compiled again for a test.
func plain(importPath string) string {
	path, _, _ := strings.Cut(importPath, " ")
	return path
}

func layerOf(path string) (may string, ok bool) {
	for _, l := range layers {
		if star, ok := match(l.pkg, path); ok {
			if star != "" {
				return strings.ReplaceAll(l.may, "*", star), true
			}
			return l.may, true
		}
	}
	return "", false
}

// match tells whether path is of the pattern, and what stood for its star.
func match(pattern, path string) (star string, ok bool) {
	if pattern == "..." {
		return "", true
	}
	pattern, tree := strings.CutSuffix(pattern, "/...")
	pp, parts := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(parts) < len(pp) || (len(parts) > len(pp) && !tree) {
		return "", false
	}
	for i, p := range pp {
		switch p {
		case "*":
			star = parts[i]
		case parts[i]:
		default:
			return "", false
		}
	}
	return star, true
}

func matchAny(patterns, path string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(p string) bool {
		_, ok := match(p, path)
		return ok
	})
}

func modulesOf(table, path string) (modules []string) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if _, ok := match(f[0], path); ok {
			modules = append(modules, f[1:]...)
		}
	}
	return modules
}

//go:embed modules.txt
var modulesTable string

func TestImportRules(t *testing.T) {
	// go test takes a result from its cache while the files that the test looked at
	// are the same, and it does not see what the go command looks at.
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), ".") && d.IsDir() && d.Name() != ".." {
			return filepath.SkipDir
		}
		if err == nil && (strings.HasSuffix(path, ".go") || d.Name() == "go.mod") {
			_, err = os.Stat(path)
		}
		if errors.Is(err, fs.ErrNotExist) { // deleted by somebody's editor just now
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", "-json=ImportPath,Imports,Standard,ForTest,Module", root+"/...")
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if !slices.ContainsFunc(pkgs, func(p pkg) bool { return p.ImportPath == root+"/engine" }) {
		t.Fatalf("go list does not know %s/engine: nothing was checked", root)
	}
	for _, s := range check(pkgs, modulesTable) {
		t.Error(s)
	}
}

// p makes a package of ours. Its imports: a path that begins with a name of ours
// below the root as it is; anything else is foreign.
func p(path string, imports ...string) pkg {
	ours := []string{"engine", "inbox", "dialects", "transports", "telemetry", "conformance", "config", "cmd", "internal"}
	for i, imp := range imports {
		first, _, _ := strings.Cut(imp, "/")
		if slices.Contains(ours, first) {
			imports[i] = root + "/" + imp
		}
	}
	return pkg{ImportPath: root + "/" + path, Imports: imports, Module: &struct{ Path string }{root}}
}

func inTest(of string, p pkg) pkg {
	p.ForTest = root + "/" + of
	p.ImportPath += " [" + p.ForTest + ".test]"
	return p
}

func foreign(path, module string, imports ...string) pkg {
	return pkg{ImportPath: path, Imports: imports, Module: &struct{ Path string }{module}}
}

func TestCheck(t *testing.T) {
	world := []pkg{
		{ImportPath: "context", Standard: true},
		{ImportPath: "testing", Standard: true},
		foreign("github.com/google/uuid", "github.com/google/uuid"),
		foreign("example.com/driver", "example.com/driver", "example.com/wire"),
		foreign("example.com/wire", "example.com/wire"),
		foreign("example.com/client", "example.com/client"),
		p("engine", "context", "engine/internal/uuid7"),
		p("engine/internal/uuid7", "github.com/google/uuid"),
		p("inbox", "engine"),
		p("transports/internal/envelope", "engine"),
		p("dialects/b", "engine"),
		p("transports/x", "engine", "transports/internal/envelope", "example.com/client"),
		p("conformance/suite", "engine", "inbox"),
		p("conformance", "conformance/suite", "testing"),
		p("internal/testservers", "testing"),
		p("transports/internal/transporttest", "testing", "engine", "internal/testservers"),
	}
	modules := `
		# a remark
		...             github.com/google/uuid
		dialects/a/...  example.com/driver example.com/wire
		transports/x    example.com/client
		cmd/outward/... example.com/client`
	for _, tt := range []struct {
		name string
		add  pkg
		want string // part of the one complaint; empty: none
	}{
		{"a world that is well", p("dialects/a", "engine", "inbox", "dialects/internal/sqlrows", "example.com/driver"), ""},
		{"a part of a dialect", p("dialects/a/internal/ddl", "dialects/a/internal/text"), ""},
		{"a dialect imports a transport", p("dialects/b/more", "transports/internal/envelope"), "dialects/b/more imports transports/internal/envelope"},
		{"a dialect imports another dialect", p("dialects/a", "dialects/b"), "dialects/a imports dialects/b"},
		{"a dialect imports the suite", p("dialects/a", "conformance/suite"), "dialects/a imports conformance/suite"},
		{"what dialects share imports a dialect", p("dialects/internal/sqlrows", "dialects/b"), "dialects/internal/sqlrows imports dialects/b"},
		{"a transport imports another transport", p("transports/y", "transports/x/frames"), "transports/y imports transports/x/frames"},
		{"a transport imports the inbox", p("transports/y", "inbox"), "transports/y imports inbox"},
		{"the engine imports a backend", p("engine/relay", "dialects/b"), "engine/relay imports dialects/b"},
		{"the engine imports the inbox", p("engine/relay", "inbox"), "engine/relay imports inbox"},
		{"the engine imports testing", p("engine/memory", "testing"), "engine/memory imports testing"},
		{"the engine imports a part of testing", p("engine/memory", "testing/synctest"), "engine/memory imports testing/synctest"},
		{"the uuid source is one", p("engine/memory", "github.com/google/uuid"), "only engine/internal/uuid7 does"},
		{"an inbox consumer", p("inbox/y", "inbox", "engine", "transports/internal/envelope"), ""},
		{"an inbox consumer imports a transport", p("inbox/x", "transports/internal/other"), "inbox/x imports transports/internal/other"},
		{"the suite imports testing", p("conformance/suite/more", "testing"), "conformance/suite/more imports testing"},
		{"conformance imports a dialect", p("conformance/suite/more", "dialects/b"), "conformance/suite/more imports dialects/b"},
		{"conformance gains a module", p("conformance/suite/more", "example.com/wire"), "depends on the module example.com/wire"},
		{"the configuration", p("config", "dialects/b", "telemetry", "inbox/rabbitmq"), ""},
		{"the configuration imports the suite", p("config", "conformance/suite"), "config imports conformance/suite"},
		{"the program", p("cmd/outward", "config", "conformance/suite", "transports/x"), ""},
		{"the program imports conformance", p("cmd/outward/verify", "conformance"), "cmd/outward/verify imports conformance"},
		{"production imports testservers", p("cmd/outward", "internal/testservers"), "which is for tests"},
		{"a transport imports what its tests share", p("transports/x/more", "transports/internal/transporttest"), "which is for tests"},
		{"a test of a transport", inTest("transports/x", p("transports/x", "testing", "transports/internal/transporttest", "internal/testservers", "example.com/client")), ""},
		{"another program imports the suite", p("internal/cmd/tool", "conformance/suite"), "internal/cmd/tool imports conformance/suite"},
		{"a package in no layer", p("util", "engine"), "util is in no layer"},
		{"a module that is not in the list", p("dialects/b/more", "example.com/driver"), "depends on the module example.com/driver"},
		{"a module behind a module", p("transports/x/more", "example.com/driver"), "depends on the module example.com/wire"},
		{"a module behind a package of ours", p("config", "transports/x"), "config depends on the module example.com/client"},
		{"a test uses the suite", inTest("dialects/a", p("dialects/a_test", "conformance", "internal/testservers", "testing", "engine/memory", "example.com/driver")), ""},
		{"a test in its package", inTest("dialects/b", p("dialects/b", "testing", "conformance/suite")), ""},
		{"a test of a dialect imports a transport", inTest("dialects/a", p("dialects/a_test", "transports/internal/envelope")), "the test of dialects/a imports transports/internal/envelope"},
		{"a test gains a module", inTest("dialects/a", p("dialects/a_test", "example.com/client")), "the test of dialects/a depends on the module example.com/client"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := check(append(slices.Clone(world), tt.add), modules)
			if tt.want == "" && len(got) > 0 {
				t.Errorf("complaints: %q", got)
			}
			if tt.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, tt.want) }) {
				t.Errorf("complaints: %q, want one with %q", got, tt.want)
			}
		})
	}
}
