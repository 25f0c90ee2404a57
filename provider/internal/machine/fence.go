package machine

import (
	"slices"
	"strings"
)

// Fence is the fencing token of a mutating call: which shard sends it, in which
// of its reigns, as which of its calls.
type Fence struct {
	Shard    string
	Epoch    int64
	Sequence int64
}

// Empty says that the call carries no token and is not fenced.
func (f Fence) Empty() bool { return f == Fence{} }

// Mark is the newest token that was accepted from one shard for one machine.
type Mark struct {
	Epoch    int64
	Sequence int64
}

// Admits says whether the token is strictly newer than the mark: a higher
// epoch, or the same epoch and a higher sequence. Negative numbers are numbers.
func (m Mark) Admits(f Fence) bool {
	if f.Epoch != m.Epoch {
		return f.Epoch > m.Epoch
	}
	return f.Sequence > m.Sequence
}

// ShardMark is the mark of one shard.
type ShardMark struct {
	Shard string
	Mark
}

// Marks are one machine's marks, in the order of the shards' ids. They are
// never changed in place: records share them.
type Marks []ShardMark

// Of returns the shard's mark; false when it has none.
func (m Marks) Of(shard string) (Mark, bool) {
	i, found := m.find(shard)
	if !found {
		return Mark{}, false
	}
	return m[i].Mark, true
}

// With returns the marks with the shard's mark set.
func (m Marks) With(shard string, mark Mark) Marks {
	i, found := m.find(shard)
	if found {
		next := slices.Clone(m)
		next[i].Mark = mark
		return next
	}
	next := make(Marks, 0, len(m)+1)
	next = append(next, m[:i]...)
	next = append(next, ShardMark{shard, mark})
	return append(next, m[i:]...)
}

func (m Marks) find(shard string) (int, bool) {
	return slices.BinarySearchFunc(m, shard, func(e ShardMark, shard string) int { return strings.Compare(e.Shard, shard) })
}
