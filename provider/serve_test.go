package provider

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/rpc"
	"bigfleet-providers/provider/internal/telemetry"
)

// slowLife holds each call until it is let go.
type slowLife struct{ entered, release chan struct{} }

func (l slowLife) Start(context.Context, machine.Request, []byte) (string, machine.Record, error) {
	l.entered <- struct{}{}
	<-l.release
	return "operation", machine.Record{ID: "m", State: machine.Creating}, nil
}

// TestStopWaitsForCallsNotForStreams: a call in flight is answered; a health
// watch, which would never end by itself, is told and then cut off.
func TestStopWaitsForCallsNotForStreams(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	life := slowLife{make(chan struct{}), make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	var serving atomic.Bool // readiness is said by it
	go func() {
		served <- serveGRPC(ctx, ln, rpc.New(life, nil, "p"), grpcOptions{
			stopTimeout: 30 * time.Second, serving: &serving, metrics: newMetrics(telemetry.NewRegistry("toy", "p", "test")), log: slog.New(slog.DiscardHandler),
		})
	}()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("watch: %v, %v", r, err)
	}
	if !serving.Load() {
		t.Error("calls are taken, and it is not said")
	}
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewCapacityProviderClient(conn).Create(t.Context(), &pb.CreateRequest{MachineId: "m"})
		answered <- err
	}()
	<-life.entered

	stop()
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("watch at the stop: %v, %v", r, err)
	}
	if serving.Load() {
		t.Error("calls are not taken any more, and it is not said")
	}
	select {
	case err := <-served:
		t.Fatalf("stopped with a call in flight: %v", err)
	case <-time.After(3 * streamLinger):
	}
	close(life.release)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("serve: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the stop waits for the health watch")
	}
}

// TestTooManyCallsAreRefused fills the server with calls over several
// connections: the next one is told to come again, and those inside are served.
func TestTooManyCallsAreRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	life := slowLife{make(chan struct{}, maxCalls), make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- serveGRPC(ctx, ln, rpc.New(life, nil, "p"), grpcOptions{
			stopTimeout: 30 * time.Second, serving: new(atomic.Bool), metrics: newMetrics(telemetry.NewRegistry("toy", "p", "test")), log: slog.New(slog.DiscardHandler),
		})
	}()
	dial := func() pb.CapacityProviderClient {
		conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return pb.NewCapacityProviderClient(conn)
	}
	answers := make(chan error, maxCalls)
	for range maxCalls / maxStreams {
		client := dial()
		for range maxStreams {
			go func() {
				_, err := client.Create(t.Context(), &pb.CreateRequest{MachineId: "m"})
				answers <- err
			}()
		}
	}
	for range maxCalls {
		<-life.entered
	}
	if _, err := dial().Create(t.Context(), &pb.CreateRequest{MachineId: "m"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one call too many: %v", err)
	}
	close(life.release)
	for range maxCalls {
		if err := <-answers; err != nil {
			t.Errorf("a call inside the limit: %v", err)
			break
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// TestSilentConnectionsAreBounded: those above the limit wait outside, until the
// ones inside have used up their time.
func TestSilentConnectionsAreBounded(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const limit = 20
	var accepted atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- serveGRPC(ctx, counting{newListener(ln), &accepted}, rpc.New(slowLife{}, nil, "p"), grpcOptions{
			connections: limit, stopTimeout: time.Second, serving: new(atomic.Bool), metrics: newMetrics(telemetry.NewRegistry("toy", "p", "test")), log: slog.New(slog.DiscardHandler),
		})
	}()
	var silent []net.Conn
	for range limit + 20 {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	deadline := time.Now().Add(10 * time.Second)
	for accepted.Load() < limit && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // for one too many
	if n := accepted.Load(); n != limit {
		t.Errorf("%d connections are accepted, want %d", n, limit)
	}
	for _, c := range silent {
		c.Close()
	}
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("a caller afterwards: %v", err)
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// counting counts what a listener accepts.
type counting struct {
	net.Listener
	n *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}
