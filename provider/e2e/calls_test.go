package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

const (
	unspecified = pb.MachineState_MACHINE_STATE_UNSPECIFIED
	speculative = pb.MachineState_MACHINE_STATE_SPECULATIVE
	creating    = pb.MachineState_MACHINE_STATE_CREATING
	idle        = pb.MachineState_MACHINE_STATE_IDLE
	configuring = pb.MachineState_MACHINE_STATE_CONFIGURING
	configured  = pb.MachineState_MACHINE_STATE_CONFIGURED
	draining    = pb.MachineState_MACHINE_STATE_DRAINING
	failed      = pb.MachineState_MACHINE_STATE_FAILED
)

// maxBlob is the limit that the contract states.
const maxBlob = 1 << 20

// token is a fencing token.
type token struct {
	shard           string
	epoch, sequence int64
}

// kinds are the mutating calls, in the order of a machine's life.
var kinds = []string{"Create", "Configure", "Drain", "Delete"}

// call sends a mutating call that has nothing wrong with it but, perhaps, its
// token or its time.
func (p *provider) call(kind, id string, tok token) (*pb.TransitionAck, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch kind {
	case "Create":
		return p.Create(ctx, &pb.CreateRequest{MachineId: id, ShardId: tok.shard, ShardEpoch: tok.epoch, SequenceNumber: tok.sequence})
	case "Configure":
		return p.Configure(ctx, &pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: []byte("blob"), ShardId: tok.shard, ShardEpoch: tok.epoch, SequenceNumber: tok.sequence})
	case "Drain":
		return p.Drain(ctx, &pb.DrainRequest{MachineId: id, ShardId: tok.shard, ShardEpoch: tok.epoch, SequenceNumber: tok.sequence})
	case "Delete":
		return p.Delete(ctx, &pb.DeleteRequest{MachineId: id, ShardId: tok.shard, ShardEpoch: tok.epoch, SequenceNumber: tok.sequence})
	default:
		p.t.Fatalf("no call is named %q", kind)
		return nil, nil
	}
}

// must sends a call that has to be accepted and waits for its end, unless end
// is UNSPECIFIED.
func (p *provider) must(kind, id string, tok token, end pb.MachineState) string {
	p.t.Helper()
	ack, err := p.call(kind, id, tok)
	if err != nil {
		p.t.Fatalf("%s %s %v: %v", kind, id, tok, err)
	}
	if end != unspecified {
		if _, err := p.await(id, end); err != nil {
			p.t.Fatal(err)
		}
	}
	return ack.GetOperationId()
}

// machines returns n ids of machines that nothing was done with.
func (p *provider) machines(n int) []string {
	p.t.Helper()
	l, err := p.List(context.Background(), &pb.ListFilter{States: []pb.MachineState{speculative}})
	if err != nil || len(l.GetMachines()) < n {
		p.t.Fatalf("%d machines are SPECULATIVE, want %d: %v", len(l.GetMachines()), n, err)
	}
	var ids []string
	for _, m := range l.GetMachines()[:n] {
		ids = append(ids, m.GetId())
	}
	return ids
}

func wantCode(t *testing.T, what string, err error, want codes.Code, text ...string) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	for _, part := range text {
		if err != nil && !strings.Contains(status.Convert(err).Message(), part) {
			t.Errorf("%s: %q does not say %q", what, status.Convert(err).Message(), part)
		}
	}
}

// send sends any mutating request.
func (p *provider) send(req proto.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	switch r := req.(type) {
	case *pb.CreateRequest:
		_, err = p.Create(ctx, r)
	case *pb.ConfigureRequest:
		_, err = p.Configure(ctx, r)
	case *pb.DrainRequest:
		_, err = p.Drain(ctx, r)
	case *pb.DeleteRequest:
		_, err = p.Delete(ctx, r)
	default:
		p.t.Fatalf("%T is no mutating request", req)
	}
	return err
}

func TestRequireFence(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--require-fence")
	id := p.machines(1)[0]
	for _, kind := range kinds {
		_, err := p.call(kind, id, token{})
		wantCode(t, kind+" without a token", err, codes.InvalidArgument, "--require-fence")
	}
	p.must("Create", id, token{"s", 0, 0}, idle)
}
