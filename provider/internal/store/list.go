package store

import (
	"math"

	"bigfleet-providers/provider/internal/machine"
)

// Filter selects machines.
type Filter struct {
	// States is a union; empty means every state. States that do not exist match
	// nothing.
	States []machine.State
	// Max caps the page; 0 or less means no cap.
	Max int
	// Since is the Revision of an earlier page: only machines that it and the pages
	// before it did not show, or that changed since, are returned. Empty, or one
	// that this store did not make, means all.
	Since []byte
}

// Page is the answer to a List.
type Page struct {
	// Views are the machines in ascending order of their last visible change; a
	// page that Max caps may begin anywhere in that order, and go on with the
	// longest unchanged after the last. The bytes are shared: never to be changed.
	Views [][]byte
	// Revision, as Filter.Since, continues where the page ends: behind its last
	// machine when Max cut it, else at the present.
	Revision []byte
}

// List returns machines of one consistent state. It never waits for a commit.
//
// A capped List without a cursor begins behind the machines that the one before
// it with the same filter showed: callers who each ask for one machine get
// different ones. Such a walk reads to the newest machine, then from the oldest to
// where it began, then what changed meanwhile.
func (s *Store) List(f Filter) Page {
	in, most := setOf(f.States), f.Max
	if most <= 0 {
		most = math.MaxInt
	}
	_, head := s.index.sizes()
	left, ok := s.decodeCursor(f.Since, head)
	var p part
	switch {
	case ok:
		p = s.index.list(in, most, left)
	case most == math.MaxInt:
		p = s.index.list(in, most, []span{{0, endless}})
	default:
		p = s.index.begin(in, most)
	}
	return Page{Views: p.views, Revision: s.cursor(p.left)}
}

// stateSet is a set of states.
type stateSet uint16

// everyState is the filter that names none.
const everyState = stateSet(1<<states - 1)

// setOf turns a filter into a set. No machine is in state Unknown.
func setOf(filter []machine.State) stateSet {
	if len(filter) == 0 {
		return everyState
	}
	var in stateSet
	for _, s := range filter {
		if s >= 0 && s < states {
			in |= 1 << s
		}
	}
	return in
}

func (in stateSet) has(s machine.State) bool { return in>>s&1 == 1 }
