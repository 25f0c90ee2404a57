package store

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// span is the revisions above after, up to and with to.
type span struct{ after, to uint64 }

// endless is the end of a span that has the revisions to come too.
const endless = math.MaxUint64

// part is a part of a walk: what a page shows, and what is left behind it.
type part struct {
	views       [][]byte
	left        []span // in the order in which it is read; the last is endless
	first, last uint64 // revisions in views; 0 without any
	cut         bool   // by the page's limit
}

// starts is where the next walk of each filter begins. It is forgotten at exit.
type starts struct {
	mu   sync.Mutex
	next map[stateSet]uint64 // bounded by the number of filters
}

// begin reads the first page of a walk, which begins where others have not just
// begun: behind the last page that began with this filter or, when that showed
// everything, behind its first machine.
func (x *index) begin(in stateSet, most int) part {
	x.starts.mu.Lock()
	defer x.starts.mu.Unlock()
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.count(in)
	if n == 0 {
		return part{left: []span{{x.head, endless}}}
	}
	from, ok := x.starts.next[in]
	if !ok {
		// Anywhere, or the first walks of different filters would begin alike.
		from = x.at(in, rand.IntN(n)) - 1
	}
	// What changes meanwhile comes last: changes must not keep the walk from the rest.
	left := slices.DeleteFunc([]span{{from, x.head}, {0, from}, {x.head, endless}}, func(s span) bool { return s.after == s.to })
	p := x.read(in, most, left, min(n, most))
	if x.starts.next == nil {
		x.starts.next = map[stateSet]uint64{}
	}
	x.starts.next[in] = p.first
	if p.cut {
		x.starts.next[in] = p.last
	}
	return p
}

// list reads a page of what is left of a walk; all of it in ascending order.
func (x *index) list(in stateSet, most int, left []span) part {
	x.mu.RLock()
	defer x.mu.RUnlock()
	size := 0
	if most == math.MaxInt {
		slices.SortFunc(left, func(a, b span) int { return cmp.Compare(a.after, b.after) })
		if left[0].after == 0 && left[0].to == endless {
			size = x.count(in)
		}
	}
	return x.read(in, most, left, size)
}

// read collects under the read lock, so that all it returns is of one revision;
// the views are encoded already and are not touched. It stops before the first
// machine that the page has no room for.
func (x *index) read(in stateSet, most int, left []span, size int) part {
	p := part{views: make([][]byte, 0, size)}
	for i, s := range left {
		reached := s.after
		p.cut = !x.ascend(in, s, func(m *slot) bool {
			if len(p.views) == most {
				return false
			}
			p.views = append(p.views, m.view)
			reached, p.last = m.revision, m.revision
			if p.first == 0 {
				p.first = m.revision
			}
			return true
		})
		if p.cut {
			p.left = append([]span{{reached, s.to}}, left[i+1:]...)
			return p
		}
	}
	p.left = []span{{x.head, endless}}
	return p
}
