package rabbitmq

import (
	"sync"

	"github.com/outward-dev/outward/engine"
)

// maxSuspects bounds what is remembered; past it the oldest knowledge is as good
// to lose as any, since a message that offends again becomes a suspect again.
const maxSuspects = 20_000

// suspects are ids of messages of which one made the broker close a channel or a
// connection. The broker doesn't say which, so each is sent alone the next time:
// whoever is then refused is the one, and the others are delivered.
type suspects struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (s *suspects) add(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]struct{}{}
	}
	for _, id := range ids {
		for old := range s.ids {
			if len(s.ids) < maxSuspects {
				break
			}
			delete(s.ids, old)
		}
		s.ids[id] = struct{}{}
	}
}

func (s *suspects) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

func (s *suspects) has(id engine.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ids) == 0 {
		return false // nearly always; the text of the id would have to be made first
	}
	_, ok := s.ids[id.String()]
	return ok
}
