package contract

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
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
	deleting    = pb.MachineState_MACHINE_STATE_DELETING
	failed      = pb.MachineState_MACHINE_STATE_FAILED
)

// kind is a mutating call.
type kind int

const (
	create kind = iota
	configure
	drain
	del
)

// kinds are the mutating calls, in the order of a machine's life.
var kinds = []kind{create, configure, drain, del}

// possible are the kinds that the server carries out. A substrate that gives
// nothing back answers UNIMPLEMENTED to every Delete.
func possible() []kind {
	if keeps() {
		return kinds[:del]
	}
	return kinds
}

// edges are the transitions that the calls start.
var edges = [...]struct {
	name             string
	from, during, to pb.MachineState
}{
	create:    {"Create", speculative, creating, idle},
	configure: {"Configure", idle, configuring, configured},
	drain:     {"Drain", configured, draining, idle},
	del:       {"Delete", idle, deleting, speculative},
}

func (k kind) String() string { return edges[k].name }

// token is a fencing token.
type token struct {
	shard           string
	epoch, sequence int64
}

// call is a mutating call.
type call struct {
	kind     kind
	id       string
	token    token
	cluster  string            // Configure
	metadata map[string]string // Configure
	grace    int64             // Drain, in seconds
}

// answer is what became of a call.
type answer struct {
	operation string
	machine   *pb.Machine
	err       error
}

func (a answer) code() codes.Code { return status.Code(a.err) }

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("operation %s, %s", a.operation, a.machine.GetState())
}

// request is the message of the call.
func (c call) request() proto.Message {
	switch t := c.token; c.kind {
	case create:
		return &pb.CreateRequest{MachineId: c.id, ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence}
	case configure:
		return &pb.ConfigureRequest{
			MachineId: c.id, ClusterId: c.cluster, BootstrapBlob: blob, ShardMetadata: c.metadata,
			ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence,
		}
	case drain:
		return &pb.DrainRequest{MachineId: c.id, GracePeriodSeconds: c.grace, ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence}
	default:
		return &pb.DeleteRequest{MachineId: c.id, ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence}
	}
}

func (s *server) do(c call) answer { return s.send(c.request()) }

// send sends a request of a mutating call.
func (s *server) send(req proto.Message) answer {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var ack *pb.TransitionAck
	var err error
	switch r := req.(type) {
	case *pb.CreateRequest:
		ack, err = s.Create(ctx, r)
	case *pb.ConfigureRequest:
		ack, err = s.Configure(ctx, r)
	case *pb.DrainRequest:
		ack, err = s.Drain(ctx, r)
	case *pb.DeleteRequest:
		ack, err = s.Delete(ctx, r)
	default:
		err = fmt.Errorf("%T is no mutating request", req)
	}
	return answer{ack.GetOperationId(), ack.GetMachine(), err}
}

var sequence atomic.Int64

// fresh is a token that is newer than any other of its shard.
func fresh() token { return token{run, 1, sequence.Add(1)} }

// try sends a call that has nothing wrong with it but, perhaps, its token or
// its time.
func (s *server) try(k kind, id string, tok token) answer {
	return s.do(call{kind: k, id: id, token: tok, cluster: "c"})
}

// accepted sends a call that has to be accepted and returns its operation.
func (s *server) accepted(c call) string {
	s.t.Helper()
	a := s.do(c)
	if a.err != nil {
		s.t.Fatalf("%s %s %v: %v", c.kind, c.id, c.token, a.err)
	}
	return a.operation
}

// must sends a call that has to be accepted, waits for its end and returns its
// operation.
func (s *server) must(k kind, id string, tok token) string {
	s.t.Helper()
	operation := s.accepted(call{kind: k, id: id, token: tok, cluster: "c"})
	s.await(id, edges[k].to)
	return operation
}

func (s *server) read(id string) (*pb.Machine, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, err := s.Get(ctx, &pb.MachineRef{Id: id})
	if err != nil {
		return nil, fmt.Errorf("Get %s: %w", id, err)
	}
	return m, nil
}

func (s *server) get(id string) *pb.Machine {
	s.t.Helper()
	m, err := s.read(id)
	if err != nil {
		s.t.Fatalf("%v", err)
	}
	return m
}

func (s *server) page(states []pb.MachineState, most int32, since []byte) *pb.MachineList {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := s.List(ctx, &pb.ListFilter{States: states, MaxResults: most, SinceRevision: since})
	if err != nil {
		s.t.Fatalf("List(%v, %d, %x): %v", states, most, since, err)
	}
	return l
}

func (s *server) list() *pb.MachineList {
	s.t.Helper()
	return s.page(nil, 0, nil)
}

// rest waits until the machine is in no transition.
func (s *server) rest(id string) *pb.Machine {
	s.t.Helper()
	for deadline := time.Now().Add(*settle); ; time.Sleep(10 * time.Millisecond) {
		m := s.get(id)
		if _, moving := ends[m.GetState()]; !moving {
			return m
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s stays %s for %s: see -settle", id, m.GetState(), *settle)
		}
	}
}

// await waits until the machine is in the state, and in no transition any more.
func (s *server) await(id string, want pb.MachineState) *pb.Machine {
	s.t.Helper()
	m := s.rest(id)
	if m.GetState() != want {
		s.t.Fatalf("%s is %s (%s), want %s", id, m.GetState(), m.GetLastError(), want)
	}
	return m
}

// wantKept expects a Delete to be unknown to the server, and to touch nothing.
func (s *server) wantKept(id string, tok token) {
	s.t.Helper()
	s.unchanged("Delete", func() {
		wantCode(s.t, "Delete where nothing is given back", s.try(del, id, tok).err, codes.Unimplemented)
	})
}

// unchanged runs a call and fails if it moved anything that List shows.
func (s *server) unchanged(what string, call func()) {
	s.t.Helper()
	before := s.list()
	call()
	if after := s.list(); !proto.Equal(before, after) {
		s.t.Errorf("%s changed the machines or the revision", what)
	}
}

func idsOf(l *pb.MachineList) []string {
	var ids []string
	for _, m := range l.GetMachines() {
		ids = append(ids, m.GetId())
	}
	return ids
}

func wantCode(t tester, what string, err error, want codes.Code, text ...string) {
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

// wantMisplaced expects the refusal of a call that does not fit the state. It
// must not look like a stale token, which a human is paged for, nor like
// anything else that has a code of its own on this service.
func wantMisplaced(t tester, what string, err error) {
	t.Helper()
	if !misplaced(status.Code(err)) {
		t.Errorf("%s: %v, want INTERNAL or ABORTED", what, err)
	}
}

func misplaced(code codes.Code) bool { return code == codes.Internal || code == codes.Aborted }
