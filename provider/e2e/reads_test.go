package e2e

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

func (p *provider) page(states []pb.MachineState, most int32, since []byte) *pb.MachineList {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := p.List(ctx, &pb.ListFilter{States: states, MaxResults: most, SinceRevision: since})
	if err != nil {
		p.t.Fatalf("List(%v, %d, %x): %v", states, most, since, err)
	}
	return l
}

func idsOf(l *pb.MachineList) []string {
	var ids []string
	for _, m := range l.GetMachines() {
		ids = append(ids, m.GetId())
	}
	return ids
}

func TestReads(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--seed-count=40")
	ids := p.machines(4)
	p.must("Create", ids[0], token{}, idle)
	p.must("Create", ids[1], token{}, idle)
	p.must("Configure", ids[1], token{}, configured)

	t.Run("Get", func(t *testing.T) {
		p := p.in(t)
		_, err := p.Get(t.Context(), &pb.MachineRef{})
		wantCode(t, "Get without an id", err, codes.InvalidArgument)
		_, err = p.Get(t.Context(), &pb.MachineRef{Id: "nobody"})
		wantCode(t, "Get of nobody", err, codes.NotFound, "nobody")
		_, err = p.Get(t.Context(), &pb.MachineRef{Id: strings.Repeat("m", maxID+1)})
		wantCode(t, "Get with a long id", err, codes.InvalidArgument, "257", "256")
		for _, m := range p.list().GetMachines() {
			if diff := cmp.Diff(m, p.get(m.GetId()), protocmp.Transform()); diff != "" {
				t.Errorf("List and Get differ (-List +Get):\n%s", diff)
			}
		}
	})
	t.Run("what an offer says", func(t *testing.T) {
		seen := map[string]bool{}
		for _, m := range p.in(t).list().GetMachines() {
			if m.GetId() == "" || len(m.GetId()) > maxID || seen[m.GetId()] {
				t.Errorf("id %q is empty, long or there twice", m.GetId())
			}
			seen[m.GetId()] = true
			if m.GetInstanceType() == "" || m.GetZone() != "fr-par-1" || m.GetCapacityType() == pb.CapacityType_CAPACITY_TYPE_UNSPECIFIED {
				t.Errorf("type, zone and capacity type are fields of their own: %v", m)
			}
			if price := m.GetPricePerHour(); !(price > 0) || math.IsInf(price, 0) {
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
			if (m.GetState() == failed) != (m.GetLastError() != "") {
				t.Errorf("%s with last_error %q", m.GetState(), m.GetLastError())
			}
		}
	})
	t.Run("states are a union", func(t *testing.T) {
		p := p.in(t)
		for _, c := range []struct {
			states []pb.MachineState
			want   int
		}{
			{nil, 40},
			{[]pb.MachineState{speculative}, 38},
			{[]pb.MachineState{idle}, 1},
			{[]pb.MachineState{idle, configured, idle}, 2},
			{[]pb.MachineState{failed}, 0},
			{[]pb.MachineState{unspecified}, 0},
			{[]pb.MachineState{99, -1}, 0},
			{[]pb.MachineState{99, idle}, 1},
		} {
			l := p.page(c.states, 0, nil)
			if len(l.GetMachines()) != c.want {
				t.Errorf("%v: %d machines, want %d", c.states, len(l.GetMachines()), c.want)
			}
			for _, m := range l.GetMachines() {
				if c.states != nil && !slices.Contains(c.states, m.GetState()) {
					t.Errorf("%v: a machine is %s", c.states, m.GetState())
				}
			}
			if len(l.GetRevision()) == 0 {
				t.Errorf("%v: no revision", c.states)
			}
		}
	})
	t.Run("max_results", func(t *testing.T) {
		p := p.in(t)
		all := p.list()
		_, err := p.List(t.Context(), &pb.ListFilter{MaxResults: -1})
		wantCode(t, "negative max_results", err, codes.InvalidArgument, "max_results", "-1")
		for most, want := range map[int32]int{0: 40, 1: 1, 39: 39, 40: 40, 41: 40, math.MaxInt32: 40} {
			l := p.page(nil, most, nil)
			if len(l.GetMachines()) != want {
				t.Errorf("max_results %d: %d machines, want %d", most, len(l.GetMachines()), want)
			}
			if want == 40 && !bytes.Equal(l.GetRevision(), all.GetRevision()) {
				t.Errorf("max_results %d cut nothing and is not at the head", most)
			}
		}
	})
	t.Run("pages have no gap and no repeat", func(t *testing.T) {
		p := p.in(t)
		all := p.list()
		for _, states := range [][]pb.MachineState{nil, {speculative}, {idle, configured}} {
			want := idsOf(p.page(states, 0, nil))
			for _, most := range []int32{1, 3, 7, 38, 39} {
				var got []string
				var since []byte
				for {
					l := p.page(states, most, since)
					if len(l.GetMachines()) == 0 {
						if !bytes.Equal(l.GetRevision(), all.GetRevision()) {
							t.Errorf("pages of %d of %v do not end at the head", most, states)
						}
						break
					}
					got, since = append(got, idsOf(l)...), l.GetRevision()
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("pages of %d of %v (-want +got):\n%s", most, states, diff)
				}
			}
		}
	})
	t.Run("deltas", func(t *testing.T) {
		p := p.in(t)
		head := p.list().GetRevision()
		for range 3 {
			if l := p.page(nil, 0, head); len(l.GetMachines()) != 0 || !bytes.Equal(l.GetRevision(), head) {
				t.Errorf("without a change: %d machines, revision %x after %x", len(l.GetMachines()), l.GetRevision(), head)
			}
		}
		// What changes no machine moves no revision.
		_, err := p.call("Drain", ids[2], token{"s", 1, 1})
		wantCode(t, "Drain of SPECULATIVE", err, codes.Internal)
		p.repeats("Create", ids[0], p.must("Create", ids[0], token{}, unspecified))
		if l := p.page(nil, 0, head); len(l.GetMachines()) != 0 || !bytes.Equal(l.GetRevision(), head) {
			t.Errorf("a refused call and a retry show as a change of %v", idsOf(l))
		}
		p.must("Create", ids[2], token{}, idle)
		l := p.page(nil, 0, head)
		if diff := cmp.Diff([]string{ids[2]}, idsOf(l)); diff != "" {
			t.Errorf("after one change (-want +got):\n%s", diff)
		}
		if all := p.list(); !bytes.Equal(all.GetRevision(), l.GetRevision()) || all.GetMachines()[39].GetId() != ids[2] {
			t.Error("the last change is not the last of the full list")
		}
		if l := p.page([]pb.MachineState{speculative}, 0, head); len(l.GetMachines()) != 0 {
			t.Errorf("a filtered delta has %v", idsOf(l))
		}
	})
	t.Run("a cursor that is not ours gives everything", func(t *testing.T) {
		p := p.in(t)
		head := p.list().GetRevision()
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
			cursors["byte "+string(rune('A'+i))+" changed"] = c
		}
		other := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--seed-count=40")
		cursors["foreign"] = other.list().GetRevision()
		for name, c := range cursors {
			if l := p.page(nil, 0, c); len(l.GetMachines()) != 40 || !bytes.Equal(l.GetRevision(), head) {
				t.Errorf("%s: %d machines, want all 40", name, len(l.GetMachines()))
			}
		}
	})
}

// TestDeltasUnderWrites follows the machines by deltas only, in pages of
// several sizes, while eight callers change them, and compares what it knows in
// the end with the full list.
func TestDeltasUnderWrites(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--seed-count=24")
	ids := p.machines(24)
	var done atomic.Bool
	deadline := time.Now().Add(time.Minute)
	var writers, readers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for round := range 4 {
				for _, id := range ids[3*w : 3*w+3] {
					kinds := []string{"Create", "Delete"}
					if round == 1 {
						kinds = []string{"Create", "Configure", "Drain", "Delete"}
					}
					for _, kind := range kinds {
						for {
							_, err := p.call(kind, id, token{})
							if err == nil {
								break
							}
							if time.Now().After(deadline) {
								t.Errorf("%s of %s: %v", kind, id, err)
								return
							}
							time.Sleep(5 * time.Millisecond) // the step before is under way
						}
					}
				}
			}
		})
	}
	known := make([]map[string]*pb.Machine, 4)
	cursors := make([][]byte, 4)
	follow := func(r int) bool {
		l, err := p.List(context.Background(), &pb.ListFilter{MaxResults: []int32{0, 1, 3, 10}[r], SinceRevision: cursors[r]})
		if err != nil {
			t.Error(err)
			return false
		}
		inPage := map[string]bool{}
		for _, m := range l.GetMachines() {
			if inPage[m.GetId()] {
				t.Errorf("%s is twice in one page", m.GetId())
			}
			inPage[m.GetId()] = true
			known[r][m.GetId()] = m
		}
		if len(l.GetMachines()) == 0 && cursors[r] != nil && !bytes.Equal(l.GetRevision(), cursors[r]) {
			t.Error("an empty delta moved the revision")
		}
		cursors[r] = l.GetRevision()
		return len(l.GetMachines()) > 0
	}
	for r := range known {
		known[r] = map[string]*pb.Machine{}
		readers.Go(func() {
			for !done.Load() {
				follow(r)
			}
		})
	}
	writers.Wait()
	await(t, "the end of all transitions", func() bool {
		return len(p.page([]pb.MachineState{speculative}, 0, nil).GetMachines()) == 24
	})
	done.Store(true)
	readers.Wait()
	want := map[string]*pb.Machine{}
	for _, m := range p.list().GetMachines() {
		want[m.GetId()] = m
	}
	for r := range known {
		for follow(r) {
		}
		if diff := cmp.Diff(want, known[r], protocmp.Transform()); diff != "" {
			t.Errorf("reader %d believes something else (-list +deltas):\n%s", r, diff)
		}
	}
}

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	services := func(p *provider) ([]string, error) {
		stream, err := reflectionpb.NewServerReflectionClient(p.conn).ServerReflectionInfo(t.Context())
		if err != nil {
			return nil, err
		}
		if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
			return nil, err
		}
		answer, err := stream.Recv()
		var names []string
		for _, s := range answer.GetListServicesResponse().GetService() {
			names = append(names, s.GetName())
		}
		return names, err
	}
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify")
	for service, want := range map[string]healthpb.HealthCheckResponse_ServingStatus{
		"": healthpb.HealthCheckResponse_SERVING,
		pb.CapacityProvider_ServiceDesc.ServiceName: healthpb.HealthCheckResponse_SERVING,
	} {
		r, err := healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != want {
			t.Errorf("health of %q: %v, %v", service, r.GetStatus(), err)
		}
	}
	_, err := healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nobody"})
	wantCode(t, "health of nobody", err, codes.NotFound)
	names, err := services(p)
	if err != nil || !slices.Contains(names, "bigfleet.v1alpha1.CapacityProvider") || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("reflection names %v, %v", names, err)
	}

	// A watcher learns of the stop before the port goes.
	watch, err := healthpb.NewHealthClient(p.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("watch: %v, %v", r, err)
	}
	stopped := make(chan int, 1)
	go func() { stopped <- p.terminate() }()
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("watch at the stop: %v, %v", r, err)
	}
	if code := <-stopped; code != 0 {
		t.Errorf("exit code %d", code)
	}

	without := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--reflection=false")
	_, err = services(without)
	wantCode(t, "reflection that is off", err, codes.Unimplemented)
}

// TestCompressedCalls: a client may compress. The refusal of a server that
// cannot would be UNIMPLEMENTED, which means something else on this service.
func TestCompressedCalls(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--seed-count=500")
	want := p.list()
	got, err := p.List(t.Context(), &pb.ListFilter{}, grpc.UseCompressor(gzip.Name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("plain and compressed lists differ (-plain +compressed):\n%s", diff)
	}
	if _, err := p.Create(t.Context(), &pb.CreateRequest{MachineId: want.GetMachines()[0].GetId()}, grpc.UseCompressor(gzip.Name)); err != nil {
		t.Error(err)
	}
}

// TestReconcileMovesNothing: passes over the inventory that find nothing new
// move no revision.
func TestReconcileMovesNothing(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--reconcile-interval=1s")
	id := p.machines(1)[0]
	p.must("Create", id, token{}, idle)
	p.must("Configure", id, token{}, configured)
	passes := func() float64 { return p.counter(t, `bigfleet_reconciles_total{result="complete"}`) }
	before, done := p.list(), passes()
	await(t, "two more passes", func() bool { return passes() >= done+2 })
	if diff := cmp.Diff(before, p.list(), protocmp.Transform()); diff != "" {
		t.Errorf("the passes changed the list (-before +after):\n%s", diff)
	}
}

// TestUnknownFields: a newer client may send fields that this version does not
// know; they are no fault.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify")
	req := &pb.CreateRequest{MachineId: p.machines(1)[0]}
	req.ProtoReflect().SetUnknown([]byte{0xfa, 0x3e, 2, 'h', 'i'}) // field 1007, bytes
	if err := p.send(req); err != nil {
		t.Error(err)
	}
	filter := &pb.ListFilter{MaxResults: 1}
	filter.ProtoReflect().SetUnknown([]byte{0x12, 1, 'x'}) // reserved field 2
	if l, err := p.List(t.Context(), filter); err != nil || len(l.GetMachines()) != 1 || proto.Size(l) == 0 {
		t.Errorf("%v, %v", l, err)
	}
}
