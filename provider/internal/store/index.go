package store

import (
	"sync"

	"github.com/tidwall/btree"

	"bigfleet-providers/provider/internal/machine"
)

// index is the committed state as readers see it: machines by id, and by
// revision within each state, so that a List costs what it returns, whatever its
// filter and wherever it begins.
//
// Only the committer writes. It may read without the lock; all others take it.
type index struct {
	mu    sync.RWMutex
	ids   map[string]int32
	slots []slot
	free  []int32 // slots without a machine
	// orders are the machines of each state, in ascending order of revision.
	orders [states]*btree.BTreeG[place]
	head   uint64 // the last revision given out
	tally  tally

	starts starts
}

// states is the number of states, Unknown included.
const states = machine.Failed + 1

// slot is one machine's place. What rec and view point to is never changed.
type slot struct {
	rec      *machine.Record
	view     []byte
	revision uint64
	state    machine.State
}

// place is where the machine of a revision is found.
type place struct {
	revision uint64
	slot     int32
}

func (x *index) init() {
	x.ids = map[string]int32{}
	x.tally = tally{}
	for state := range x.orders {
		x.orders[state] = btree.NewBTreeGOptions(func(a, b place) bool { return a.revision < b.revision }, btree.Options{NoLocks: true})
	}
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
	x.ascend(everyState, span{0, endless}, func(s *slot) bool {
		out = append(out, s.rec)
		return true
	})
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

// put sets a machine.
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
	moved := !ok || s.revision != rec.Revision || s.state != rec.State
	if ok && moved {
		x.orders[s.state].Delete(place{revision: s.revision})
	}
	x.tally.replace(s.rec, rec)
	*s = slot{rec, view, rec.Revision, rec.State}
	x.ids[id] = i
	if moved {
		x.orders[rec.State].Load(place{rec.Revision, i}) // Set, and quicker at the end
	}
}

func (x *index) remove(id string) {
	i, ok := x.ids[id]
	if !ok {
		return
	}
	s := &x.slots[i]
	x.orders[s.state].Delete(place{revision: s.revision})
	delete(x.ids, id)
	x.tally.replace(s.rec, nil)
	*s = slot{}
	x.free = append(x.free, i)
}

// count is how many machines are in one of the states.
func (x *index) count(in stateSet) (n int) {
	for state, order := range x.orders {
		if in.has(machine.State(state)) {
			n += order.Len()
		}
	}
	return n
}

// at returns the revision of the nth machine in one of the states, one state
// after the other.
func (x *index) at(in stateSet, n int) uint64 {
	for state, order := range x.orders {
		if !in.has(machine.State(state)) {
			continue
		}
		if n < order.Len() {
			p, _ := order.GetAt(n)
			return p.revision
		}
		n -= order.Len()
	}
	return 0
}

// ascend calls yield with the machines of the span in one of the states, in
// ascending order of revision, until yield returns false; that is what it
// returns then.
func (x *index) ascend(in stateSet, within span, yield func(*slot) bool) bool {
	var orders []btree.IterG[place]
	for state, order := range x.orders {
		if !in.has(machine.State(state)) || order.Len() == 0 {
			continue
		}
		if it := order.Iter(); it.Seek(place{revision: within.after + 1}) {
			orders = append(orders, it)
		}
	}
	for len(orders) > 0 {
		next := 0
		for i := range orders[1:] {
			if orders[i+1].Item().revision < orders[next].Item().revision {
				next = i + 1
			}
		}
		p := orders[next].Item()
		if p.revision > within.to {
			return true
		}
		if !yield(&x.slots[p.slot]) {
			return false
		}
		if !orders[next].Next() {
			orders[next] = orders[len(orders)-1]
			orders = orders[:len(orders)-1]
		}
	}
	return true
}
