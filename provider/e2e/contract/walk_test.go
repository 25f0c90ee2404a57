package contract

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// walk is the oracle of Lists that continue each other, while others change
// some machines. The machines that nobody changes must come once; the others
// may come again, and what came last is what is known of them.
type walk struct {
	states []pb.MachineState
	quiet  map[string]*pb.Machine // those that nobody changes
	known  map[string]*pb.Machine
	cursor []byte
}

func newWalk(states []pb.MachineState, quiet map[string]*pb.Machine) *walk {
	return &walk{states: states, quiet: quiet, known: map[string]*pb.Machine{}}
}

func (w *walk) matches(m *pb.Machine) bool {
	return len(w.states) == 0 || slices.Contains(w.states, m.GetState())
}

// take judges the page that follows, of at most so many machines.
func (w *walk) take(l *pb.MachineList, most int32) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	page := l.GetMachines()
	if most > 0 && len(page) > int(most) {
		fault("%d machines, max_results is %d", len(page), most)
	}
	if len(l.GetRevision()) == 0 {
		fault("no revision")
	}
	if len(page) == 0 && len(w.states) == 0 && w.cursor != nil && !bytes.Equal(l.GetRevision(), w.cursor) {
		fault("an empty delta moved the revision from %x to %x", w.cursor, l.GetRevision())
	}
	here := map[string]bool{}
	for _, m := range page {
		id := m.GetId()
		still, isQuiet := w.quiet[id]
		switch _, again := w.known[id]; {
		case here[id]:
			fault("%s is twice in one page", id)
		case isQuiet && again:
			fault("%s came before, and nobody changed it", id)
		case isQuiet && !proto.Equal(still, m):
			fault("%v differs from %v, and nobody changed it", m, still)
		}
		if !w.matches(m) {
			fault("%s is %s, asked for %v", id, m.GetState(), w.states)
		}
		here[id], w.known[id] = true, m
	}
	w.cursor = l.GetRevision()
	if most == 0 || len(page) < int(most) { // nothing was cut: this is the head
		for id, m := range w.quiet {
			if _, came := w.known[id]; !came && w.matches(m) {
				fault("%s never came", id)
			}
		}
	}
	return errors.Join(errs...)
}

// finish compares what the walk knows with the full list, once it is at the
// head and nothing moves any more.
func (w *walk) finish(all *pb.MachineList) error {
	var errs []error
	listed := map[string]bool{}
	for _, m := range all.GetMachines() {
		listed[m.GetId()] = true
		if w.matches(m) && !proto.Equal(m, w.known[m.GetId()]) {
			errs = append(errs, fmt.Errorf("the pages told %v, the list %v", w.known[m.GetId()], m))
		}
	}
	for id := range w.known {
		if !listed[id] {
			errs = append(errs, fmt.Errorf("the pages told of %s, the list does not", id))
		}
	}
	return errors.Join(errs...)
}

// TestWalkOracle: the oracle must be able to find each kind of wrong page.
func TestWalkOracle(t *testing.T) {
	t.Parallel()
	named := func(id string, state pb.MachineState) *pb.Machine {
		m := machine(state)
		m.Id = id
		return m
	}
	a, b, busy, later := named("a", speculative), named("b", idle), named("busy", speculative), named("busy", creating)
	quiet := map[string]*pb.Machine{"a": a, "b": b}
	other := named("b", idle)
	other.Zone = "elsewhere"
	type page struct {
		machines []*pb.Machine
		most     int32
		revision string
	}
	free := []pb.MachineState{speculative}
	for name, tt := range map[string]struct {
		states []pb.MachineState
		pages  []page
		list   []*pb.Machine
		right  bool
	}{
		"one page":            {nil, []page{{[]*pb.Machine{a, b, busy}, 0, "3"}}, []*pb.Machine{a, b, busy}, true},
		"three pages":         {nil, []page{{[]*pb.Machine{a}, 1, "1"}, {[]*pb.Machine{b, busy}, 2, "3"}, {nil, 2, "3"}}, []*pb.Machine{a, b, busy}, true},
		"a change":            {nil, []page{{[]*pb.Machine{a, b, busy}, 0, "3"}, {[]*pb.Machine{later}, 0, "4"}}, []*pb.Machine{a, b, later}, true},
		"filtered":            {free, []page{{[]*pb.Machine{a}, 0, "3"}, {nil, 0, "4"}}, []*pb.Machine{a, b, later}, true},
		"a gap":               {nil, []page{{[]*pb.Machine{a, busy}, 0, "3"}}, []*pb.Machine{a, b, busy}, false},
		"a gap between pages": {nil, []page{{[]*pb.Machine{a}, 1, "2"}, {[]*pb.Machine{busy}, 2, "3"}}, []*pb.Machine{a, b, busy}, false},
		"a repeat":            {nil, []page{{[]*pb.Machine{a, b}, 2, "2"}, {[]*pb.Machine{b, busy}, 2, "3"}}, []*pb.Machine{a, b, busy}, false},
		"twice in a page":     {nil, []page{{[]*pb.Machine{a, b, busy, later}, 0, "3"}}, []*pb.Machine{a, b, later}, false},
		"too many":            {nil, []page{{[]*pb.Machine{a, b}, 1, "2"}, {[]*pb.Machine{busy}, 2, "3"}}, []*pb.Machine{a, b, busy}, false},
		"out of the filter":   {free, []page{{[]*pb.Machine{a, b}, 0, "3"}}, []*pb.Machine{a, b}, false},
		"other content":       {nil, []page{{[]*pb.Machine{a, other, busy}, 0, "3"}}, []*pb.Machine{a, other, busy}, false},
		"no revision":         {nil, []page{{[]*pb.Machine{a, b, busy}, 0, ""}}, []*pb.Machine{a, b, busy}, false},
		"a moving revision":   {nil, []page{{[]*pb.Machine{a, b, busy}, 0, "3"}, {nil, 0, "4"}}, []*pb.Machine{a, b, busy}, false},
		"a lost change":       {nil, []page{{[]*pb.Machine{a, b, busy}, 0, "3"}, {nil, 0, "3"}}, []*pb.Machine{a, b, later}, false},
		"a lost machine":      {nil, []page{{[]*pb.Machine{a, b}, 0, "3"}}, []*pb.Machine{a, b, busy}, false},
		"a stranger":          {nil, []page{{[]*pb.Machine{a, b, busy}, 0, "3"}}, []*pb.Machine{a, b}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalk(tt.states, quiet)
			var err error
			for _, p := range tt.pages {
				err = errors.Join(err, w.take(&pb.MachineList{Machines: p.machines, Revision: []byte(p.revision)}, p.most))
			}
			err = errors.Join(err, w.finish(&pb.MachineList{Machines: tt.list}))
			if (err == nil) != tt.right {
				t.Errorf("%v, want right: %t", err, tt.right)
			}
		})
	}
}
