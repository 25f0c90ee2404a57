package contract

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

func TestMaxResults(t *testing.T) {
	s := open(t, 40)
	all := s.list()
	n := int32(len(all.GetMachines()))
	_, err := s.List(t.Context(), &pb.ListFilter{MaxResults: -1})
	wantCode(t, "negative max_results", err, codes.InvalidArgument, "max_results", "-1")
	for most, want := range map[int32]int32{0: n, 1: min(n, 1), n: n, n + 1: n, math.MaxInt32: n} {
		l := s.page(nil, most, nil)
		if len(l.GetMachines()) != int(want) {
			t.Errorf("max_results %d: %d machines, want %d", most, len(l.GetMachines()), want)
		}
		if want == n && !bytes.Equal(l.GetRevision(), all.GetRevision()) {
			t.Errorf("max_results %d cut nothing and is not at the head", most)
		}
	}
}

// TestPaging: pages have no gap and no repeat. They go through the full list once,
// from anywhere in it.
func TestPaging(t *testing.T) {
	s := open(t, 40)
	if *target == "" {
		ids := s.lease(2)
		s.must(create, ids[0], fresh())
		s.must(create, ids[1], fresh())
		s.must(configure, ids[1], fresh())
	}
	all := s.list()
	n := len(all.GetMachines())
	for _, states := range [][]pb.MachineState{nil, {speculative}, {idle, configured}} {
		want := idsOf(s.page(states, 0, nil))
		for _, most := range []int{1 + n/100, 3 + n/20, 7 + n/8, max(1, n-2), max(1, n-1)} {
			var got []string
			var since []byte
			for {
				l := s.page(states, int32(most), since)
				if len(l.GetMachines()) == 0 {
					if !bytes.Equal(l.GetRevision(), all.GetRevision()) {
						t.Errorf("pages of %d of %v do not end at the head", most, states)
					}
					break
				}
				got, since = append(got, idsOf(l)...), l.GetRevision()
				if len(l.GetMachines()) > most || len(got) > len(want) {
					t.Errorf("pages of %d of %v: a page has %d, all have %d, want %d", most, states, len(l.GetMachines()), len(got), len(want))
					break
				}
			}
			if begin := slices.Index(want, slices.Concat(got, []string{""})[0]); begin > 0 {
				want = slices.Concat(want[begin:], want[:begin])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pages of %d of %v (-want +got):\n%s", most, states, diff)
			}
		}
	}
}

// TestCallersOfOne: callers who each ask for one machine get one each while there
// are some, and so do callers of a few.
func TestCallersOfOne(t *testing.T) {
	s := open(t, 40)
	for _, states := range [][]pb.MachineState{nil, {speculative}} {
		total := len(s.page(states, 0, nil).GetMachines())
		for _, most := range []int{1, 2, 5} {
			callers := min(total/most, 12)
			pages := make([][]string, callers)
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					l, err := s.List(t.Context(), &pb.ListFilter{States: states, MaxResults: int32(most)})
					if err != nil {
						t.Error(err)
					}
					pages[i] = idsOf(l)
				})
			}
			wg.Wait()
			got := slices.Concat(pages...)
			slices.Sort(got)
			if distinct := len(slices.Compact(got)); distinct != callers*most {
				t.Errorf("%d callers for %d of %v got %d machines: %v", callers, most, states, distinct, pages)
			}
		}
		if total < 2 {
			continue
		}
		all := func() string { return idsOf(s.page(states, int32(total), nil))[0] }
		if first, second := all(), all(); first == second {
			t.Errorf("two lists of at most all %d of %v begin with %s", total, states, first)
		}
	}
}

func TestDeltas(t *testing.T) {
	s := open(t, 40)
	head := s.list().GetRevision()
	still := func(what string) {
		t.Helper()
		if l := s.page(nil, 0, head); len(l.GetMachines()) != 0 || !bytes.Equal(l.GetRevision(), head) {
			t.Errorf("%s: %d machines, revision %x after %x", what, len(l.GetMachines()), l.GetRevision(), head)
		}
	}
	for range 3 {
		still("without a change")
	}
	wantCode(t, "Drain of nobody", s.try(drain, run+"-deltas", fresh()).err, codes.NotFound)
	still("a call for nobody")

	ids := s.lease(2)
	operation := s.must(create, ids[0], fresh())
	head = s.list().GetRevision()
	wantMisplaced(t, "Drain of SPECULATIVE", s.try(drain, ids[1], fresh()).err)
	still("a refused call")
	s.repeats(create, ids[0], operation)
	still("a retry")

	s.must(create, ids[1], fresh())
	l := s.page(nil, 0, head)
	if diff := cmp.Diff([]string{ids[1]}, idsOf(l)); diff != "" {
		t.Errorf("after one change (-want +got):\n%s", diff)
	}
	all := s.list()
	if last := idsOf(all)[len(all.GetMachines())-1]; last != ids[1] || !bytes.Equal(all.GetRevision(), l.GetRevision()) {
		t.Errorf("the last change is not the last of the full list, that is %s", last)
	}
	if l := s.page([]pb.MachineState{speculative}, 0, head); len(l.GetMachines()) != 0 {
		t.Errorf("a filtered delta has %v", idsOf(l))
	}
}

// TestCursors: a cursor that is not the server's gives everything.
func TestCursors(t *testing.T) {
	s := open(t, 40)
	all := s.list()
	head := all.GetRevision()
	cursors := map[string][]byte{
		"one byte":  {0},
		"garbage":   []byte("garbage"),
		"zeros":     make([]byte, len(head)),
		"ones":      bytes.Repeat([]byte{0xff}, len(head)),
		"truncated": head[:len(head)-1],
		"longer":    append(slices.Clone(head), 0),
		"huge":      make([]byte, 1<<20),
	}
	for i := range head {
		c := slices.Clone(head)
		c[i] ^= 1
		cursors[fmt.Sprintf("byte %d changed", i)] = c
	}
	if *target == "" {
		other := start(t, s.args...)
		cursors["foreign"] = other.list().GetRevision()
	}
	for name, c := range cursors {
		if l := s.page(nil, 0, c); len(l.GetMachines()) != len(all.GetMachines()) || !bytes.Equal(l.GetRevision(), head) {
			t.Errorf("%s: %d machines, want all %d", name, len(l.GetMachines()), len(all.GetMachines()))
		}
	}
}
