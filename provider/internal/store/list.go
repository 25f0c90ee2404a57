package store

import (
	"bigfleet-providers/provider/internal/machine"
)

// Filter selects machines.
type Filter struct {
	// States is a union; empty means every state. States that do not exist match
	// nothing.
	States []machine.State
	// Max caps the page; 0 or less means no cap.
	Max int
	// Since is the Revision of an earlier page: only machines that changed after
	// it are returned. Empty, or one that this store did not make, means all.
	Since []byte
}

// Page is the answer to a List.
type Page struct {
	// Views are the machines in ascending order of their last visible change.
	// The bytes are shared: never to be changed.
	Views [][]byte
	// Revision, as Filter.Since, continues where the page ends: behind its last
	// machine when Max cut it, else at the present.
	Revision []byte
}

// List returns machines of one consistent state. It never waits for a commit.
func (s *Store) List(f Filter) Page {
	since, ok := s.revision(f.Since)
	views, revision := s.index.list(mask(f.States), f.Max, since, ok)
	return Page{Views: views, Revision: s.cursor(revision)}
}

// mask turns states into a set. No machine is in state Unknown, so its bit
// makes a filter of nothing but states that do not exist match nothing.
func mask(states []machine.State) uint64 {
	if len(states) == 0 {
		return ^uint64(0)
	}
	m := uint64(1) << machine.Unknown
	for _, s := range states {
		if s >= 0 && s < 64 {
			m |= 1 << s
		}
	}
	return m
}

// list collects under the read lock, so that all it returns is of one revision;
// the views are encoded already and are not touched.
func (x *index) list(states uint64, most int, since uint64, delta bool) ([][]byte, uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	start := x.oldest
	var views [][]byte
	switch {
	case delta && since <= x.head: // a future revision is not ours
		start = x.after(since)
	case states == ^uint64(0):
		n := len(x.ids)
		if most > 0 {
			n = min(n, most)
		}
		views = make([][]byte, 0, n)
	}
	last := x.head
	for i := start; i != none; i = x.slots[i].next {
		s := &x.slots[i]
		if states>>s.state&1 == 0 {
			continue
		}
		if most > 0 && len(views) == most {
			return views, last
		}
		views = append(views, s.view)
		if most > 0 {
			last = s.revision
		}
	}
	return views, x.head
}
