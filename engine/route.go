package engine

import (
	"fmt"
	"strings"
)

// A Route sends the topics that match a pattern to a destination. Of a list of
// routes the first match wins.
type Route struct {
	// Topics is a pattern of dotted parts: "*" matches one part, ">" at the end
	// matches one or more; anything else matches itself. ">" alone matches every
	// topic.
	Topics string
	// Transport takes the messages. Several routes may share one.
	Transport Transport
	// Destination is the transport's own name for where they go; empty: the topic.
	Destination string
	// Delivery overrides the relay's settings for this route, field by field.
	Delivery Delivery
}

// AllTo routes every topic to the destination of its own name.
func AllTo(t Transport) []Route { return []Route{{Topics: ">", Transport: t}} }

// checkPattern reports what is wrong with a topic pattern.
func checkPattern(pattern string) error {
	if pattern == "" {
		return fmt.Errorf("the topic pattern is empty; \">\" matches every topic")
	}
	parts := strings.Split(pattern, ".")
	for i, part := range parts {
		switch {
		case part == ">" && i != len(parts)-1:
			return fmt.Errorf("topic pattern %q: \">\" matches the rest, so it can only be the last part", pattern)
		case part != ">" && part != "*" && strings.ContainsAny(part, "*>"):
			return fmt.Errorf("topic pattern %q: \"*\" and \">\" stand for whole parts between dots", pattern)
		}
	}
	return nil
}

// matchTopic reports whether topic matches the pattern of a route.
func matchTopic(pattern, topic string) bool {
	if pattern == ">" {
		return true
	}
	for {
		p, restP, moreP := strings.Cut(pattern, ".")
		if p == ">" {
			return true
		}
		t, restT, moreT := strings.Cut(topic, ".")
		if p != "*" && p != t {
			return false
		}
		if !moreP || !moreT {
			return moreP == moreT
		}
		pattern, topic = restP, restT
	}
}
