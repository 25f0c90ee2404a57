package crash

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

const (
	speculative = pb.MachineState_MACHINE_STATE_SPECULATIVE
	creating    = pb.MachineState_MACHINE_STATE_CREATING
	idle        = pb.MachineState_MACHINE_STATE_IDLE
	configuring = pb.MachineState_MACHINE_STATE_CONFIGURING
	configured  = pb.MachineState_MACHINE_STATE_CONFIGURED
	draining    = pb.MachineState_MACHINE_STATE_DRAINING
	deleting    = pb.MachineState_MACHINE_STATE_DELETING
	failed      = pb.MachineState_MACHINE_STATE_FAILED
)

// callTimeout bounds one call.
const callTimeout = 10 * time.Second

// kind is a kind of mutating call.
type kind string

const (
	create    kind = "Create"
	configure kind = "Configure"
	drain     kind = "Drain"
	remove    kind = "Delete"
)

// edge is where a kind of call leads.
type edge struct{ from, during, to pb.MachineState }

var edges = map[kind]edge{
	create:    {speculative, creating, idle},
	configure: {idle, configuring, configured},
	drain:     {configured, draining, idle},
	remove:    {idle, deleting, speculative},
}

func transitional(s pb.MachineState) bool {
	return slices.Contains([]pb.MachineState{creating, configuring, draining, deleting}, s)
}

// token is a fencing token.
type token struct {
	shard           string
	epoch, sequence int64
}

// binding is what a Configure asks for.
type binding struct {
	cluster, blob string
	metadata      map[string]string
}

// send makes one mutating call.
func (w *world) send(k kind, id string, t token, b binding) (*pb.TransitionAck, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	switch k {
	case create:
		return w.Create(ctx, &pb.CreateRequest{MachineId: id, ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence})
	case configure:
		return w.Configure(ctx, &pb.ConfigureRequest{
			MachineId: id, ClusterId: b.cluster, BootstrapBlob: []byte(b.blob), ShardMetadata: b.metadata,
			ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence,
		})
	case drain:
		return w.Drain(ctx, &pb.DrainRequest{MachineId: id, ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence})
	case remove:
		return w.Delete(ctx, &pb.DeleteRequest{MachineId: id, ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence})
	default:
		return nil, fmt.Errorf("kind %q", k)
	}
}

func (w *world) get(id string) (*pb.Machine, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return w.Get(ctx, &pb.MachineRef{Id: id})
}

// unanswered says that a call may or may not have been accepted.
func unanswered(err error) bool {
	return slices.Contains([]codes.Code{codes.Unavailable, codes.Canceled, codes.DeadlineExceeded}, status.Code(err))
}
