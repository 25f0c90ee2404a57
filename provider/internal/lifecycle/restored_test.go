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

// TestRestoredState runs on a record that is older than the cloud: nothing that
// is in use now may be lost over it.
func TestRestoredState(t *testing.T) {
	const hold = 24 * time.Hour
	server := func(ref string) cloud.Instance {
		return cloud.Instance{Ref: ref, MachineID: "m1", Zone: "z", Power: cloud.PowerRunning, Created: time.Now().Add(-time.Hour)}
	}
	set := func(t *testing.T, r *rig, state machine.State, cluster string) {
		t.Helper()
		_, err := r.store.Do(context.Background(), "m1", func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.State, next.Cluster, next.Host = state, cluster, "z/1"
			next.Metadata = map[string]string{"of": cluster}
			return next, machine.Visible, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	restored := func(t *testing.T, state machine.State, cluster, tag string) *rig {
		t.Helper()
		r := newRig(t, func(o *lifecycle.Options) { o.Awaiting, o.RemovalsFrom = true, time.Now().Add(hold) })
		r.stop()
		set(t, r, state, cluster)
		r.cloud.edit(func() {
			in := server("z/1")
			in.Cluster = tag
			r.cloud.instances["z/1"] = in
		})
		r.start()
		time.Sleep(90 * time.Second) // two passes
		return r
	}
	for name, tt := range map[string]struct {
		state     machine.State
		bound     string
		tag       string
		wantState machine.State
		want      string
		metadata  bool
	}{
		"free in the copy, bound now":   {machine.Idle, "", "c2", machine.Configured, "c2", false},
		"bound to another cluster now":  {machine.Configured, "c1", "c2", machine.Configured, "c2", false},
		"bound in the copy, no tag now": {machine.Configured, "c1", "", machine.Configured, "c1", true},
		"bound to the same cluster":     {machine.Configured, "c1", "c1", machine.Configured, "c1", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := restored(t, tt.state, tt.bound, tt.tag)
				rec := r.record("m1")
				if rec.State != tt.wantState || rec.Cluster != tt.want || (len(rec.Metadata) > 0) != tt.metadata {
					t.Errorf("got %+v", rec)
				}
				if in, err := r.cloud.Get(t.Context(), "z/1"); err != nil || in.Cluster != tt.want {
					t.Errorf("the server: %+v, %v", in, err)
				}
			})
		})
	}
	for name, tt := range map[string]struct {
		tag       string
		unlisted  bool // the host of the copy is there, and the list does not show it yet
		wantHost  string
		wantState machine.State
	}{
		"the host was replaced":                      {"", false, "z/2", machine.Idle},
		"the host was replaced by one that is bound": {"c2", false, "z/2", machine.Configured},
		"the host is there":                          {"", true, "z/1", machine.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *lifecycle.Options) { o.Awaiting, o.RemovalsFrom = true, time.Now().Add(hold) })
				r.stop()
				set(t, r, machine.Idle, "")
				r.cloud.edit(func() {
					in := server("z/2")
					in.Cluster, in.OperationID, in.Life = tt.tag, "later", "later"
					r.cloud.instances["z/2"] = in
					if tt.unlisted {
						r.cloud.instances["z/1"] = server("z/1")
						r.cloud.hidden["z/1"] = time.Now().Add(30 * time.Second)
					}
				})
				r.start()
				time.Sleep(time.Second) // the first pass
				rec := r.record("m1")
				if rec.Host != tt.wantHost || rec.State != tt.wantState || rec.Cluster != tt.tag {
					t.Errorf("after the first pass: %+v", rec)
				}
				if life, ok := rec.Life(); tt.wantHost == "z/2" && (!ok || life.ID != "later" || life.Plain) {
					t.Errorf("its life: %+v, %t", life, ok)
				}
				time.Sleep(time.Hour)
				if rec := r.record("m1"); rec.Host != tt.wantHost || rec.State != tt.wantState {
					t.Errorf("an hour later: %+v", rec)
				}
			})
		})
	}
	t.Run("a plain older copy lists no bound host as free", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			synctest.Wait()
			r.must(machine.Create)
			r.settle(machine.Idle)
			r.cloud.edit(func() { // what a later life did, of which this state knows nothing
				in := r.cloud.instances["z/1"]
				in.Cluster = "c9"
				r.cloud.instances["z/1"] = in
			})
			time.Sleep(3 * time.Minute)
			if rec := r.record("m1"); rec.State != machine.Configured || rec.Cluster != "c9" || r.cloud.tag("z/1") != "c9" {
				t.Errorf("%s of %q, tag %q", rec.State, rec.Cluster, r.cloud.tag("z/1"))
			}
		})
	})
	t.Run("servers that nobody claims are kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := restored(t, machine.Idle, "", "")
			r.cloud.edit(func() { r.cloud.instances["z/2"] = server("z/2") })
			time.Sleep(hold - 5*time.Minute)
			if r.cloud.size() != 2 {
				t.Fatal("removed while the restored state was not to be trusted")
			}
			time.Sleep(time.Hour)
			if r.cloud.size() != 1 {
				t.Error("never removed")
			}
		})
	})
}
