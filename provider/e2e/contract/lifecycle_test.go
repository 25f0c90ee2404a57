package contract

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// ends says where a transition leads.
var ends = map[pb.MachineState]pb.MachineState{creating: idle, configuring: configured, draining: idle, deleting: speculative}

// stateFaults says what of a machine contradicts its state.
func stateFaults(m *pb.Machine) error {
	var errs []error
	demand := func(what string, has, want bool) {
		if has != want {
			errs = append(errs, fmt.Errorf("%s is %s, has %s: %t, want %t", m.GetId(), m.GetState(), what, has, want))
		}
	}
	host, bound := true, false
	switch m.GetState() {
	case speculative, creating:
		host = false
	case idle, deleting:
	case configuring, configured, draining:
		bound = true
	case failed: // keeps what it had
		demand("a last_error", m.GetLastError() != "", true)
		return errors.Join(errs...)
	default:
		return fmt.Errorf("%s is in state %d", m.GetId(), m.GetState())
	}
	demand("a host", m.GetHost().GetRef() != "", host)
	demand("a host's provider", m.GetHost().GetProvider() != "", host)
	demand("a cluster", m.GetCluster() != "", bound)
	if !bound {
		demand("metadata", len(m.GetShardMetadata()) > 0, false)
	}
	demand("a last_error", m.GetLastError() != "", false)
	return errors.Join(errs...)
}

// awkward is metadata that must come back byte for byte.
func awkward() map[string]string {
	m := map[string]string{"": "", "nul": "a\x00b", "control": "\x01\x1f\x7f", "empty": "", "utf-8": "Ω≈ç"}
	for i := range 60 {
		m[fmt.Sprintf("key-%d", i)] = fmt.Sprint(i)
	}
	return m
}

// TestLifecycle walks many machines through their whole life, 32 at a time.
func TestLifecycle(t *testing.T) {
	n := 64
	switch {
	case *target != "":
		n = min(n, len(shared.allowed))
	case keeps():
		n = 24 // their orders go one at a time
	}
	s := open(t, n)
	var workers sync.WaitGroup
	ids := make(chan string, n)
	for _, id := range s.lease(n) {
		ids <- id
	}
	close(ids)
	for w := range 32 {
		workers.Go(func() {
			for id := range ids {
				if err := s.wholeLife(id, fmt.Sprintf("%s-worker-%d", run, w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
}

// wholeLife walks a machine through every state. It does not end the test, since
// it runs beside others.
func (s *server) wholeLife(id, shard string) error {
	metadata, next := awkward(), int64(0)
	step := func(c call) (answer, error) {
		next++
		c.id, c.token = id, token{shard, 1, next}
		a := s.do(c)
		if a.err != nil {
			return a, fmt.Errorf("%s of %s: %w", c.kind, id, a.err)
		}
		e := edges[c.kind]
		if a.operation == "" || a.machine.GetId() != id || a.machine.GetState() != e.during {
			return a, fmt.Errorf("ack of %s for %s: %v", c.kind, id, a)
		}
		return a, stateFaults(a.machine)
	}
	bound := func(m *pb.Machine, when string) error {
		if m.GetCluster() != "cluster-"+id || !maps.Equal(m.GetShardMetadata(), metadata) {
			return fmt.Errorf("%s: bound to %q with %q", when, m.GetCluster(), m.GetShardMetadata())
		}
		return nil
	}
	bind := call{kind: configure, cluster: "cluster-" + id, metadata: metadata}
	for _, c := range []call{{kind: create}, bind, {kind: drain, grace: 1}, {kind: del}} {
		if c.kind == del && keeps() {
			break // it is free for another binding
		}
		a, err := step(c)
		if err == nil && (c.kind == configure || c.kind == drain) {
			err = bound(a.machine, "ack of "+c.kind.String())
		}
		if err != nil {
			return err
		}
		m, err := s.reach(id, edges[c.kind].to)
		if err != nil {
			return err
		}
		if c.kind != configure {
			continue
		}
		// A retry may say less, and gets all.
		next++
		again := s.do(call{kind: configure, id: id, token: token{shard, 1, next}, cluster: "cluster-" + id})
		if again.err != nil || again.operation != a.operation || !proto.Equal(again.machine, m) {
			return fmt.Errorf("retry of Configure: %v, want operation %s", again, a.operation)
		}
		if err := bound(m, "CONFIGURED"); err != nil {
			return err
		}
	}
	return nil
}

// reach waits until the machine rests in the state, without a fault on the way.
func (s *server) reach(id string, want pb.MachineState) (*pb.Machine, error) {
	for deadline := time.Now().Add(*settle); ; time.Sleep(10 * time.Millisecond) {
		m, err := s.read(id)
		if err != nil {
			return nil, err
		}
		if err := stateFaults(m); err != nil {
			return m, err
		}
		if m.GetState() == want {
			return m, nil
		}
		if ends[m.GetState()] != want {
			return m, fmt.Errorf("%s is %s (%s), want %s", id, m.GetState(), m.GetLastError(), want)
		}
		if time.Now().After(deadline) {
			return m, fmt.Errorf("%s stays %s for %s: see -settle", id, m.GetState(), *settle)
		}
	}
}

// restOrError waits until the machine is in no transition, and answers like a
// Get.
func (s *server) restOrError(id string) answer {
	for deadline := time.Now().Add(*settle); ; time.Sleep(5 * time.Millisecond) {
		m, err := s.read(id)
		_, moving := ends[m.GetState()]
		if err != nil || !moving || time.Now().After(deadline) {
			return answer{machine: m, err: err}
		}
	}
}
