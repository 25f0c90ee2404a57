package store

import (
	"cmp"
	"maps"
	"slices"
)

// aged keeps values by key, and in the order in which they were put.
type aged[V any] struct {
	entries map[string]agedEntry[V]
	// queue has the entries by age, the oldest first. One whose key has another
	// age by now, or none, is stale.
	queue []agedEntry[V]
	age   uint64 // of the newest entry ever
}

type agedEntry[V any] struct {
	key   string
	age   uint64
	value V
}

func (t *aged[V]) init() { t.entries = map[string]agedEntry[V]{} }

func (t *aged[V]) len() int { return len(t.entries) }

func (t *aged[V]) get(key string) V { return t.entries[key].value }

// put makes the value the newest of the table. Ages must grow from put to put.
func (t *aged[V]) put(key string, age uint64, value V) {
	e := agedEntry[V]{key, age, value}
	t.entries[key] = e
	t.queue = append(t.queue, e)
	t.age = max(t.age, age)
	if len(t.queue) > 2*len(t.entries)+staleEntries {
		t.queue = slices.DeleteFunc(t.queue, t.stale)
	}
}

// staleEntries is how many stale entries a small queue may have.
const staleEntries = 64

func (t *aged[V]) stale(e agedEntry[V]) bool { return t.entries[e.key].age != e.age }

func (t *aged[V]) drop(key string) { delete(t.entries, key) }

// byAge returns the entries, the oldest first.
func byAge[V any](entries map[string]agedEntry[V]) []agedEntry[V] {
	return slices.SortedFunc(maps.Values(entries), func(a, b agedEntry[V]) int { return cmp.Compare(a.age, b.age) })
}
