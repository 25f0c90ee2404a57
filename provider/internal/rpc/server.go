// Package rpc serves the CapacityProvider protocol: it turns messages into
// calls on the lifecycle, verdicts into gRPC codes, and committed records into
// answers that were encoded when they were committed.
package rpc

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
)

// Lifecycle accepts mutating calls. It answers once the verdict is durable.
type Lifecycle interface {
	Start(ctx context.Context, q machine.Request, blob []byte) (operationID string, rec machine.Record, err error)
}

// Reader shows committed machines as the frames that a Framer made of them.
type Reader interface {
	// Frame returns one machine, false when there is none under the id.
	Frame(id string) ([]byte, bool)
	// Frames returns the machines in one of the states (all when there is none),
	// at most limit of them (0: no limit) that changed after the revision since,
	// in the order of their last change, and the revision to continue from.
	Frames(states []machine.State, limit int, since []byte) (frames [][]byte, revision []byte)
}

// Server implements the CapacityProvider service.
type Server struct {
	pb.UnimplementedCapacityProviderServer
	life     Lifecycle
	reads    Reader
	provider string
	building *semaphore.Weighted // of lists
}

// building is how many lists are put together at a time: half of the processors,
// since it is work for them alone, and the calls that are small come between.
func building() int64 { return int64(max(1, runtime.GOMAXPROCS(0)/2)) }

// New makes a server of the provider of that name, which is the one in
// HostRef.provider. Add it to a gRPC server with Register; the gRPC server
// must use Codec.
func New(life Lifecycle, reads Reader, provider string) *Server {
	return &Server{life: life, reads: reads, provider: provider, building: semaphore.NewWeighted(building())}
}

// Register adds the service to r. Get and List bypass the generated handlers,
// since those can only return decoded messages.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	desc := pb.CapacityProvider_ServiceDesc
	desc.Methods = append([]grpc.MethodDesc(nil), desc.Methods...)
	for i := range desc.Methods {
		switch m := &desc.Methods[i]; m.MethodName {
		case "Get":
			m.Handler = handler(pb.CapacityProvider_Get_FullMethodName, s.get)
		case "List":
			m.Handler = handler(pb.CapacityProvider_List_FullMethodName, s.list)
		}
	}
	r.RegisterService(&desc, s)
}

// handler adapts a read to what gRPC calls for a method.
func handler[In any](method string, read func(context.Context, *In) (*encoded, error)) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(In)
		if err := decode(in); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, req any) (any, error) { return read(ctx, req.(*In)) }
		if intercept == nil {
			return call(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: method}, call)
	}
}

// Mutations are the full names of the methods that can begin a transition.
func Mutations() []string {
	return []string{
		pb.CapacityProvider_Create_FullMethodName, pb.CapacityProvider_Configure_FullMethodName,
		pb.CapacityProvider_Drain_FullMethodName, pb.CapacityProvider_Delete_FullMethodName,
	}
}

// Create implements the service.
func (s *Server) Create(ctx context.Context, in *pb.CreateRequest) (*pb.TransitionAck, error) {
	return s.start(ctx, machine.Request{Kind: machine.Create, MachineID: in.GetMachineId(), Fence: fenceOf(in)}, nil)
}

// Configure implements the service.
func (s *Server) Configure(ctx context.Context, in *pb.ConfigureRequest) (*pb.TransitionAck, error) {
	return s.start(ctx, machine.Request{
		Kind: machine.Configure, MachineID: in.GetMachineId(), Fence: fenceOf(in),
		Cluster: in.GetClusterId(), Metadata: in.GetShardMetadata(),
	}, in.GetBootstrapBlob())
}

// Drain implements the service.
func (s *Server) Drain(ctx context.Context, in *pb.DrainRequest) (*pb.TransitionAck, error) {
	return s.start(ctx, machine.Request{
		Kind: machine.Drain, MachineID: in.GetMachineId(), Fence: fenceOf(in),
		GraceSeconds: in.GetGracePeriodSeconds(),
	}, nil)
}

// Delete implements the service.
func (s *Server) Delete(ctx context.Context, in *pb.DeleteRequest) (*pb.TransitionAck, error) {
	return s.start(ctx, machine.Request{Kind: machine.Delete, MachineID: in.GetMachineId(), Fence: fenceOf(in)}, nil)
}

// fenced is every mutating request.
type fenced interface {
	GetShardId() string
	GetShardEpoch() int64
	GetSequenceNumber() int64
}

func fenceOf(in fenced) machine.Fence {
	return machine.Fence{Shard: in.GetShardId(), Epoch: in.GetShardEpoch(), Sequence: in.GetSequenceNumber()}
}

func (s *Server) start(ctx context.Context, q machine.Request, blob []byte) (*pb.TransitionAck, error) {
	id, rec, err := s.life.Start(ctx, q, blob)
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.TransitionAck{OperationId: id, Machine: toProto(&rec, s.provider)}, nil
}

func (s *Server) get(_ context.Context, in *pb.MachineRef) (*encoded, error) {
	if in.GetId() == "" {
		return nil, status.Error(codes.InvalidArgument, "id: missing")
	}
	if n := len(in.GetId()); n > machine.MaxIDBytes {
		return nil, status.Errorf(codes.InvalidArgument, "id: %d bytes, the limit is %d", n, machine.MaxIDBytes)
	}
	frame, ok := s.reads.Frame(in.GetId())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "machine %q: not found", in.GetId())
	}
	return &encoded{data: join([][]byte{unframe(frame)})}, nil
}

func (s *Server) list(ctx context.Context, in *pb.ListFilter) (*encoded, error) {
	if in.GetMaxResults() < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "max_results: %d is negative; 0 means no cap", in.GetMaxResults())
	}
	states := make([]machine.State, 0, len(in.GetStates()))
	for _, st := range in.GetStates() {
		states = append(states, machine.State(st))
	}
	collect := func() (frames [][]byte, size int) {
		frames, revision := s.reads.Frames(states, int(in.GetMaxResults()), in.GetSinceRevision())
		frames = append(frames, appendRevision(nil, revision))
		for _, f := range frames {
			size += len(f)
		}
		return frames, size
	}
	// The slice alone is megabytes of a large fleet: few hold one at a time, and
	// none of those that wait for room.
	build := func(l *lease) (out *encoded, size int, err error) {
		if err := s.building.Acquire(ctx, 1); err != nil {
			return nil, 0, status.FromContextError(err).Err()
		}
		defer s.building.Release(1)
		frames, size := collect()
		if ctx.Err() != nil { // its caller went meanwhile
			return nil, 0, status.FromContextError(ctx.Err()).Err()
		}
		if l == nil {
			var wait bool
			if l, wait, err = reserve(ctx, size, false); wait || err != nil {
				return nil, size, err
			}
		}
		if l == nil {
			return &encoded{data: join(frames)}, size, nil
		}
		end := len(frames) - 1
		return &encoded{data: append(join(frames[:end]), l.last(frames[end]))}, size, nil
	}
	out, size, err := build(nil)
	if out != nil || err != nil {
		return out, err
	}
	l, _, err := reserve(ctx, size, true)
	if err != nil {
		return nil, err
	}
	if out, _, err = build(l); err != nil {
		l.release()
	}
	return out, err
}
