package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

// TestBoundServerOfAnOlderState runs on a state file that was replaced by an
// older one: the machine's host of then is gone, and its host of now carries
// workloads. That one is kept, and found again.
func TestBoundServerOfAnOlderState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.stop()
		_, err := r.store.Do(context.Background(), "m1", func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.State, next.Host = machine.Idle, "z/1"
			return next, machine.Visible, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r.cloud.edit(func() {
			r.cloud.instances["z/2"] = cloud.Instance{
				Ref: "z/2", MachineID: "m1", Cluster: "c2", Zone: "z", Power: cloud.PowerRunning, Created: time.Now().Add(-48 * time.Hour),
			}
		})
		r.start()
		time.Sleep(10 * time.Minute)
		if r.cloud.size() != 1 {
			t.Fatal("a server that is bound to a cluster was removed")
		}
		if rec := r.record("m1"); rec.State != machine.Configured || rec.Host != "z/2" || rec.Cluster != "c2" {
			t.Errorf("the machine is %s on %q in %q", rec.State, rec.Host, rec.Cluster)
		}
	})
}
