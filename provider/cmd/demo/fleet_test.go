package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// pages answers each List with the next page and keeps the cursors it was
// asked with.
type pages struct {
	pb.CapacityProviderClient
	lists   []*pb.MachineList
	cursors []string
}

func (p *pages) List(_ context.Context, f *pb.ListFilter, _ ...grpc.CallOption) (*pb.MachineList, error) {
	p.cursors = append(p.cursors, string(f.GetSinceRevision()))
	next := p.lists[0]
	p.lists = p.lists[1:]
	return next, nil
}

func aMachine(id string, s pb.MachineState) *pb.Machine { return &pb.Machine{Id: id, State: s} }

const (
	speculative = pb.MachineState_MACHINE_STATE_SPECULATIVE
	creating    = pb.MachineState_MACHINE_STATE_CREATING
	idle        = pb.MachineState_MACHINE_STATE_IDLE
	failed      = pb.MachineState_MACHINE_STATE_FAILED
)

func TestFleetFollowsDeltas(t *testing.T) {
	broken := aMachine("a", failed)
	broken.LastError = "boot: no capacity"
	server := &pages{lists: []*pb.MachineList{
		{Machines: []*pb.Machine{aMachine("c", speculative), aMachine("b", speculative), aMachine("a", speculative)}},
		{Machines: []*pb.Machine{aMachine("a", creating), aMachine("b", creating), aMachine("c", creating)}, Revision: []byte("r1")},
		{Machines: []*pb.Machine{aMachine("b", idle)}, Revision: []byte("r2")},
		{Revision: []byte("r2")},
		{Machines: []*pb.Machine{broken}, Revision: []byte("r3")},
	}}
	f, err := discover(t.Context(), &shard{client: server}, 2)
	if err != nil {
		t.Fatal(err)
	}
	states := func() string {
		var all []string
		for _, r := range f.rows() {
			all = append(all, r.machine+" "+r.state)
		}
		return strings.Join(all, ", ")
	}
	for _, want := range []string{"a CREATING, b CREATING", "a CREATING, b IDLE", "a CREATING, b IDLE", "a FAILED, b IDLE"} {
		if err := f.failed(); err != nil {
			t.Errorf("failed, before anything did: %v", err)
		}
		if err := f.refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := states(); got != want {
			t.Errorf("machines are %q, want %q", got, want)
		}
	}
	if got, want := strings.Join(server.cursors, ","), ",,r1,r2,r2"; got != want {
		t.Errorf("lists were asked with cursors %q, want %q", got, want)
	}
	if err := f.failed(); err == nil || err.Error() != "a FAILED: boot: no capacity" {
		t.Errorf("failed: %v, want the provider's reason", err)
	}
	if f.all(idle) || !strings.Contains(f.behind(idle), "a is FAILED") || strings.Contains(f.behind(idle), "b is") {
		t.Errorf("behind IDLE: %q, want a alone", f.behind(idle))
	}
}

func TestDiscoverNeedsEnoughSlots(t *testing.T) {
	server := &pages{lists: []*pb.MachineList{{Machines: []*pb.Machine{aMachine("a", speculative)}}}}
	if _, err := discover(t.Context(), &shard{client: server}, 2); err == nil || !strings.Contains(err.Error(), "offers 1 machines, the play needs 2") {
		t.Errorf("discover: %v", err)
	}
}

func TestElapsedIsOfTheTransition(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	m := &machine{Machine: aMachine("a", speculative), since: start}
	if r := m.row(); r.elapsed != 0 || r.host != "" {
		t.Errorf("a free slot has elapsed %s and host %q, want neither", r.elapsed, r.host)
	}
	m.update(aMachine("a", creating), start)
	m.op = "7b0e61f2-0000-4000-8000-000000000000"
	if got := m.row().elapsed; got < time.Minute {
		t.Errorf("elapsed %s in a transition that began a minute ago", got)
	}
	ready := aMachine("a", idle)
	ready.Host = &pb.HostRef{Ref: "fr-par-1/0d2f81aa-1c2d-4e5f-8a9b-000000000000"}
	m.update(ready, start.Add(3*time.Second))
	if r := m.row(); r.host != "0d2f81aa" {
		t.Errorf("host %q, want the beginning of its id", r.host)
	}
	if r := m.row(); r.elapsed != 3*time.Second || r.event != "done 7b0e61f2" {
		t.Errorf("at rest: elapsed %s, event %q; want what the transition took", r.elapsed, r.event)
	}
}
