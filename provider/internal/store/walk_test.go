package store

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/machine"
)

// ids are the machines of a page.
func ids(p Page) []string {
	out := make([]string, len(p.Views))
	for i, v := range texts(p) {
		out[i], _, _ = strings.Cut(v, " ")
	}
	return out
}

// TestCallersGetDifferentMachines: callers who each ask for one machine at the
// same time get one each, also where few of many match.
func TestCallersGetDifferentMachines(t *testing.T) {
	s := start(t, "")
	for i := range 500 {
		state := machine.Configured
		if i%50 == 7 {
			state = machine.Speculative
		}
		must(t, s, fmt.Sprintf("m-%03d", i), to(state))
	}
	for _, most := range []int{1, 2, 3} {
		var mu sync.Mutex
		got := map[string]int{}
		inParallel(t, 30, func(int) error {
			page := ids(s.List(Filter{Max: most, States: []machine.State{machine.Speculative}}))
			mu.Lock()
			defer mu.Unlock()
			for _, id := range page {
				got[id]++
			}
			return nil
		})
		want := map[string]int{}
		for i := 7; i < 500; i += 50 {
			want[fmt.Sprintf("m-%03d", i)] = 3 * most
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("how often each came to callers of %d (-want +got):\n%s", most, d)
		}
	}
	// A page with all of them begins elsewhere, too.
	first := ids(s.List(Filter{Max: 10, States: []machine.State{machine.Speculative}}))
	second := ids(s.List(Filter{Max: 10, States: []machine.State{machine.Speculative}}))
	if len(first) != 10 || len(second) != 10 || first[0] == second[0] {
		t.Errorf("pages of all: %v, %v", first, second)
	}
	if p := s.List(Filter{Max: 1, States: []machine.State{machine.Failed}}); len(p.Views) != 0 {
		t.Errorf("a page of nothing has %v", ids(p))
	}
}

// TestWalkWraps: a walk shows each machine once, begins anywhere, ends where it
// began and goes on with what changed meanwhile, over a restart.
func TestWalkWraps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s := start(t, path)
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("m-%02d", i))
		must(t, s, all[i], to(machine.Idle))
	}
	next := func(since []byte, most int) ([]string, []byte) {
		t.Helper()
		p := s.List(Filter{Max: most, Since: since})
		return ids(p), p.Revision
	}
	for range 7 { // begin at several places
		head := s.List(Filter{}).Revision
		got, cursor := next(nil, 3)
		if len(got) != 3 {
			t.Fatalf("first page %v", got)
		}
		// One that came and one that was to come.
		rest := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return slices.Contains(got, id) })
		changed := []string{got[1], rest[len(rest)/2]}
		for _, id := range changed {
			must(t, s, id, to(machine.Idle))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = start(t, path)

		// What is left, at once, is in the order of the last change.
		left, _ := next(cursor, 0)
		listed, _ := next(nil, 0)
		want := slices.DeleteFunc(listed, func(id string) bool { return slices.Contains(got, id) && id != changed[0] })
		if d := cmp.Diff(want, left); d != "" {
			t.Errorf("the rest without a cap (-want +got):\n%s", d)
		}
		for {
			var page []string
			if page, cursor = next(cursor, 4); len(page) == 0 {
				break
			}
			got = append(got, page...)
		}
		if d := cmp.Diff(changed, got[len(got)-2:]); d != "" {
			t.Errorf("the walk ends with what changed (-want +got):\n%s", d)
		}
		slices.Sort(got)
		want = slices.Sorted(slices.Values(append(slices.Clone(all), changed[0])))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("the whole walk (-want +got):\n%s", d)
		}
		if now := s.List(Filter{}).Revision; !cmp.Equal(now, cursor) || cmp.Equal(now, head) {
			t.Error("the walk does not end at the head")
		}
	}
}

// TestChurnDoesNotHoldUpAWalk: machines that change all the time come after those
// that do not.
func TestChurnDoesNotHoldUpAWalk(t *testing.T) {
	s := start(t, "")
	for i := range 10 {
		must(t, s, fmt.Sprintf("still-%d", i), to(machine.Idle))
	}
	got := map[string]bool{}
	var since []byte
	for i := range 12 {
		must(t, s, fmt.Sprintf("busy-%d", i%2), to(machine.Idle))
		p := s.List(Filter{Max: 1, Since: since})
		since = p.Revision
		got[ids(p)[0]] = true
	}
	for i := range 10 {
		if id := fmt.Sprintf("still-%d", i); !got[id] {
			t.Errorf("%s did not come in 12 pages", id)
		}
	}
}

// TestCursorsOfTheFirstRelease: a cursor of 28 bytes says after which change to
// go on, in whichever order the pages before it came.
func TestCursorsOfTheFirstRelease(t *testing.T) {
	s := start(t, "")
	for _, id := range []string{"a", "b", "c"} {
		must(t, s, id, to(machine.Idle))
	}
	old := s.cursor([]span{{1, endless}})
	if len(old) != 28 {
		t.Fatalf("%d bytes", len(old))
	}
	for _, most := range []int{0, 2, 5} {
		if got := ids(s.List(Filter{Since: old, Max: most})); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("at most %d after the first: %v", most, got)
		}
	}
}
