package store

import (
	"sync"

	"bigfleet-providers/provider/internal/machine"
)

// maxGenerations bounds the slots whose generation is remembered, to some 30 MB
// of file and memory. Whoever still holds an id that is forgotten has not looked
// at the list for that many failures.
const maxGenerations = 200_000

// generations is what is remembered of the slots whose earlier ids must not
// come back, once no machine says so: the generation that may come next. Only
// the committer writes. It may read without the lock; all others take it.
type generations struct {
	mu sync.RWMutex
	aged[int]
	limit int
}

func (g *generations) init() {
	g.aged.init()
	g.limit = maxGenerations
}

// Generation is the lowest generation of the machine that may fill the slot
// next, as far as those that were removed from it tell: above every FAILED one's.
// 1 if nothing is remembered. It knows of a removal when Get and Records do.
func (s *Store) Generation(slot string) int {
	s.generations.mu.RLock()
	defer s.generations.mu.RUnlock()
	return max(1, s.generations.get(slot))
}

// remember adds to the batch what must outlive a machine that it removes.
func (s *Store) remember(b *batch, removed machine.Record) {
	slot, generation := removed.Following()
	if generation <= max(1, s.generations.get(slot), b.generations[slot].value) {
		return
	}
	if b.generations == nil {
		b.generations = map[string]agedEntry[int]{}
	}
	b.generationAge++
	b.generations[slot] = agedEntry[int]{slot, b.generationAge, generation}
}

// evict chooses the slots that must be forgotten to keep the bound once those of
// the batch are in.
func (g *generations) evict(b *batch) {
	b.remembered, b.forgotten = g.len(), nil
	for slot := range b.generations {
		if _, ok := g.entries[slot]; !ok {
			b.remembered++
		}
	}
	for _, e := range g.queue {
		if b.remembered <= g.limit {
			break
		}
		if _, again := b.generations[e.key]; again || g.stale(e) {
			continue
		}
		b.forgotten = append(b.forgotten, e.key)
		b.remembered--
	}
}

// publish puts a committed batch in place.
func (g *generations) publish(b *batch) {
	if len(b.generations) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, slot := range b.forgotten {
		g.drop(slot)
	}
	for _, e := range byAge(b.generations) {
		g.put(e.key, e.age, e.value)
	}
}
