package telemetry

import "sync"

// other stands for every topic or destination past the limit: a program that makes
// topics out of ids must not make a time series of each.
const other = "other"

// labels bounds how many values an attribute has.
type labels struct {
	most         int
	mu           sync.RWMutex
	topics       map[string]struct{}
	destinations map[string]struct{}
}

func newLabels(most int) *labels {
	return &labels{most: most, topics: map[string]struct{}{}, destinations: map[string]struct{}{}}
}

func (l *labels) topic(name string) string       { return l.bound(l.topics, name) }
func (l *labels) destination(name string) string { return l.bound(l.destinations, name) }

// bound returns the name, or other where there are too many already. First come,
// first served, for as long as the process lives.
func (l *labels) bound(known map[string]struct{}, name string) string {
	l.mu.RLock()
	_, ok := known[name]
	full := len(known) >= l.most
	l.mu.RUnlock()
	switch {
	case ok:
		return name
	case full:
		return other
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := known[name]; !ok && len(known) >= l.most {
		return other
	}
	known[name] = struct{}{}
	return name
}
