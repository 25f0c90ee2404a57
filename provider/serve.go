package provider

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // without it a client that compresses is told UNIMPLEMENTED
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/rpc"
)

// maxRequestBytes is gRPC's own default limit on a request, stated because the
// contract's limits on blob and metadata rely on it.
const maxRequestBytes = 4 << 20

// handshakeTimeout bounds a connection's way to its first call. gRPC's own two
// minutes would let a stuck one hold up the stop for as long.
const handshakeTimeout = 10 * time.Second

// streamLinger is what health watchers get to read NOT_SERVING at the end.
const streamLinger = 200 * time.Millisecond

const (
	// maxStreams bounds the calls of one connection, maxCalls those of all. Each
	// may hold a request of maxRequestBytes; shards have some dozens of workers.
	maxStreams = 256
	maxCalls   = 1024
	// maxConnections keeps whoever opens connections and says nothing from using
	// up the process's files, which the state and the calls to the cloud need too.
	// More wait in the listener's queue until one ends.
	maxConnections = 4096
)

// grpcOptions are how the gRPC port is served.
type grpcOptions struct {
	tls             *tls.Config // nil: plaintext
	reflection      bool
	requireIdentity bool
	stopTimeout     time.Duration
	serving         *atomic.Bool    // told whether calls are taken
	lost            <-chan struct{} // closed when calls are refused for good; nil for never
	metrics         *metrics
	log             *slog.Logger
	more            []grpc.ServerOption
	connections     int // at a time; 0 means maxConnections
	flow            rpc.Limits
}

// serveGRPC serves the service, health and, if asked for, reflection on ln
// until ctx ends; then it lets calls in flight finish, up to a cap.
func serveGRPC(ctx context.Context, ln net.Listener, svc *rpc.Server, o grpcOptions) error {
	var calls atomic.Int64 // in flight; streams do not count
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(rpc.Codec()),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.ChainUnaryInterceptor(
			func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				defer calls.Add(-1)
				if calls.Add(1) > maxCalls {
					return nil, status.Errorf(codes.ResourceExhausted, "more than %d calls at once; try again after a pause", maxCalls)
				}
				return next(ctx, req)
			},
			rpc.Measure(o.log, o.metrics.observeCall),
			rpc.Recover(o.log, o.metrics.panicked.rpc.Inc),
			rpc.Authorise(o.requireIdentity, func(string, error) { o.metrics.denied.Inc() }),
		),
		// A shard behind a load balancer pings idle connections; gRPC's default
		// would hang up on it.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Minute, Timeout: 20 * time.Second}),
	}
	opts = append(opts, rpc.NewFlow(o.flow).Options()...)
	opts = append(opts, o.more...)
	if o.tls != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(o.tls)))
	}
	srv := grpc.NewServer(opts...)
	svc.Register(srv)
	probe := health.NewServer()
	probe.SetServingStatus(pb.CapacityProvider_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(srv, probe)
	if o.reflection {
		reflection.Register(srv)
	}

	served := make(chan error, 1)
	go func() { served <- srv.Serve(netutil.LimitListener(ln, cmp.Or(o.connections, maxConnections))) }()
	o.serving.Store(true)
	defer o.serving.Store(false)
	for lost := o.lost; ctx.Err() == nil; {
		select {
		case err := <-served:
			return err
		case <-lost:
			lost = nil
			for _, service := range []string{"", pb.CapacityProvider_ServiceDesc.ServiceName} {
				probe.SetServingStatus(service, healthpb.HealthCheckResponse_NOT_SERVING)
			}
		case <-ctx.Done():
		}
	}
	o.serving.Store(false)
	probe.Shutdown()
	graceful := make(chan struct{})
	go func() {
		srv.GracefulStop()
		close(graceful)
	}()
	// GracefulStop alone would wait for streams too, and a health watch or a
	// reflection client stays on its stream for as long as we serve.
	timer, tick := time.NewTimer(o.stopTimeout), time.NewTicker(streamLinger)
	defer timer.Stop()
	defer tick.Stop()
	for idle := false; ; {
		select {
		case <-graceful:
			return <-served
		case <-tick.C:
			// Idle at two looks in a row: a call's answer is still on its way out when
			// its handler has returned.
			wasIdle := idle
			if idle = calls.Load() == 0; !idle || !wasIdle {
				continue
			}
		case <-timer.C:
			o.log.Warn("calls in flight were cut off", "after", o.stopTimeout.String())
		}
		srv.Stop() // makes GracefulStop return
		<-graceful
		return <-served
	}
}

// serveHTTP serves a plain HTTP handler until ctx ends.
func serveHTTP(ctx context.Context, ln net.Listener, h http.Handler, log *slog.Logger) error {
	return serveServer(ctx, ln, newHTTPServer(h, log))
}

// newHTTPServer has limits on everything a client could drag out.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func serveServer(ctx context.Context, ln net.Listener, srv *http.Server) error {
	served := make(chan error, 1)
	if ln.Addr().Network() != "unix" { // whose connections tell who is there, unless they are wrapped
		ln = netutil.LimitListener(ln, maxConnections)
	}
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // a slow reader is no failure of ours
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// listen opens a TCP port and names the flag if it cannot.
func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--%s %s: %w; stop what listens there (ss -ltnp shows it), or name another address", flag, addr, err)
	case err != nil:
		return nil, fmt.Errorf("--%s %s: %w", flag, addr, err)
	}
	return newListener(ln), nil
}
