package store

import "bigfleet-providers/provider/internal/machine"

// Bounds of the fencing marks of ids that no machine has: calls with made-up
// ids must not grow the file.
const (
	maxUnknownIDs   = 4096
	maxUnknownMarks = 16384 // of all those ids together
)

// markTable keeps the fencing marks of ids that no machine has.
type markTable struct {
	aged[machine.Marks]
	total int // marks of all ids
}

// put makes the marks the newest of the table. Ages must grow from put to put.
func (t *markTable) put(id string, age uint64, marks machine.Marks) {
	t.drop(id)
	t.aged.put(id, age, marks)
	t.total += len(marks)
}

func (t *markTable) drop(id string) {
	t.total -= len(t.get(id))
	t.aged.drop(id)
}

// evictions returns the oldest ids that must go to keep the bounds once the
// changes are in. An id that a change touches is new, and stays.
func (t *markTable) evictions(changes map[string]*change) []string {
	ids, total := t.len(), t.total
	for id, c := range changes {
		if old, ok := t.entries[id]; ok {
			ids--
			total -= len(old.value)
		}
		if c.rec == nil && len(c.marks) > 0 {
			ids++
			total += len(c.marks)
		}
	}
	var out []string
	for _, e := range t.queue {
		if ids <= maxUnknownIDs && total <= maxUnknownMarks {
			break
		}
		if changes[e.key] != nil || t.stale(e) {
			continue
		}
		out = append(out, e.key)
		ids--
		total -= len(e.value)
	}
	return out
}
