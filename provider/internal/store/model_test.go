package store

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"bigfleet-providers/provider/internal/machine"
)

// model is the store as a plain map.
type model struct {
	machines map[string]machine.Record
	marks    map[string]machine.Marks
	next     map[string]int // generations, by slot
	head     uint64
}

// read is the next page of what is left to read.
func (m *model) read(in []machine.State, most int, left []span) (ids []string, rest []span) {
	if most <= 0 {
		most = len(m.machines) + 1
		left = slices.SortedFunc(slices.Values(left), func(a, b span) int { return cmp.Compare(a.after, b.after) })
	}
	for i, s := range left {
		var all []machine.Record
		for _, r := range m.machines {
			if r.Revision > s.after && r.Revision <= s.to && (len(in) == 0 || slices.Contains(in, r.State)) {
				all = append(all, r)
			}
		}
		slices.SortFunc(all, func(a, b machine.Record) int { return cmp.Compare(a.Revision, b.Revision) })
		for _, r := range all {
			if len(ids) == most {
				return ids, append([]span{s}, left[i+1:]...)
			}
			ids, s.after = append(ids, string(view(&r))), r.Revision
		}
	}
	return ids, []span{{m.head, endless}}
}

// fresh is what a page without a cursor began to read, by its first machine.
func (m *model) fresh(most int, page []string) []span {
	if most <= 0 || len(page) == 0 {
		return []span{{0, endless}}
	}
	for _, r := range m.machines {
		if string(view(&r)) == page[0] && r.Revision > 1 {
			return []span{{r.Revision - 1, m.head}, {0, r.Revision - 1}, {m.head, endless}}
		}
	}
	return []span{{0, m.head}, {m.head, endless}}
}

// walked is the cursor of a walk with a filter, and what is left to read by it.
type walked struct {
	states []machine.State
	cursor []byte
	left   []span
}

// TestAgainstModel runs random calls, lists and restarts against the model.
func TestAgainstModel(t *testing.T) {
	base := t.TempDir()
	var runs atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(base, fmt.Sprint(runs.Add(1)))
		open := func() *Store {
			s, err := Open(Options{Path: path, View: view, Linger: 100 * time.Microsecond})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := open()
		defer func() {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}()
		m := model{machines: map[string]machine.Record{}, marks: map[string]machine.Marks{}, next: map[string]int{}}
		walks := []walked{{}}
		firsts := map[string]string{} // of the last fresh capped page, by filter
		id := rapid.SampledFrom([]string{"a", "b", "c", "d", "a-r2", "a-r3"})
		state := rapid.Custom(func(t *rapid.T) machine.State { return machine.State(rapid.IntRange(1, 8).Draw(t, "state")) })
		seq := int64(0)

		check := func(id string, got machine.Record, err error) {
			if err != nil {
				t.Fatal(err)
			}
			want, ok := m.machines[id]
			if !ok {
				want = machine.Record{ID: id, Marks: m.marks[id]}
			}
			if d := diff.Diff(want, got); d != "" {
				t.Fatalf("%s (-want +got):\n%s", id, d)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"move": func(t *rapid.T) {
				id, to_ := id.Draw(t, "id"), state.Draw(t, "state")
				later := rapid.Bool().Draw(t, "later")
				do := s.Do
				if later {
					do = s.DoLater
				}
				got, err := do(t.Context(), id, to(to_))
				m.head++
				want, ok := m.machines[id]
				if !ok {
					want = machine.Record{ID: id, Marks: m.marks[id]}
					delete(m.marks, id)
				}
				want.State, want.Revision = to_, m.head
				m.machines[id] = want
				check(id, got, err)
			},
			"mark": func(t *rapid.T) {
				id := id.Draw(t, "id")
				seq++
				got, err := s.Do(t.Context(), id, mark("s", 1, seq))
				marks := machine.Marks{}.With("s", machine.Mark{Epoch: 1, Sequence: seq})
				if rec, ok := m.machines[id]; ok {
					rec.Marks = marks
					m.machines[id] = rec
				} else {
					m.marks[id] = marks
				}
				check(id, got, err)
			},
			"remove": func(t *rapid.T) {
				id := id.Draw(t, "id")
				got, err := s.Do(t.Context(), id, gone)
				if rec, ok := m.machines[id]; ok {
					delete(m.machines, id)
					slot, generation := id[:1], map[string]int{"a-r2": 2, "a-r3": 3}[id]
					if rec.State == machine.Failed {
						generation = max(1, generation) + 1
					}
					m.next[slot] = max(m.next[slot], generation)
					if len(rec.Marks) > 0 {
						m.marks[id] = rec.Marks
					}
				}
				check(id, got, err)
			},
			"list": func(t *rapid.T) {
				w := rapid.SampledFrom(walks).Draw(t, "since")
				states := w.states
				if w.cursor == nil && rapid.Bool().Draw(t, "filter") {
					states = rapid.SliceOfN(state, 1, 3).Draw(t, "states")
				}
				most := rapid.IntRange(0, 4).Draw(t, "max")
				page := s.List(Filter{States: states, Max: most, Since: w.cursor})
				got := texts(page)
				if w.cursor == nil {
					w.left = m.fresh(most, got)
				}
				want, left := m.read(states, most, w.left)
				if d := diff.Diff(append([]string{}, want...), got); d != "" {
					t.Fatalf("list of what is left in %v (-want +got):\n%s", w.left, d)
				}
				rest, ok := s.decodeCursor(page.Revision, m.head)
				wantLeft, _ := m.read(states, len(m.machines)+1, left)
				gotLeft, _ := m.read(states, len(m.machines)+1, rest)
				if !ok || !slices.Equal(wantLeft, gotLeft) {
					t.Fatalf("left %v, want %v", rest, left)
				}
				if len(left) == 1 && !slices.Equal(left, rest) {
					t.Fatalf("left %v at the end, want %v", rest, left)
				}
				walks = append(walks, walked{states, page.Revision, left})
				if all, _ := m.read(states, 0, []span{{0, endless}}); w.cursor == nil && most > 0 && len(all) > 1 {
					filter := fmt.Sprint(setOf(states))
					if firsts[filter] == got[0] {
						t.Fatalf("two pages of %v begin with %s", states, got[0])
					}
					firsts[filter] = got[0]
				}
			},
			"restart": func(t *rapid.T) {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open()
				clear(firsts)
			},
			"": func(t *rapid.T) {
				stats := s.Stats()
				if stats.Machines != len(m.machines) || stats.Unknown != len(m.marks) || stats.Revision != m.head {
					t.Fatalf("stats %+v, model %+v", stats, m)
				}
				for _, slot := range []string{"a", "b", "c", "d"} {
					if got := s.Generation(slot); got != max(1, m.next[slot]) {
						t.Fatalf("generation %d of slot %s, want %d", got, slot, m.next[slot])
					}
				}
				for id, want := range m.machines {
					got, _, ok := s.Get(id)
					if d := diff.Diff(want, got); !ok || d != "" {
						t.Fatalf("Get(%s): %t (-want +got):\n%s", id, ok, d)
					}
				}
			},
		})
	})
}

// TestReadersSeeOneRevision lets readers follow deltas while many goroutines
// write: whoever applies every delta in turn must end with the full list, and
// never sees a machine go back.
func TestReadersSeeOneRevision(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "state"))
	counted := func(cur machine.Record) (machine.Record, machine.Change, error) {
		next := cur.Clone()
		n := 0
		if cur.Cluster != "" {
			if _, err := fmt.Sscan(cur.Cluster, &n); err != nil {
				return cur, machine.Unchanged, err
			}
		}
		next.State, next.Cluster = machine.Idle, fmt.Sprint(n+1)
		return next, machine.Visible, nil
	}

	stop := make(chan struct{})
	var readers sync.WaitGroup
	for reader := range 4 {
		most := reader * 3 // 0: no cap
		readers.Go(func() {
			var since []byte
			seen := map[string]int{}
			read := func() int {
				page := s.List(Filter{Since: since, Max: most})
				since = page.Revision
				for _, v := range page.Views {
					var id, state string
					var n int
					if _, err := fmt.Sscan(string(v), &id, &state, &n); err != nil {
						t.Error(err)
					}
					if n <= seen[id] {
						t.Errorf("%s went from %d to %d", id, seen[id], n)
					}
					seen[id] = n
					if rec, _, ok := s.Get(id); !ok || rec.Cluster < "1" {
						t.Errorf("Get(%s) = %+v, %t", id, rec, ok)
					}
				}
				return len(page.Views)
			}
			for done := false; !done; {
				select {
				case <-stop:
					done = true
				default:
				}
				read()
			}
			for read() > 0 { // what is left after the last write
			}
			s.Records(func(r machine.Record) bool {
				if fmt.Sprint(seen[r.ID]) != r.Cluster {
					t.Errorf("%s: the deltas ended at %d, the record says %s", r.ID, seen[r.ID], r.Cluster)
				}
				return true
			})
		})
	}
	inParallel(t, 1500, func(i int) error {
		do := s.Do
		if i%3 == 0 {
			do = s.DoLater
		}
		_, err := do(t.Context(), fmt.Sprintf("m-%d", i%40), counted)
		return err
	})
	close(stop)
	readers.Wait()

	total := 0
	s.Records(func(r machine.Record) bool {
		n := 0
		if _, err := fmt.Sscan(r.Cluster, &n); err != nil {
			t.Error(err)
		}
		total += n
		return true
	})
	if stats := s.Stats(); total != 1500 || stats.Revision != 1500 || stats.Decisions != 1500 || stats.Batches >= 1500 {
		t.Errorf("%d changes arrived, stats %+v", total, stats)
	}
}
