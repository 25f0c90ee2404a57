package store

import (
	"container/list"

	"bigfleet-providers/provider/internal/machine"
)

// Bounds of the fencing marks of ids that no machine has: calls with made-up
// ids must not grow the file.
const (
	maxUnknownIDs   = 4096
	maxUnknownMarks = 16384 // of all those ids together
)

// markTable keeps the fencing marks of ids that no machine has, the oldest
// write first.
type markTable struct {
	ids   map[string]*list.Element
	order *list.List // of *markEntry
	total int        // marks in all entries
	age   uint64     // of the newest entry ever
}

type markEntry struct {
	id    string
	age   uint64
	marks map[string]machine.Mark
}

func (t *markTable) init() { t.ids, t.order = map[string]*list.Element{}, list.New() }

func (t *markTable) len() int { return len(t.ids) }

func (t *markTable) get(id string) map[string]machine.Mark {
	if e := t.ids[id]; e != nil {
		return e.Value.(*markEntry).marks
	}
	return nil
}

// put makes the marks the newest of the table. Ages must grow from put to put.
func (t *markTable) put(id string, age uint64, marks map[string]machine.Mark) {
	t.drop(id)
	t.ids[id] = t.order.PushBack(&markEntry{id, age, marks})
	t.total += len(marks)
	t.age = max(t.age, age)
}

func (t *markTable) drop(id string) {
	if e := t.ids[id]; e != nil {
		t.total -= len(e.Value.(*markEntry).marks)
		t.order.Remove(e)
		delete(t.ids, id)
	}
}

// evictions returns the oldest ids that must go to keep the bounds once the
// changes are in. An id that a change touches is new, and stays.
func (t *markTable) evictions(changes map[string]*change) []string {
	ids, total := len(t.ids), t.total
	for id, c := range changes {
		if old := t.get(id); old != nil {
			ids--
			total -= len(old)
		}
		if c.rec == nil && len(c.marks) > 0 {
			ids++
			total += len(c.marks)
		}
	}
	var out []string
	for e := t.order.Front(); e != nil && (ids > maxUnknownIDs || total > maxUnknownMarks); e = e.Next() {
		entry := e.Value.(*markEntry)
		if changes[entry.id] != nil {
			continue
		}
		out = append(out, entry.id)
		ids--
		total -= len(entry.marks)
	}
	return out
}
