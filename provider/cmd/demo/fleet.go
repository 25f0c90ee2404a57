package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// fleet is the shard's picture of the machines it plays with, kept up to date
// by List deltas.
type fleet struct {
	shard    *shard
	machines []*machine // in the order of the table
	revision []byte
}

// machine is one of them.
type machine struct {
	*pb.Machine
	since time.Time     // it entered its state
	took  time.Duration // the last transition that ended
	op    string        // the id of the operation that was last accepted
	event string
}

// hostID is the cloud's id of a host, without its zone.
func hostID(h *pb.HostRef) string {
	ref := h.GetRef()
	return ref[strings.LastIndexByte(ref, '/')+1:]
}

// discover lists everything and picks the first n machines that wait for a
// host.
func discover(ctx context.Context, s *shard, n int) (*fleet, error) {
	list, err := s.client.List(ctx, &pb.ListFilter{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_SPECULATIVE}})
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	found := list.GetMachines()
	if len(found) < n {
		return nil, fmt.Errorf("the provider offers %d machines, the play needs %d", len(found), n)
	}
	slices.SortFunc(found, func(a, b *pb.Machine) int { return strings.Compare(a.GetId(), b.GetId()) })
	f := &fleet{shard: s}
	for _, m := range found[:n] {
		f.machines = append(f.machines, &machine{Machine: m, since: time.Now(), event: "offered"})
	}
	return f, nil
}

// refresh reads what changed.
func (f *fleet) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := f.shard.client.List(ctx, &pb.ListFilter{SinceRevision: f.revision})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	now := time.Now()
	for _, m := range list.GetMachines() {
		if i := slices.IndexFunc(f.machines, func(have *machine) bool { return have.GetId() == m.GetId() }); i >= 0 {
			f.machines[i].update(m, now)
		}
	}
	f.revision = list.GetRevision()
	return nil
}

// update takes a newer picture of the machine.
func (m *machine) update(now *pb.Machine, at time.Time) {
	from, to := m.GetState(), now.GetState()
	m.Machine = now
	if from == to {
		return
	}
	if underWay(from) && !underWay(to) {
		m.took = at.Sub(m.since)
		m.event = "done " + abbreviate(m.op)
	}
	if to == pb.MachineState_MACHINE_STATE_FAILED {
		m.event = now.GetLastError()
	}
	m.since = at
}

// row is the machine in the table.
func (m *machine) row() row {
	elapsed := m.took
	if underWay(m.GetState()) {
		elapsed = time.Since(m.since)
	}
	return row{
		machine: m.GetId(),
		state:   word(m.GetState()),
		host:    abbreviate(hostID(m.GetHost())),
		cluster: m.GetCluster(),
		elapsed: elapsed,
		event:   m.event,
	}
}

func (f *fleet) rows() []row {
	rows := make([]row, len(f.machines))
	for i, m := range f.machines {
		rows[i] = m.row()
	}
	return rows
}

// all tells whether every machine is in the state.
func (f *fleet) all(want pb.MachineState) bool {
	return !slices.ContainsFunc(f.machines, func(m *machine) bool { return m.GetState() != want })
}

// failed returns an error that names every failed machine and why it failed.
func (f *fleet) failed() error {
	var lost []string
	for _, m := range f.machines {
		if m.GetState() == pb.MachineState_MACHINE_STATE_FAILED {
			lost = append(lost, fmt.Sprintf("%s FAILED: %s", m.GetId(), m.GetLastError()))
		}
	}
	if lost == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(lost, "\n"))
}

// behind describes the machines that are not in the state.
func (f *fleet) behind(want pb.MachineState) string {
	var late []string
	for _, m := range f.machines {
		if m.GetState() != want {
			late = append(late, fmt.Sprintf("%s is %s for %.0fs", m.GetId(), word(m.GetState()), time.Since(m.since).Seconds()))
		}
	}
	return strings.Join(late, ", ")
}

// word is the state without the prefix of its enum.
func word(s pb.MachineState) string { return strings.TrimPrefix(s.String(), "MACHINE_STATE_") }

// underWay tells whether a machine in the state is in a transition.
func underWay(s pb.MachineState) bool {
	switch s {
	case pb.MachineState_MACHINE_STATE_CREATING, pb.MachineState_MACHINE_STATE_CONFIGURING,
		pb.MachineState_MACHINE_STATE_DRAINING, pb.MachineState_MACHINE_STATE_DELETING:
		return true
	default:
		return false
	}
}
