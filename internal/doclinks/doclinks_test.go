// Package doclinks holds the documents to what they point at.
package doclinks

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// Every link of a document leads to a file that is there, and a test that it names
// stands in that file.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	for _, doc := range documents(t) {
		text := read(t, doc)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			name, target := strings.Trim(m[1], "`"), m[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "#") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			target, _, _ = strings.Cut(target, "#")
			path := filepath.Join(filepath.Dir(doc), target)
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", doc, target)
				continue
			}
			if strings.HasPrefix(name, "Test") && strings.HasSuffix(path, ".go") && !strings.Contains(read(t, path), "func "+name+"(") {
				t.Errorf("%s: %s has no %s", doc, target, name)
			}
		}
	}
}

// Every clause that the guarantees name is one of the suite.
func TestClauses(t *testing.T) {
	var suite strings.Builder
	files, err := filepath.Glob(filepath.Join(root, "conformance/suite/*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no suite: %v", err)
	}
	for _, f := range files {
		suite.WriteString(read(t, f))
	}
	clauses := suite.String()
	named := regexp.MustCompile("`(store\\.[a-z_]+\\.?[a-z_]*)`").FindAllStringSubmatch(read(t, filepath.Join(root, "docs/guarantees.md")), -1)
	if len(named) < 20 {
		t.Errorf("only %d clauses are named", len(named))
	}
	for _, m := range named {
		id := m[1]
		// The clauses of fencing are made one per kind of answer.
		if family, ok := strings.CutPrefix(id, "store.fence."); ok && strings.Contains(clauses, `"store.fence."+`) && strings.Contains(clauses, `"`+family+`"`) {
			continue
		}
		if !strings.Contains(clauses, `"`+id) {
			t.Errorf("docs/guarantees.md names %s, which is no clause", id)
		}
	}
}

func documents(t *testing.T) []string {
	t.Helper()
	docs := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "CHANGELOG.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			docs = append(docs, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
