package crash

import (
	"fmt"
	"slices"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// fleet is a world whose machines are walked one call at a time.
type fleet struct {
	*world
	sequence int64
}

// to makes calls on a machine until each one's transition is over.
func (f *fleet) to(id string, kinds ...kind) {
	f.t.Helper()
	for _, k := range kinds {
		if _, err := f.call(k, id); err != nil {
			f.t.Fatalf("%s of %s: %v", k, id, err)
		}
		f.await(id, edges[k].to)
	}
}

func (f *fleet) call(k kind, id string) (*pb.TransitionAck, error) {
	f.sequence++
	return f.send(k, id, token{"fleet", 1, f.sequence}, clusterOf(id))
}

func clusterOf(id string) binding { return binding{"cluster of " + id, "join", metadata(1)} }

func (f *fleet) await(id string, want pb.MachineState) {
	f.t.Helper()
	eventually(f.t, 30*time.Second, func() error {
		m, err := f.get(id)
		if err != nil || m.GetState() != want {
			return fmt.Errorf("%s is %s (%s), want %s: %w", id, m.GetState(), m.GetLastError(), want, err)
		}
		return nil
	})
}

// ids are the machines' ids in order: the first half is of one type, the second
// of another.
func (f *fleet) ids() []string {
	f.t.Helper()
	var ids []string
	for _, m := range f.list().GetMachines() {
		ids = append(ids, m.GetId())
	}
	slices.Sort(ids)
	return ids
}

// servers is the number of servers that the cloud has.
func (f *fleet) servers() int { return len(f.cloud.Servers()) }

// populate leaves half of the machines CONFIGURED, the others but one IDLE, and
// the last SPECULATIVE.
func (f *fleet) populate() {
	f.t.Helper()
	ids := f.ids()
	for i, id := range ids {
		switch {
		case i < len(ids)/2:
			f.to(id, create, configure)
		case i < len(ids)-1:
			f.to(id, create)
		}
	}
}

// same wants the machines to be as they were.
func (f *fleet) same(before *pb.MachineList) {
	f.t.Helper()
	was := map[string]*pb.Machine{}
	for _, m := range before.GetMachines() {
		was[m.GetId()] = m
	}
	for _, m := range f.list().GetMachines() {
		if !same(was[m.GetId()], m) {
			f.t.Errorf("%s is %v, was %v", m.GetId(), m, was[m.GetId()])
		}
	}
}

// stops wants a provider that says why it cannot start, in one line.
func (f *fleet) stops(p *process, wants ...string) {
	f.t.Helper()
	if code := p.exit(f.t, 20*time.Second); code != 1 {
		f.t.Errorf("exit code %d, want 1", code)
	}
	wantReason(f.t, p.log(), wants...)
}
