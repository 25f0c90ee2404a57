package lifecycle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// fleet is a rig with n slots, m1 to mn, on records and servers that change
// makes; the engine starts on them as after a restart.
func fleet(t *testing.T, n int, options func(*lifecycle.Options), change func(r *rig)) *rig {
	t.Helper()
	r := newRig(t, options)
	r.stop()
	for i := range n {
		r.slots[fmt.Sprint("m", i+1)] = offer
	}
	if err := r.engine.Seed(t.Context(), r.slots); err != nil {
		t.Fatal(err)
	}
	change(r)
	r.start()
	return r
}

// host gives a machine a server, as its record knows.
func (r *rig) host(n int, state machine.State, cluster string) {
	r.t.Helper()
	id, ref, op := fmt.Sprint("m", n), fmt.Sprint("z/h", n), fmt.Sprint("create-", n)
	_, err := r.store.Do(context.Background(), id, func(cur machine.Record) (machine.Record, machine.Change, error) {
		next := cur.Clone()
		next.State, next.Cluster, next.Since = state, cluster, time.Now()
		next.Host, next.History = ref, machine.History{Create: op}
		return next, machine.Visible, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.server(ref, id, op, cluster)
}

// server makes a server at the cloud.
func (r *rig) server(ref, id, op, cluster string) {
	r.cloud.edit(func() {
		r.cloud.instances[ref] = cloud.Instance{
			Ref: ref, MachineID: id, OperationID: op, Cluster: cluster, Type: "DEV1-S", Zone: "z",
			Power: cloud.PowerRunning, PowerWord: "running", Created: time.Now().Add(-24 * time.Hour),
		}
	})
}

// states counts the first n machines by state.
func (r *rig) states(n int) map[machine.State]int {
	states := map[machine.State]int{}
	for i := range n {
		states[r.record(fmt.Sprint("m", i+1)).State]++
	}
	return states
}
