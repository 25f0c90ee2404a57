package store

import (
	"sync"

	"bigfleet-providers/provider/internal/machine"
)

// index is the committed state as readers see it: machines by id, and a list of
// them in ascending order of revision. The list runs through an array of slots,
// so that it costs 8 bytes a machine and no allocation to move one to its end.
//
// Only the committer writes. It may read without the lock; all others take it.
type index struct {
	mu             sync.RWMutex
	ids            map[string]int32
	slots          []slot
	free           []int32 // slots without a machine
	oldest, newest int32   // the ends of the list
	head           uint64  // the last revision given out
	tally          tally
}

// slot is one machine's place. What rec and view point to is never changed.
type slot struct {
	rec        *machine.Record
	view       []byte
	revision   uint64
	state      machine.State
	prev, next int32
}

// none is the index of no slot.
const none int32 = -1

func (x *index) init() {
	x.ids = map[string]int32{}
	x.oldest, x.newest = none, none
	x.tally = tally{}
}

// reserve makes room for so many machines in an index without any.
func (x *index) reserve(machines int) {
	x.ids = make(map[string]int32, machines)
	x.slots = make([]slot, 0, machines)
}

// lookup is the committer's own.
func (x *index) lookup(id string) (*machine.Record, []byte) {
	i, ok := x.ids[id]
	if !ok {
		return nil, nil
	}
	return x.slots[i].rec, x.slots[i].view
}

func (x *index) get(id string) (machine.Record, []byte, bool) {
	x.mu.RLock()
	rec, view := x.lookup(id)
	x.mu.RUnlock()
	if rec == nil {
		return machine.Record{}, nil, false
	}
	return *rec, view, true
}

func (x *index) sizes() (machines int, head uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.ids), x.head
}

func (x *index) records() []*machine.Record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := make([]*machine.Record, 0, len(x.ids))
	for i := x.oldest; i != none; i = x.slots[i].next {
		out = append(out, x.slots[i].rec)
	}
	return out
}

// publish puts a committed and sorted batch in place.
func (x *index) publish(b *batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range b.order {
		if c.rec == nil {
			x.remove(c.id)
		} else {
			x.put(c.id, c.rec, c.view)
		}
	}
	x.head = b.head
}

// put sets a machine; with a new revision it moves to the end of the list.
func (x *index) put(id string, rec *machine.Record, view []byte) {
	i, ok := x.ids[id]
	switch {
	case !ok && len(x.free) > 0:
		i = x.free[len(x.free)-1]
		x.free = x.free[:len(x.free)-1]
	case !ok:
		i = int32(len(x.slots))
		x.slots = append(x.slots, slot{})
	}
	s := &x.slots[i]
	moved := !ok || s.revision != rec.Revision
	if ok && moved {
		x.unlink(i)
	}
	x.tally.replace(s.rec, rec)
	s.rec, s.view, s.revision, s.state = rec, view, rec.Revision, rec.State
	x.ids[id] = i
	if moved {
		x.link(i)
	}
}

func (x *index) remove(id string) {
	i, ok := x.ids[id]
	if !ok {
		return
	}
	x.unlink(i)
	delete(x.ids, id)
	x.tally.replace(x.slots[i].rec, nil)
	x.slots[i] = slot{}
	x.free = append(x.free, i)
}

// link adds the slot at the end of the list.
func (x *index) link(i int32) {
	s := &x.slots[i]
	s.prev, s.next = x.newest, none
	if x.newest == none {
		x.oldest = i
	} else {
		x.slots[x.newest].next = i
	}
	x.newest = i
}

func (x *index) unlink(i int32) {
	s := &x.slots[i]
	if s.prev == none {
		x.oldest = s.next
	} else {
		x.slots[s.prev].next = s.next
	}
	if s.next == none {
		x.newest = s.prev
	} else {
		x.slots[s.next].prev = s.prev
	}
}

// after returns the first slot in the list with a revision above the given one.
// It walks from both ends at once: the cost is that of the shorter way, be it a
// small delta or one of the first pages of many.
func (x *index) after(revision uint64) int32 {
	for f, b := x.oldest, x.newest; f != none; f, b = x.slots[f].next, x.slots[b].prev {
		if x.slots[f].revision > revision {
			return f
		}
		if x.slots[b].revision <= revision {
			return x.slots[b].next
		}
	}
	return none
}
