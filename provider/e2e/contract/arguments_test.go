package contract

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
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

func metadataOf(keys, bytes int) map[string]string {
	m := make(map[string]string, keys)
	for i := range keys {
		m[fmt.Sprintf("%08d", i)] = ""
	}
	m["00000000"] = strings.Repeat("v", bytes-8*keys)
	return m
}

// refusesArguments sends every bad argument for the machine.
func (s *server) refusesArguments(t *testing.T, id string) {
	t.Helper()
	for name, c := range map[string]struct {
		req  proto.Message
		text []string
	}{
		"no machine_id on Create":    {&pb.CreateRequest{ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id"}},
		"no machine_id on Configure": {&pb.ConfigureRequest{ClusterId: "c", ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id"}},
		"no machine_id on Drain":     {&pb.DrainRequest{ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id"}},
		"no machine_id on Delete":    {&pb.DeleteRequest{ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id"}},
		"no cluster_id":              {&pb.ConfigureRequest{MachineId: id, ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"cluster_id"}},
		"negative grace":             {&pb.DrainRequest{MachineId: id, GracePeriodSeconds: -1, ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"grace_period_seconds", "-1"}},
		"smallest grace":             {&pb.DrainRequest{MachineId: id, GracePeriodSeconds: math.MinInt64, ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"grace_period_seconds"}},
		"long machine_id":            {&pb.CreateRequest{MachineId: strings.Repeat("m", maxID+1), ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"machine_id", "257", "256"}},
		"long shard_id":              {&pb.DrainRequest{MachineId: id, ShardId: strings.Repeat("s", maxID+1), ShardEpoch: 9, SequenceNumber: 9}, []string{"shard_id", "257", "256"}},
		"long cluster_id":            {&pb.ConfigureRequest{MachineId: id, ClusterId: strings.Repeat("c", maxID+1), ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"cluster_id", "257", "256"}},
		"large blob":                 {&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: make([]byte, maxBlob+1), ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"bootstrap_blob", "1048577", "1048576"}},
		"large metadata":             {&pb.ConfigureRequest{MachineId: id, ClusterId: "c", ShardMetadata: metadataOf(3, maxMetadata+1), ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"shard_metadata", "1048577", "1048576"}},
		"many keys":                  {&pb.ConfigureRequest{MachineId: id, ClusterId: "c", ShardMetadata: metadataOf(maxKeys+1, 8*(maxKeys+1)), ShardId: run, ShardEpoch: 9, SequenceNumber: 9}, []string{"shard_metadata", "4097", "4096"}},
		"every fault at once": {
			&pb.ConfigureRequest{BootstrapBlob: make([]byte, maxBlob+1), ShardId: strings.Repeat("s", maxID+1), ShardEpoch: -1, SequenceNumber: -2},
			[]string{"machine_id", "cluster_id", "shard_id", "bootstrap_blob"},
		},
		"stale besides": {&pb.DrainRequest{MachineId: id, GracePeriodSeconds: -1, ShardId: run, ShardEpoch: 0, SequenceNumber: 1}, []string{"grace_period_seconds"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			s.unchanged(name, func() {
				wantCode(t, name, s.send(c.req).err, codes.InvalidArgument, c.text...)
			})
		})
	}
}

func TestArguments(t *testing.T) {
	s := open(t, 4)
	t.Run("of an unknown machine", func(t *testing.T) {
		s.in(t).refusesArguments(t, run+"-arguments")
	})
	t.Run("of a machine", func(t *testing.T) {
		s := s.in(t)
		id := s.lease(1)[0]
		s.must(create, id, token{run, 1, sequence.Add(1)})
		s.refusesArguments(t, id)
		// A refused argument does not use up the token, else this is stale.
		s.must(configure, id, token{run, 1, sequence.Add(1)})
	})
	t.Run("too large for gRPC", func(t *testing.T) {
		s := s.in(t)
		s.unchanged("a huge request", func() {
			wantCode(t, "5 MiB", s.send(&pb.ConfigureRequest{MachineId: run, ClusterId: "c", BootstrapBlob: make([]byte, 5<<20)}).err, codes.ResourceExhausted)
		})
	})
	t.Run("the longest machine_id", func(t *testing.T) {
		longest := run + strings.Repeat("m", maxID-len(run))
		wantCode(t, "Create", s.try(create, longest, fresh()).err, codes.NotFound)
	})
	t.Run("at the limits", func(t *testing.T) {
		s := s.in(t)
		id, metadata := s.lease(1)[0], metadataOf(maxKeys, maxMetadata)
		shard, cluster := run+strings.Repeat("s", maxID-len(run)), strings.Repeat("c", maxID)
		s.must(create, id, token{shard, 1, 1})
		large := make([]byte, maxBlob)
		copy(large, blob)
		a := s.send(&pb.ConfigureRequest{MachineId: id, ClusterId: cluster, BootstrapBlob: large, ShardMetadata: metadata, ShardId: shard, ShardEpoch: 1, SequenceNumber: 2})
		if a.err != nil {
			t.Fatal(a.err)
		}
		// Whether the hosts of a target like such a blob is not the question.
		if m := a.machine; m.GetCluster() != cluster || !maps.Equal(m.GetShardMetadata(), metadata) {
			t.Errorf("%s with cluster of %d bytes, %d keys", m.GetState(), len(m.GetCluster()), len(m.GetShardMetadata()))
		}
		if m := s.rest(id); m.GetCluster() != cluster || !maps.Equal(m.GetShardMetadata(), metadata) {
			t.Errorf("%s with cluster of %d bytes, %d keys", m.GetState(), len(m.GetCluster()), len(m.GetShardMetadata()))
		}
	})
	t.Run("an empty blob and no metadata are fine", func(t *testing.T) {
		s := s.in(t)
		id := s.lease(1)[0]
		s.must(create, id, fresh())
		tok := fresh()
		a := s.send(&pb.ConfigureRequest{MachineId: id, ClusterId: "c", ShardId: tok.shard, ShardEpoch: tok.epoch, SequenceNumber: tok.sequence})
		if a.err != nil || len(a.machine.GetShardMetadata()) > 0 {
			t.Fatalf("%v", a)
		}
		s.rest(id)
	})
}

// TestUnknownFields: a newer client may send fields that a server does not
// know; they are no fault.
func TestUnknownFields(t *testing.T) {
	s := open(t, 1)
	filter := &pb.ListFilter{MaxResults: 1}
	filter.ProtoReflect().SetUnknown([]byte{0x12, 1, 'x'}) // reserved field 2
	if l, err := s.List(t.Context(), filter); err != nil || len(l.GetMachines()) != 1 {
		t.Errorf("%v, %v", l, err)
	}
	req := call{kind: create, id: s.lease(1)[0], token: fresh()}.request()
	req.ProtoReflect().SetUnknown([]byte{0xfa, 0x3e, 2, 'h', 'i'}) // field 1007, bytes
	if a := s.send(req); a.err != nil {
		t.Error(a.err)
	}
}
