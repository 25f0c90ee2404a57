package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
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

// shard plays one BigFleet shard: it numbers its calls.
type shard struct {
	id       string
	epoch    int64
	sequence atomic.Int64
}

func (s *shard) create(p *provider, id string) (*pb.TransitionAck, error) {
	return p.Create(context.Background(), &pb.CreateRequest{MachineId: id, ShardId: s.id, ShardEpoch: s.epoch, SequenceNumber: s.sequence.Add(1)})
}

func (s *shard) configure(p *provider, id, cluster string, blob []byte, metadata map[string]string) (*pb.TransitionAck, error) {
	return p.Configure(context.Background(), &pb.ConfigureRequest{
		MachineId: id, ClusterId: cluster, BootstrapBlob: blob, ShardMetadata: metadata,
		ShardId: s.id, ShardEpoch: s.epoch, SequenceNumber: s.sequence.Add(1),
	})
}

func (s *shard) drain(p *provider, id string, grace int64) (*pb.TransitionAck, error) {
	return p.Drain(context.Background(), &pb.DrainRequest{MachineId: id, GracePeriodSeconds: grace, ShardId: s.id, ShardEpoch: s.epoch, SequenceNumber: s.sequence.Add(1)})
}

func (s *shard) delete(p *provider, id string) (*pb.TransitionAck, error) {
	return p.Delete(context.Background(), &pb.DeleteRequest{MachineId: id, ShardId: s.id, ShardEpoch: s.epoch, SequenceNumber: s.sequence.Add(1)})
}

// awkward is metadata that must come back byte for byte.
func awkward() map[string]string {
	m := map[string]string{"": "", "nul": "a\x00b", "control": "\x01\x1f\x7f", "empty": "", "utf-8": "Ω≈ç"}
	for i := range 60 {
		m[fmt.Sprintf("key-%d", i)] = fmt.Sprint(i)
	}
	return m
}

// TestLifecycles walks 64 machines through their whole life, 32 at a time, and
// expects each step to settle within two seconds.
func TestLifecycles(t *testing.T) {
	p := startProvider(t, environment(), nil, "--provider=certify", "--use-fake-backend", "--seed-count=64")
	s := &shard{id: "shard-1", epoch: 1}
	machines := p.list().GetMachines()
	if len(machines) != 64 {
		t.Fatalf("%d machines, want 64", len(machines))
	}
	metadata := awkward()
	var group errgroup.Group
	group.SetLimit(32)
	for _, m := range machines {
		id := m.GetId()
		group.Go(func() error { return wholeLife(p, s, id, metadata) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, m := range p.list().GetMachines() {
		if m.GetState() != speculative || m.GetHost() != nil || m.GetCluster() != "" || len(m.GetShardMetadata()) > 0 {
			t.Errorf("after its life: %v", m)
		}
	}
}

const settleLimit = 10 * time.Second // two seconds on an idle machine, without the race detector

func wholeLife(p *provider, s *shard, id string, metadata map[string]string) error {
	began := time.Now()
	settled := func(want pb.MachineState) (*pb.Machine, error) {
		m, err := p.await(id, want)
		if took := time.Since(began); err == nil && took > settleLimit {
			err = fmt.Errorf("%s took %s to be %s", id, took, want)
		}
		began = time.Now()
		return m, err
	}
	ack, err := s.create(p, id)
	if err != nil {
		return err
	}
	if ack.GetMachine().GetState() != creating || ack.GetMachine().GetHost() != nil || ack.GetOperationId() == "" {
		return fmt.Errorf("ack of Create: %v", ack)
	}
	m, err := settled(idle)
	if err != nil {
		return err
	}
	if m.GetHost().GetProvider() != "certify" || m.GetHost().GetRef() == "" {
		return fmt.Errorf("IDLE without a host: %v", m)
	}
	ack, err = s.configure(p, id, "cluster-"+id, []byte("#!/bin/sh\nexit 0\n"), metadata)
	if err != nil {
		return err
	}
	if got := ack.GetMachine(); got.GetCluster() != "cluster-"+id || !equalMaps(got.GetShardMetadata(), metadata) {
		return fmt.Errorf("ack of Configure: %v", got)
	}
	if m, err = settled(configured); err != nil {
		return err
	}
	if m.GetCluster() != "cluster-"+id || !equalMaps(m.GetShardMetadata(), metadata) {
		return fmt.Errorf("CONFIGURED as %v", m)
	}
	again, err := s.configure(p, id, "cluster-"+id, nil, nil)
	if err != nil || again.GetOperationId() != ack.GetOperationId() || !proto.Equal(again.GetMachine(), m) {
		return fmt.Errorf("replay of Configure: %v, %w", again, err)
	}
	if ack, err = s.drain(p, id, 1); err != nil {
		return err
	}
	if ack.GetMachine().GetCluster() == "" {
		return fmt.Errorf("the binding went when the drain began: %v", ack)
	}
	if m, err = settled(idle); err != nil {
		return err
	}
	if m.GetCluster() != "" || len(m.GetShardMetadata()) > 0 {
		return fmt.Errorf("IDLE with a binding: %v", m)
	}
	if _, err = s.delete(p, id); err != nil {
		return err
	}
	_, err = settled(speculative)
	return err
}

func equalMaps(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// TestKillAndRestart kills the provider again and again while 16 workers walk
// machines, restarts it on the same state and another port, and expects every
// acknowledged call to hold and every machine to go on.
func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state.db")
	args := []string{"--provider=certify", "--use-fake-backend", "--seed-count=16", "--state=" + state}
	p := startProvider(t, environment(), nil, args...)
	s := &shard{id: "shard-1", epoch: 1}
	machines := p.list().GetMachines()
	operations := map[string]string{}
	for _, m := range machines {
		ack, err := s.create(p, m.GetId())
		if err != nil {
			t.Fatal(err)
		}
		operations[m.GetId()] = ack.GetOperationId()
	}
	restart := func() {
		t.Helper()
		p.kill()
		p = startProvider(t, environment(), nil, args...)
	}
	restart()
	settle := func(want pb.MachineState, replay func(id string) (*pb.TransitionAck, error)) {
		t.Helper()
		for round := range 3 {
			if round > 0 {
				restart()
			}
			for id, operation := range operations {
				ack, err := replay(id)
				if err != nil || ack.GetOperationId() != operation {
					t.Fatalf("replay for %s: %v, %v, want operation %s", id, ack, err, operation)
				}
			}
		}
		for id := range operations {
			if _, err := p.await(id, want); err != nil {
				t.Fatal(err)
			}
		}
		restart()
		for id := range operations {
			if m := p.get(id); m.GetState() != want {
				t.Fatalf("%s is %s after a restart, want %s", id, m.GetState(), want)
			}
		}
	}
	settle(idle, func(id string) (*pb.TransitionAck, error) { return s.create(p, id) })
	hosts := map[string]string{}
	for id := range operations {
		hosts[id] = p.get(id).GetHost().GetRef()
	}

	metadata := awkward()
	for id := range operations {
		ack, err := s.configure(p, id, "c", []byte("blob"), metadata)
		if err != nil {
			t.Fatal(err)
		}
		operations[id] = ack.GetOperationId()
	}
	settle(configured, func(id string) (*pb.TransitionAck, error) { return s.configure(p, id, "c", []byte("blob"), metadata) })
	for id := range operations {
		m := p.get(id)
		if m.GetHost().GetRef() != hosts[id] || m.GetCluster() != "c" || !equalMaps(m.GetShardMetadata(), metadata) {
			t.Errorf("%s changed over the restarts: %v", id, m)
		}
	}

	for id := range operations {
		ack, err := s.drain(p, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		operations[id] = ack.GetOperationId()
	}
	settle(idle, func(id string) (*pb.TransitionAck, error) { return s.drain(p, id, 0) })
	for id := range operations {
		ack, err := s.delete(p, id)
		if err != nil {
			t.Fatal(err)
		}
		operations[id] = ack.GetOperationId()
	}
	settle(speculative, func(id string) (*pb.TransitionAck, error) { return s.delete(p, id) })

	stale := &shard{id: "shard-1", epoch: 1}
	if _, err := stale.create(p, machines[0].GetId()); err == nil {
		t.Error("a stale token was accepted after the restarts")
	}
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
