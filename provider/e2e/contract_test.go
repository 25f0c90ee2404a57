package e2e

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// The limits that the contract states.
const (
	maxID       = 256
	maxBlob     = 1 << 20
	maxMetadata = 1 << 20
	maxKeys     = 4096
)

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

// unchanged runs a call and fails if it moved anything that List shows.
func (p *provider) unchanged(what string, call func()) {
	p.t.Helper()
	before := p.list()
	call()
	if after := p.list(); !proto.Equal(before, after) {
		p.t.Errorf("%s changed the machines or the revision", what)
	}
}

func metadataOf(keys, bytes int) map[string]string {
	m := make(map[string]string, keys)
	for i := range keys {
		m[fmt.Sprintf("%08d", i)] = ""
	}
	m["00000000"] = strings.Repeat("v", bytes-8*keys)
	return m
}

func TestArguments(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify")
	ids := p.machines(8)
	id := ids[0]
	p.must("Create", id, token{"s", 1, 1}, idle)

	for name, c := range map[string]struct {
		req  proto.Message
		text []string
	}{
		"no machine_id on Create":    {&pb.CreateRequest{ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id: missing"}},
		"no machine_id on Configure": {&pb.ConfigureRequest{ClusterId: "c", ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id: missing"}},
		"no machine_id on Drain":     {&pb.DrainRequest{ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id: missing"}},
		"no machine_id on Delete":    {&pb.DeleteRequest{ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id: missing"}},
		"no cluster_id":              {&pb.ConfigureRequest{MachineId: id, ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"cluster_id: missing"}},
		"negative grace":             {&pb.DrainRequest{MachineId: id, GracePeriodSeconds: -1, ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"grace_period_seconds", "-1"}},
		"smallest grace":             {&pb.DrainRequest{MachineId: id, GracePeriodSeconds: math.MinInt64, ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"grace_period_seconds"}},
		"negative epoch":             {&pb.DeleteRequest{MachineId: id, ShardId: "s", ShardEpoch: -1, SequenceNumber: 9}, []string{"shard_epoch", "-1"}},
		"negative sequence":          {&pb.DeleteRequest{MachineId: id, ShardId: "s", ShardEpoch: 9, SequenceNumber: math.MinInt64}, []string{"sequence_number"}},
		"long machine_id":            {&pb.CreateRequest{MachineId: strings.Repeat("m", maxID+1), ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id", "257", "256"}},
		"long shard_id":              {&pb.CreateRequest{MachineId: ids[1], ShardId: strings.Repeat("s", maxID+1), ShardEpoch: 9, SequenceNumber: 9}, []string{"shard_id", "257", "256"}},
		"long cluster_id":            {&pb.ConfigureRequest{MachineId: id, ClusterId: strings.Repeat("c", maxID+1), ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"cluster_id", "257", "256"}},
		"large blob":                 {&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: make([]byte, maxBlob+1), ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"bootstrap_blob", "1048577", "1048576"}},
		"large metadata":             {&pb.ConfigureRequest{MachineId: id, ClusterId: "c", ShardMetadata: metadataOf(3, maxMetadata+1), ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"shard_metadata", "1048577", "1048576"}},
		"many keys":                  {&pb.ConfigureRequest{MachineId: id, ClusterId: "c", ShardMetadata: metadataOf(maxKeys+1, 8*(maxKeys+1)), ShardId: "s", ShardEpoch: 9, SequenceNumber: 9}, []string{"shard_metadata", "4097", "4096"}},
		"every fault at once": {
			&pb.ConfigureRequest{BootstrapBlob: make([]byte, maxBlob+1), ShardId: "s", ShardEpoch: -1, SequenceNumber: -2},
			[]string{"machine_id", "cluster_id", "shard_epoch", "sequence_number", "bootstrap_blob"},
		},
		"stale besides": {&pb.DrainRequest{MachineId: id, GracePeriodSeconds: -1, ShardId: "s", ShardEpoch: 0, SequenceNumber: 1}, []string{"grace_period_seconds"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := p.in(t)
			p.unchanged(name, func() {
				wantCode(t, name, p.send(c.req), codes.InvalidArgument, c.text...)
			})
		})
	}
	t.Run("a refused argument does not use up the token", func(t *testing.T) {
		p.in(t).must("Delete", id, token{"s", 1, 2}, speculative)
	})
	t.Run("too large for gRPC", func(t *testing.T) {
		p := p.in(t)
		p.unchanged("a huge request", func() {
			wantCode(t, "5 MiB", p.send(&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: make([]byte, 5<<20)}), codes.ResourceExhausted)
		})
	})
	t.Run("at the limits", func(t *testing.T) {
		p := p.in(t)
		id, metadata := ids[2], metadataOf(maxKeys, maxMetadata)
		tok := token{strings.Repeat("s", maxID), 1, 1}
		p.must("Create", id, tok, idle)
		cluster := strings.Repeat("c", maxID)
		if err := p.send(&pb.ConfigureRequest{MachineId: id, ClusterId: cluster, BootstrapBlob: make([]byte, maxBlob), ShardMetadata: metadata, ShardId: tok.shard, ShardEpoch: 1, SequenceNumber: 2}); err != nil {
			t.Fatal(err)
		}
		m, err := p.await(id, configured)
		if err != nil || m.GetCluster() != cluster || !equalMaps(m.GetShardMetadata(), metadata) {
			t.Errorf("CONFIGURED with cluster of %d bytes, %d keys: %v", len(m.GetCluster()), len(m.GetShardMetadata()), err)
		}
		wantCode(t, "the longest id", p.send(&pb.CreateRequest{MachineId: strings.Repeat("m", maxID)}), codes.NotFound)
	})
	t.Run("an empty blob and no metadata are fine", func(t *testing.T) {
		p := p.in(t)
		p.must("Create", ids[3], token{}, idle)
		if err := p.send(&pb.ConfigureRequest{MachineId: ids[3], ClusterId: "c"}); err != nil {
			t.Fatal(err)
		}
		if m, err := p.await(ids[3], configured); err != nil || len(m.GetShardMetadata()) > 0 {
			t.Errorf("%v, %v", m, err)
		}
	})
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

func TestFence(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify")
	ids := p.machines(12)
	next := func() string { id := ids[0]; ids = ids[1:]; return id }
	// A call out of position shows whether the fence let it through.
	passed := func(p *provider, id string, tok token) bool {
		_, err := p.call("Drain", id, tok)
		return status.Code(err) != codes.FailedPrecondition
	}

	t.Run("accepts only what is strictly newer", func(t *testing.T) {
		id, p := next(), p.in(t)
		for _, step := range []struct {
			tok  token
			want bool
		}{
			{token{"s", 5, 10}, true}, // first contact, whatever it is
			{token{"s", 5, 10}, false},
			{token{"s", 5, 9}, false},
			{token{"s", 4, 11}, false},
			{token{"s", 4, math.MaxInt64}, false},
			{token{"s", 5, 11}, true},
			{token{"s", 5, 20}, true}, // gaps are fine
			{token{"s", 6, 0}, true},  // a higher epoch restarts the sequence
			{token{"s", 5, 21}, false},
			{token{"s", 6, 0}, false},
			{token{"s", 6, 1}, true},
			{token{"s", 0, 0}, false}, // not an empty token: it names a shard
			{token{"", 0, 0}, true},   // an empty token is not fenced
			{token{"s", 6, 1}, false}, // nor does it move a mark
			{token{"s", math.MaxInt64 - 1, math.MaxInt64}, true},
			{token{"s", math.MaxInt64, 0}, true},
			{token{"s", math.MaxInt64, math.MaxInt64}, true},
			{token{"s", math.MaxInt64, math.MaxInt64}, false},
			{token{"s", 0, 1}, false},
		} {
			if got := passed(p, id, step.tok); got != step.want {
				t.Errorf("%v passed: %v, want %v", step.tok, got, step.want)
			}
		}
	})
	t.Run("keeps a mark for each shard and machine", func(t *testing.T) {
		a, b, p := next(), next(), p.in(t)
		for _, step := range []struct {
			id   string
			tok  token
			want bool
		}{
			{a, token{"s1", 7, 7}, true},
			{a, token{"s2", 1, 1}, true},
			{b, token{"s1", 1, 1}, true},
			{a, token{"s2", 1, 1}, false},
			{b, token{"s1", 1, 1}, false},
			{a, token{"s1", 7, 8}, true},
			{a, token{"S1", 1, 1}, true}, // ids are exact
		} {
			if got := passed(p, step.id, step.tok); got != step.want {
				t.Errorf("%v on %s passed: %v, want %v", step.tok, step.id, got, step.want)
			}
		}
	})
	t.Run("changes nothing when it refuses", func(t *testing.T) {
		id, p := next(), p.in(t)
		p.must("Create", id, token{"s", 2, 2}, idle)
		for _, kind := range kinds {
			p.unchanged(kind, func() {
				_, err := p.call(kind, id, token{"s", 2, 1})
				wantCode(t, kind, err, codes.FailedPrecondition, "stale", "epoch 2")
			})
		}
	})
	t.Run("comes before replay", func(t *testing.T) {
		id, p := next(), p.in(t)
		p.must("Create", id, token{"s", 1, 1}, unspecified)
		_, err := p.call("Create", id, token{"s", 1, 1})
		wantCode(t, "the same call with the same token", err, codes.FailedPrecondition)
	})
	t.Run("comes before not-found, and keeps marks of unknown ids", func(t *testing.T) {
		p := p.in(t)
		for _, kind := range kinds {
			id := "nobody-" + kind
			_, err := p.call(kind, id, token{"s", 1, 5})
			wantCode(t, kind, err, codes.NotFound, id)
			_, err = p.call(kind, id, token{"s", 1, 5})
			wantCode(t, kind+" again", err, codes.FailedPrecondition)
			_, err = p.call(kind, id, token{"s", 1, 6})
			wantCode(t, kind+" with a newer token", err, codes.NotFound)
		}
	})
	t.Run("a mark advances although the call fails", func(t *testing.T) {
		id, p := next(), p.in(t)
		_, err := p.call("Configure", id, token{"s", 1, 5})
		wantCode(t, "Configure of SPECULATIVE", err, codes.Internal)
		_, err = p.call("Create", id, token{"s", 1, 5})
		wantCode(t, "Create with the used token", err, codes.FailedPrecondition)
		p.must("Create", id, token{"s", 1, 6}, idle)
	})
	t.Run("does not apply to reads", func(t *testing.T) {
		id, p := next(), p.in(t)
		_ = passed(p, id, token{"s", 9, 9})
		p.get(id)
		p.list()
	})
	t.Run("is optional by default", func(t *testing.T) {
		id, p := next(), p.in(t)
		p.must("Create", id, token{}, idle)
		p.must("Delete", id, token{}, speculative)
	})
	t.Run("marks outlive the machine's life", func(t *testing.T) {
		id, p := next(), p.in(t)
		p.must("Create", id, token{"s", 1, 10}, idle)
		p.must("Delete", id, token{"s", 1, 11}, speculative)
		_, err := p.call("Create", id, token{"s", 1, 11})
		wantCode(t, "Create with the token of the life before", err, codes.FailedPrecondition)
	})
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
