package config

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A node is a piece of the file: what the YAML library's tree says, reduced to what
// a strict reader needs, with values expanded.
type node struct {
	line, column int
	path         string
	kind         nodeKind
	raw          string // of a scalar: as written
	text         string // of a scalar: expanded
	expanded     bool
	bad          bool // its fault was reported
	items        []*node
	fields       []field
}

type nodeKind uint8

const (
	isNull nodeKind = iota
	isScalar
	isList
	isMapping
)

var kindNames = [...]string{"nothing", "a single value", "a list", "a mapping of keys"}

type field struct {
	key   string
	value *node
}

// maxDepth bounds nesting: the deepest key that exists is at six.
const maxDepth = 32

// A tree turns the library's nodes into ours.
type tree struct {
	r       *reader
	from    source
	anchors map[string]*node
}

// parse reads a file. What it can't read at all it reports and returns nil for.
func (t *tree) parse(data []byte) (root *node) {
	// The parser has been seen to panic on malformed input; a daemon that reloads
	// must survive that.
	defer func() {
		if p := recover(); p != nil {
			t.r.add(0, 0, "", "this is not YAML: the parser gave up without a position")
			root = nil
		}
	}()
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		t.syntax(err)
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body == nil:
			body = doc.Body
		default:
			line, column := place(doc.Body)
			t.r.add(line, column, "", "a second document begins; a configuration is one")
		}
	}
	if body == nil {
		t.r.add(0, 0, "", "the file is empty; it needs at least relays")
		return nil
	}
	return t.convert(body, "", 0)
}

// syntax reports what the parser said, without the lines that it would quote: there
// may be a secret in them.
func (t *tree) syntax(err error) {
	var detailed yaml.Error
	if !errors.As(err, &detailed) || detailed.GetToken() == nil || detailed.GetToken().Position == nil {
		t.r.add(0, 0, "", "this is not YAML; the parser gave no position")
		return
	}
	p := detailed.GetToken().Position
	t.r.add(p.Line, p.Column, "", "this is not YAML: "+detailed.GetMessage())
}

func place(n ast.Node) (line, column int) {
	tk := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		tk = m.Values[0].Key.GetToken() // its own is the first colon
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		tk = m.Key.GetToken()
	}
	if tk == nil || tk.Position == nil {
		return 0, 0
	}
	return tk.Position.Line, tk.Position.Column
}

func (t *tree) convert(from ast.Node, path string, depth int) *node {
	n := &node{path: path}
	if from == nil {
		return n
	}
	n.line, n.column = place(from)
	if depth > maxDepth {
		t.fault(n, "it is nested too deeply")
		return n
	}
	switch from := from.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		t.mapping(n, from.Values, depth)
	case *ast.MappingValueNode:
		t.mapping(n, []*ast.MappingValueNode{from}, depth)
	case *ast.SequenceNode:
		n.kind = isList
		for i, item := range from.Values {
			n.items = append(n.items, t.convert(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
	case *ast.AnchorNode:
		value := t.convert(from.Value, path, depth+1)
		t.anchors[from.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		name := from.Value.GetToken().Value
		if value := t.anchors[name]; value != nil {
			return value
		}
		t.fault(n, "the alias *%s has no anchor before it", name)
	case *ast.TagNode:
		t.fault(n, "tags (%s) are not used here; leave it out", from.Start.Value)
	case *ast.LiteralNode:
		t.scalar(n, from.Value.Value)
	case *ast.StringNode:
		t.scalar(n, from.Value)
	case ast.ScalarNode:
		t.scalar(n, scalarText(from.GetToken()))
	default:
		t.fault(n, "a %s is not used here", from.Type())
	}
	return n
}

func scalarText(tk *token.Token) string { return tk.Value }

func (t *tree) scalar(n *node, raw string) {
	n.kind, n.raw = isScalar, raw
	var err error
	n.text, n.expanded, err = t.from.expand(raw)
	for _, err := range split(err) {
		t.fault(n, "%v", err)
	}
}

func (t *tree) mapping(n *node, values []*ast.MappingValueNode, depth int) {
	n.kind = isMapping
	first := map[string]int{}
	for _, v := range values {
		line, column := place(v.Key)
		if v.Key.IsMergeKey() {
			t.r.add(line, column, n.path, "merge keys (<<) are not used here; what several routes share goes into the relay's delivery")
			continue
		}
		key := v.Key.GetToken().Value
		path := key
		if n.path != "" {
			path = n.path + "." + key
		}
		if at, seen := first[key]; seen {
			t.r.add(line, column, path, "the key stands here twice, first in line "+strconv.Itoa(at)+"; remove one")
			continue
		}
		first[key] = line
		value := t.convert(v.Value, path, depth+1)
		if value.line == 0 || value.kind == isNull {
			value.line, value.column = line, column
		}
		n.fields = append(n.fields, field{key: key, value: value})
	}
}

func (t *tree) fault(n *node, format string, args ...any) {
	n.bad = true
	t.r.fault(n, format, args...)
}

// split takes apart what errors.Join has joined, at any depth.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, split(err)...)
	}
	return all
}
