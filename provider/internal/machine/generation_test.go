package machine

import (
	"strings"
	"testing"
)

func TestLineage(t *testing.T) {
	for _, tc := range []struct {
		id, slot   string
		generation int
	}{
		{"p-dev1-s-0001", "p-dev1-s-0001", 1},
		{"p-dev1-s-0001-r2", "p-dev1-s-0001", 2},
		{"p-dev1-s-0001-r10", "p-dev1-s-0001", 10},
		{"a-r2-r3", "a-r2", 3},
		{"a-r999999999", "a", 999999999},
	} {
		slot, generation := Lineage(tc.id)
		if slot != tc.slot || generation != tc.generation {
			t.Errorf("Lineage(%q) = %q, %d, want %q, %d", tc.id, slot, generation, tc.slot, tc.generation)
		}
		if got := IDOf(slot, generation); got != tc.id {
			t.Errorf("IDOf(%q, %d) = %q, want %q", slot, generation, got, tc.id)
		}
	}
	// What no generation has for a name is a slot's own, whatever it looks like.
	for _, id := range []string{"", "-r2", "a-r", "a-r0", "a-r1", "a-r02", "a-r+2", "a-r-2", "a-r2x", "a-r1000000000", "a-r" + strings.Repeat("9", 40)} {
		if slot, generation := Lineage(id); slot != id || generation != 1 {
			t.Errorf("Lineage(%q) = %q, %d", id, slot, generation)
		}
	}
}

func TestFollowing(t *testing.T) {
	for state := Speculative; state <= Failed; state++ {
		for id, generation := range map[string]int{"a": 1, "a-r7": 7} {
			want := generation
			if state == Failed {
				want++
			}
			if slot, got := (Record{ID: id, Slot: "a", State: state}).Following(); slot != "a" || got != want {
				t.Errorf("after %s in %s: %q, %d, want %d", id, state, slot, got, want)
			}
		}
	}
}
