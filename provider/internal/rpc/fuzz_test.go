package rpc

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
)

// pool is a lifecycle and a reader that judge as the provider does, without a
// disk or a cloud.
type pool struct {
	recs map[string]machine.Record
	ops  int
}

func (p *pool) Start(_ context.Context, q machine.Request, blob []byte) (string, machine.Record, error) {
	p.ops++
	q.OperationID, q.BlobBytes, q.Timeout = fmt.Sprint("op-", p.ops), len(blob), time.Hour
	d := machine.Decide(p.recs[q.MachineID], q, machine.Rules{CanDelete: true}, time.Unix(0, 0))
	if d.Change != machine.Unchanged && d.Next.State != machine.Unknown {
		p.recs[q.MachineID] = d.Next
	}
	if d.Err != nil {
		return "", machine.Record{}, d.Err
	}
	return d.OperationID, d.Next, nil
}

func (p *pool) Frame(id string) ([]byte, bool) {
	rec, ok := p.recs[id]
	return framer.Frame(&rec), ok
}

func (p *pool) Frames(states []machine.State, limit int, _ []byte) ([][]byte, []byte) {
	var frames [][]byte
	for _, id := range []string{"m0", "m1"} {
		if rec := p.recs[id]; (len(states) == 0 || slices.Contains(states, rec.State)) && (limit == 0 || len(frames) < limit) {
			frames = append(frames, framer.Frame(&rec))
		}
	}
	return frames, []byte("revision")
}

// answers are what each method answers with.
var answers = map[string]func() proto.Message{
	"Create": func() proto.Message { return new(pb.TransitionAck) }, "Configure": func() proto.Message { return new(pb.TransitionAck) },
	"Drain": func() proto.Message { return new(pb.TransitionAck) }, "Delete": func() proto.Message { return new(pb.TransitionAck) },
	"Get": func() proto.Message { return new(pb.Machine) }, "List": func() proto.Message { return new(pb.MachineList) },
}

// registrar keeps a service's description.
type registrar struct{ desc *grpc.ServiceDesc }

func (r *registrar) RegisterService(desc *grpc.ServiceDesc, _ any) { r.desc = desc }

// FuzzRequests gives bytes to each method as the body of a call, from one state
// of the machines to the next. Whatever they are, the answer is a message of the
// protocol or one of its codes.
func FuzzRequests(f *testing.F) {
	seed := func(method byte, m proto.Message) {
		body, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(method, body)
	}
	big := int64(1<<63 - 1)
	seed(0, &pb.ConfigureRequest{MachineId: "m1", ClusterId: "c", BootstrapBlob: []byte("blob"), ShardId: "s", ShardEpoch: 1, SequenceNumber: 2, ShardMetadata: map[string]string{"k": "v\x00"}})
	seed(1, &pb.CreateRequest{MachineId: "m0", ShardId: "s", ShardEpoch: big, SequenceNumber: big})
	seed(2, &pb.DeleteRequest{MachineId: "m1"})
	seed(3, &pb.DrainRequest{MachineId: "m1", GracePeriodSeconds: -big})
	seed(4, &pb.MachineRef{Id: "m0"})
	seed(5, &pb.ListFilter{States: []pb.MachineState{1, 8, 77, -3}, MaxResults: 1, SinceRevision: []byte("x")})
	f.Add(byte(0), []byte{0xff})
	f.Add(byte(5), []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})

	var reg registrar
	offer := &machine.Offer{InstanceType: "t", Zone: "z"}
	allowed := []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.Internal, codes.Aborted}
	f.Fuzz(func(t *testing.T, method byte, body []byte) {
		p := &pool{recs: map[string]machine.Record{
			"m0": {ID: "m0", State: machine.Speculative, Offer: offer},
			"m1": {ID: "m1", State: machine.Idle, Offer: offer, Host: "r"},
		}}
		srv := New(p, p, "p")
		srv.Register(&reg)
		methods := slices.SortedFunc(slices.Values(reg.desc.Methods), func(a, b grpc.MethodDesc) int { return cmp.Compare(a.MethodName, b.MethodName) })
		m := methods[int(method)%len(methods)]
		decode := func(into any) error {
			if err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(body)}, into); err != nil {
				return status.Error(codes.Internal, err.Error()) // as gRPC answers
			}
			return nil
		}
		for range 2 { // a first call and its repetition
			out, err := m.Handler(srv, t.Context(), decode, nil)
			if err != nil {
				if !slices.Contains(allowed, status.Code(err)) {
					t.Errorf("%s: %v", m.MethodName, err)
				}
				continue
			}
			wire, err := Codec().Marshal(out)
			if err != nil {
				t.Fatalf("%s: the answer cannot be sent: %v", m.MethodName, err)
			}
			if err := proto.Unmarshal(wire.Materialize(), answers[m.MethodName]()); err != nil {
				t.Errorf("%s: the answer is no message: %v", m.MethodName, err)
			}
		}
	})
}
