package contract

import (
	"fmt"
	"math"
	"strings"
)

// mostEvents is how many events of one machine explain can take: it keeps sets
// of them in a word.
const mostEvents = 64

// explain looks for an order of the events in which each answer is right, and
// that nobody could tell from what happened: an event that was answered before
// another was sent comes first. It returns an error if there is none.
func explain(lives []life, events []event) error {
	if len(events) > mostEvents {
		return fmt.Errorf("%d events, at most %d can be explained", len(events), mostEvents)
	}
	search := search{events: events, dead: map[position]bool{}}
	for _, l := range lives {
		if search.from(position{0, l}) {
			return nil
		}
	}
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\n%4d-%-4d %v", e.from, e.to, e)
	}
	return fmt.Errorf("no order explains the answers; %d events in their best order end with %s:%s", search.most, search.state, b.String())
}

// position is a set of events that happened and what the machine is after them.
type position struct {
	done uint64
	life life
}

type search struct {
	events []event
	dead   map[position]bool // nothing that follows explains the rest

	most  int // how far the search came, for the message
	state string
}

func (s *search) from(p position) bool {
	if s.dead[p] {
		return false
	}
	limit, count := int64(math.MaxInt64), 0
	for i, e := range s.events {
		if p.done&(1<<i) == 0 {
			limit = min(limit, e.to)
		} else {
			count++
		}
	}
	if count == len(s.events) {
		return true
	}
	if count >= s.most {
		s.most, s.state = count, p.life.state.String()
	}
	for i, e := range s.events {
		if p.done&(1<<i) != 0 || e.from > limit {
			continue
		}
		if after, err := p.life.after(e); err == nil && s.from(position{p.done | 1<<i, after}) {
			return true
		}
	}
	if settled, moving := p.life.settled(); moving && s.from(position{p.done, settled}) {
		return true
	}
	s.dead[p] = true
	return false
}
