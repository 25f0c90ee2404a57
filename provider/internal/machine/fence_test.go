package machine

import (
	"maps"
	"math"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// TestMarks holds Marks to a map, and to its promise never to change in place.
func TestMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var marks Marks
		want := map[string]Mark{}
		for range rapid.IntRange(0, 30).Draw(t, "writes") {
			shard := rapid.StringMatching(`[a-c]{0,2}`).Draw(t, "shard")
			mark := Mark{rapid.Int64().Draw(t, "epoch"), rapid.Int64().Draw(t, "sequence")}
			before, kept := marks, slices.Clone(marks)
			marks = marks.With(shard, mark)
			want[shard] = mark
			if !slices.Equal(before, kept) {
				t.Fatalf("With changed the marks that it was called on: %v, they were %v", before, kept)
			}
		}
		if _, ok := marks.Of("no such shard"); ok {
			t.Error("a shard without a mark has one")
		}
		for shard, mark := range want {
			if got, ok := marks.Of(shard); !ok || got != mark {
				t.Errorf("shard %q: %v, %v; want %v", shard, got, ok, mark)
			}
		}
		var shards []string
		for _, m := range marks {
			shards = append(shards, m.Shard)
		}
		if !slices.Equal(shards, slices.Sorted(maps.Keys(want))) {
			t.Errorf("shards %q", shards)
		}
	})
}

// TestAdmits: of two tokens the one with the higher epoch is newer, of one epoch
// the one with the higher sequence, over the whole range of both.
func TestAdmits(t *testing.T) {
	numbers := []int64{math.MinInt64, math.MinInt64 + 1, -2, -1, 0, 1, 2, math.MaxInt64 - 1, math.MaxInt64}
	var tokens []Mark // in ascending order
	for _, epoch := range numbers {
		for _, sequence := range numbers {
			tokens = append(tokens, Mark{epoch, sequence})
		}
	}
	for i, mark := range tokens {
		for j, token := range tokens {
			if got := mark.Admits(Fence{"s", token.Epoch, token.Sequence}); got != (j > i) {
				t.Errorf("mark %v admits %v: %v", mark, token, got)
			}
		}
	}
	for _, f := range []Fence{{"", -1, 0}, {"", 0, -1}, {"", 0, math.MinInt64}, {"s", 0, 0}} {
		if f.Empty() {
			t.Errorf("%v is taken for no token", f)
		}
	}
}

// TestRecordSize keeps a hundred thousand records from growing unnoticed: past
// 288 bytes the allocator gives each 320.
func TestRecordSize(t *testing.T) {
	if got := unsafe.Sizeof(Record{}); got > 288 {
		t.Errorf("a Record has %d bytes, more than 288", got)
	}
}
