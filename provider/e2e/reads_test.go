package e2e

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
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

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	services := func(p *provider) ([]string, error) {
		stream, err := reflectionpb.NewServerReflectionClient(p.conn).ServerReflectionInfo(t.Context())
		if err != nil {
			return nil, err
		}
		if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil && !errors.Is(err, io.EOF) {
			return nil, err // after an EOF, Recv says why the stream ended
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

// TestReconcileMovesNothing: passes over the inventory that find nothing new
// move no revision.
func TestReconcileMovesNothing(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--reconcile-interval=1s")
	id := p.machines(1)[0]
	p.must("Create", id, token{}, idle)
	p.must("Configure", id, token{}, configured)
	passes := func() float64 { return p.counter(t, `bigfleet_scaleway_reconciles_total{result="complete"}`) }
	before, done := p.list(), passes()
	await(t, "two more passes", func() bool { return passes() >= done+2 })
	if diff := cmp.Diff(before, p.list(), protocmp.Transform()); diff != "" {
		t.Errorf("the passes changed the list (-before +after):\n%s", diff)
	}
}
