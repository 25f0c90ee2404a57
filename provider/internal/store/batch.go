package store

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// change is the newest state of one id within a batch.
type change struct {
	id   string
	rec  *machine.Record // nil: no machine has the id
	view []byte
	data []byte // the encoded record, or the encoded marks; nil to remove both
	// marks are kept for an id without a machine; age orders them.
	marks machine.Marks
	age   uint64
	// was says that a machine had the id before the batch.
	was bool
}

// batch is what one transaction commits. Its changes lie over the committed
// state: a later decision of the batch sees what an earlier one did.
type batch struct {
	requests []*request
	changes  map[string]*change
	order    []*change // in the order of first touch until sorted
	evicted  []string  // ids whose marks make room
	// generations is what must be remembered of slots that lose a machine,
	// forgotten the slots that make room for them.
	generations   map[string]agedEntry[int]
	generationAge uint64 // the last age given out
	forgotten     []string
	remembered    int    // slots, with the batch
	head          uint64 // the last revision given out
	age           uint64 // the last age given out
	machines      int
	added         int  // of them
	bytes         int  // encoded, of all requests
	listed        bool // the head or the number of machines changed
	// inventoried is when the state became so; zero if the batch does not change that.
	inventoried time.Time
	// ownership is to replace the state's, nil for no change of it.
	ownership *machine.Ownership
}

func (s *Store) newBatch() *batch {
	machines, head := s.index.sizes()
	return &batch{changes: map[string]*change{}, head: head, age: s.marks.age, generationAge: s.generations.age, machines: machines}
}

// current returns the newest state of an id.
func (s *Store) current(b *batch, id string) *change {
	if c := b.changes[id]; c != nil {
		return c
	}
	if rec, view := s.index.lookup(id); rec != nil {
		return &change{id: id, rec: rec, view: view, was: true}
	}
	return &change{id: id, marks: s.marks.get(id)}
}

// record is the change as a mutation sees it.
func (c *change) record() machine.Record {
	if c.rec != nil {
		return *c.rec
	}
	return machine.Record{ID: c.id, Marks: c.marks}
}

// stage runs a request over the batch. What it returns to its caller is set
// now, and sent once the batch is committed.
func (s *Store) stage(b *batch, r *request) {
	if !r.state.CompareAndSwap(queued, taken) {
		return
	}
	b.requests = append(b.requests, r)
	if !r.inventoried.IsZero() {
		b.inventoried = r.inventoried
	}
	if r.ownership != nil {
		b.ownership = r.ownership
	}
	if s.Err() != nil {
		return // the commit will say so
	}
	current := make([]*change, len(r.ids))
	in := make([]machine.Record, len(r.ids))
	for i, id := range r.ids {
		current[i] = s.current(b, id)
		in[i] = current[i].record()
	}
	out, err := r.mutate(in)
	r.recs, r.err = in, err
	if len(out) == 0 && err != nil {
		return
	}
	if len(out) != len(in) {
		r.recs, r.err = nil, fmt.Errorf("a change of %d machines returned %d", len(in), len(out))
		return
	}

	// All of the request's changes are made before any joins the batch: a
	// refused one must not leave half of a pair behind.
	next := make([]*change, len(out))
	head, age := b.head, b.age
	for i, n := range out {
		c, err := s.settle(current[i], n, &head, &age)
		if err != nil {
			r.recs, r.err = nil, err
			return
		}
		next[i] = c
	}
	recs := make([]machine.Record, len(out))
	for i, c := range next {
		if c == nil {
			recs[i] = in[i]
			continue
		}
		b.add(current[i], c)
		if removed := current[i].rec; removed != nil && c.rec == nil {
			s.remember(b, *removed)
		}
		recs[i] = c.record()
	}
	b.listed = b.listed || head != b.head
	b.head, b.age = head, age
	r.recs = recs
}

func (b *batch) add(from, to *change) {
	if from.rec != nil && to.rec == nil {
		b.machines--
		b.listed = true
	}
	if from.rec == nil && to.rec != nil {
		b.machines++
		b.added++
		b.listed = true
	}
	b.bytes += len(to.data)
	if old := b.changes[to.id]; old != nil {
		*old = *to
		return
	}
	b.changes[to.id] = to
	b.order = append(b.order, to)
}

// settle turns what a mutation returned into a change; nil when there is none.
func (s *Store) settle(cur *change, n machine.Next, head, age *uint64) (*change, error) {
	if n.Change == machine.Unchanged || n.Change == machine.Gone && cur.rec == nil {
		return nil, nil
	}
	if cur.id == "" || len(cur.id) > machine.MaxIDBytes {
		return nil, fmt.Errorf("machine id of %d bytes: it must have 1 to %d", len(cur.id), machine.MaxIDBytes)
	}
	next := &change{id: cur.id, was: cur.was}
	rec := n.Record
	rec.ID = cur.id

	if n.Change == machine.Gone || rec.State == machine.Unknown && cur.rec == nil {
		// The marks of a removed machine stay fenced like those of an id that
		// never was.
		next.marks = rec.Marks
		if n.Change == machine.Gone {
			next.marks = cur.record().Marks
		}
		if len(next.marks) > 0 {
			*age++
			next.age = *age
			return next, s.enc.marks(next)
		}
		if cur.rec == nil && len(cur.marks) == 0 {
			return nil, nil
		}
		return next, nil
	}
	if rec.State < machine.Speculative || rec.State > machine.Failed {
		return nil, fmt.Errorf("machine %q: a change left it in state %d; only Gone removes a machine", cur.id, rec.State)
	}

	next.rec, next.view = &rec, cur.view
	if cur.rec == nil {
		rec.Marks = withMarks(rec.Marks, cur.marks)
	} else {
		rec.Revision = cur.rec.Revision
	}
	// A machine that was not there is always a visible change: it needs a place
	// in the list.
	if n.Change == machine.Visible || cur.rec == nil {
		*head++
		rec.Revision = *head
		next.view = s.view(&rec)
	}
	if s.disk == nil {
		next.data = nil
		return next, nil
	}
	return next, s.enc.record(next)
}

// withMarks adds the marks that were kept for an id before it had a machine, so
// that whoever inserts it need not know of them. Of two the newer one counts.
func withMarks(marks, kept machine.Marks) machine.Marks {
	for _, k := range kept {
		m, ok := marks.Of(k.Shard)
		if !ok || m.Admits(machine.Fence{Shard: k.Shard, Epoch: k.Epoch, Sequence: k.Sequence}) {
			marks = marks.With(k.Shard, k.Mark)
		}
	}
	return marks
}

// sort puts the changes into the order in which they are published: what moves
// to the end of a list must arrive there by revision, or by age.
func (b *batch) sort() {
	slices.SortFunc(b.order, func(x, y *change) int {
		return cmp.Or(cmp.Compare(x.age, y.age), cmp.Compare(x.revision(), y.revision()))
	})
}

func (c *change) revision() uint64 {
	if c.rec == nil {
		return 0
	}
	return c.rec.Revision
}
