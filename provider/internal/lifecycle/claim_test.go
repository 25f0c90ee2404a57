package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
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

// Of two servers that carry one machine, always the same is kept. Where both are
// bound, both stay: see TestBoundServerOfAnOlderState.
func TestTwoServersOfOneMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(a, b *cloud.Instance) // z/a and z/b, alike but for the reference
		want   string
		left   int
	}{
		"alike":            {func(_, _ *cloud.Instance) {}, "z/a", 1},
		"the older":        {func(a, b *cloud.Instance) { b.Created = a.Created.Add(-time.Minute) }, "z/b", 1},
		"the bound":        {func(_, b *cloud.Instance) { b.Cluster = "c1" }, "z/b", 1},
		"bound, not older": {func(a, b *cloud.Instance) { a.Created, b.Cluster = a.Created.Add(-time.Hour), "c1" }, "z/b", 1},
		// Workloads may run on either.
		"both bound": {func(a, b *cloud.Instance) { a.Cluster, b.Cluster, b.Created = "c1", "c1", a.Created.Add(-1) }, "z/b", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 1, func(o *lifecycle.Options) { o.Awaiting = true }, func(r *rig) {
					r.server("z/a", "m1", "op", "")
					r.server("z/b", "m1", "op", "")
					r.cloud.edit(func() {
						a, b := r.cloud.instances["z/a"], r.cloud.instances["z/b"]
						tt.change(&a, &b)
						r.cloud.instances["z/a"], r.cloud.instances["z/b"] = a, b
					})
				})
				time.Sleep(time.Hour)
				if rec := r.record("m1"); rec.Host != tt.want || r.cloud.size() != tt.left {
					t.Errorf("%s was kept, %d servers are left; want %s and %d", rec.Host, r.cloud.size(), tt.want, tt.left)
				}
				r.saw.look(func() {
					if r.saw.orphans["server removed"] != 2-tt.left || (r.saw.orphans["server held"] > 0) != (tt.left == 2) {
						t.Errorf("counted %v", r.saw.orphans)
					}
				})
			})
		})
	}
}
