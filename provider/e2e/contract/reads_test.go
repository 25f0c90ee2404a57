package contract

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/testing/protocmp"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

func TestGet(t *testing.T) {
	s := open(t, 40)
	_, err := s.Get(t.Context(), &pb.MachineRef{})
	wantCode(t, "Get without an id", err, codes.InvalidArgument)
	_, err = s.Get(t.Context(), &pb.MachineRef{Id: run})
	wantCode(t, "Get of nobody", err, codes.NotFound, run)
	_, err = s.Get(t.Context(), &pb.MachineRef{Id: strings.Repeat("m", maxID+1)})
	wantCode(t, "Get with a long id", err, codes.InvalidArgument, "257", "256")
	all := s.list().GetMachines()
	for _, m := range all[:min(len(all), 1000)] {
		if diff := cmp.Diff(m, s.get(m.GetId()), protocmp.Transform()); diff != "" {
			t.Errorf("List and Get differ (-List +Get):\n%s", diff)
		}
	}
}

// TestOffers looks at what machines say of themselves.
func TestOffers(t *testing.T) {
	s := open(t, 40)
	seen := map[string]bool{}
	for _, m := range s.list().GetMachines() {
		if m.GetId() == "" || len(m.GetId()) > maxID || seen[m.GetId()] {
			t.Errorf("id %q is empty, long or there twice", m.GetId())
		}
		seen[m.GetId()] = true
		if m.GetInstanceType() == "" || m.GetZone() == "" || m.GetCapacityType() == pb.CapacityType_CAPACITY_TYPE_UNSPECIFIED {
			t.Errorf("type, zone and capacity type are fields of their own: %v", m)
		}
		price, metal := m.GetPricePerHour(), m.GetCapacityType() == pb.CapacityType_CAPACITY_TYPE_BARE_METAL
		if !(price > 0 || metal && price == 0) || math.IsInf(price, 0) {
			t.Errorf("%s costs %v", m.GetInstanceType(), price)
		}
		i := m.GetInterruptionProbability()
		if !(i >= 0 && i <= 1) || m.GetCapacityType() == pb.CapacityType_CAPACITY_TYPE_SPOT && i == 0 {
			t.Errorf("a %s machine is interrupted with probability %v", m.GetCapacityType(), i)
		}
		for what, r := range map[string]*pb.Resources{"resources": m.GetResources(), "allocatable": m.GetAllocatable()} {
			if r.GetResources()["cpu"] == "" || r.GetResources()["memory"] == "" {
				t.Errorf("%s of %s: %v", what, m.GetInstanceType(), r)
			}
		}
		for k, v := range m.GetLabels() {
			if !utf8.ValidString(k + v) {
				t.Errorf("label %q=%q", k, v)
			}
		}
		if err := stateFaults(m); err != nil {
			t.Error(err)
		}
	}
	if len(seen) == 0 {
		t.Error("no machine is listed")
	}
}

// TestStates: the filter is a union.
func TestStates(t *testing.T) {
	s := open(t, 40)
	if *target == "" {
		ids := s.lease(2)
		s.must(create, ids[0], fresh())
		s.must(create, ids[1], fresh())
		s.must(configure, ids[1], fresh())
	}
	all := s.list().GetMachines()
	for _, states := range [][]pb.MachineState{
		nil, {speculative}, {idle}, {idle, configured, idle}, {failed}, {unspecified}, {99, -1}, {99, idle},
	} {
		var want []string
		for _, m := range all {
			if states == nil || slices.Contains(states, m.GetState()) {
				want = append(want, m.GetId())
			}
		}
		l := s.page(states, 0, nil)
		if diff := cmp.Diff(want, idsOf(l)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", states, diff)
		}
		if len(l.GetRevision()) == 0 {
			t.Errorf("%v: no revision", states)
		}
	}
}

// TestCompressed: a client may compress. The refusal of a server that cannot
// would be UNIMPLEMENTED, which means something else on this service.
func TestCompressed(t *testing.T) {
	s := open(t, 500)
	want := s.list()
	got, err := s.List(t.Context(), &pb.ListFilter{}, grpc.UseCompressor(gzip.Name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("plain and compressed lists differ (-plain +compressed):\n%s", diff)
	}
	_, err = s.Create(t.Context(), &pb.CreateRequest{MachineId: run, ShardId: run, ShardEpoch: 1, SequenceNumber: sequence.Add(1)}, grpc.UseCompressor(gzip.Name))
	wantCode(t, "a compressed Create of nobody", err, codes.NotFound)
}
