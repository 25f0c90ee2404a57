package store

import (
	"slices"

	"bigfleet-providers/provider/internal/machine"
)

// Bounds of the fencing marks of ids that no machine has: calls with made-up
// ids must not grow the file.
const (
	maxUnknownIDs   = 4096
	maxUnknownMarks = 16384 // of all those ids together
)

// markTable keeps the fencing marks of ids that no machine has.
type markTable struct {
	ids map[string]markEntry
	// queue has the entries by age, the oldest first. One whose id has another
	// age by now, or none, is stale.
	queue []markEntry
	total int    // marks of all ids
	age   uint64 // of the newest entry ever
}

// markEntry is one id's marks as they were written at an age.
type markEntry struct {
	id    string
	age   uint64
	marks map[string]machine.Mark
}

func (t *markTable) init() { t.ids = map[string]markEntry{} }

func (t *markTable) len() int { return len(t.ids) }

func (t *markTable) get(id string) map[string]machine.Mark { return t.ids[id].marks }

// put makes the marks the newest of the table. Ages must grow from put to put.
func (t *markTable) put(id string, age uint64, marks map[string]machine.Mark) {
	t.drop(id)
	e := markEntry{id, age, marks}
	t.ids[id] = e
	t.queue = append(t.queue, e)
	t.total += len(marks)
	t.age = max(t.age, age)
	if len(t.queue) > 2*maxUnknownIDs {
		t.queue = slices.DeleteFunc(t.queue, t.stale)
	}
}

func (t *markTable) stale(e markEntry) bool { return t.ids[e.id].age != e.age }

func (t *markTable) drop(id string) {
	t.total -= len(t.ids[id].marks)
	delete(t.ids, id)
}

// evictions returns the oldest ids that must go to keep the bounds once the
// changes are in. An id that a change touches is new, and stays.
func (t *markTable) evictions(changes map[string]*change) []string {
	ids, total := len(t.ids), t.total
	for id, c := range changes {
		if old, ok := t.ids[id]; ok {
			ids--
			total -= len(old.marks)
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
		if changes[e.id] != nil || t.stale(e) {
			continue
		}
		out = append(out, e.id)
		ids--
		total -= len(e.marks)
	}
	return out
}
