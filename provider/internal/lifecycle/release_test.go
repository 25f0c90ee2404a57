package lifecycle_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// failBound makes a machine that failed while it was bound.
func failBound(r *rig) machine.Record {
	r.t.Helper()
	r.must(machine.Create)
	r.settle(machine.Idle)
	r.must(machine.Configure)
	r.settle(machine.Configured)
	r.hosts.edit(func() { r.hosts.silent = true })
	r.must(machine.Drain)
	return r.settle(machine.Failed)
}

func TestRelease(t *testing.T) {
	for name, restart := range map[string]bool{"at once": false, "over a restart": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				synctest.Wait()
				reason := failBound(r).LastError
				if restart {
					r.stop()
					r.start()
					time.Sleep(time.Minute)
				}
				kept := r.engine.Kept()
				if len(kept) != 1 || kept[0].MachineID != "m1" || kept[0].Ref != "z/1" || kept[0].Cluster != "c1" || time.Until(kept[0].Until) < 50*time.Minute {
					t.Fatalf("kept: %+v", kept)
				}
				if err := r.engine.Release(t.Context(), "m1"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				if r.cloud.size() != 0 || len(r.engine.Kept()) > 0 {
					t.Errorf("%d servers are left, kept %+v", r.cloud.size(), r.engine.Kept())
				}
				if rec := r.record("m1"); rec.State != machine.Failed || rec.LastError != reason {
					t.Errorf("the machine: %+v", rec)
				}
				if rec := r.record("m1-r2"); rec.State != machine.Speculative {
					t.Errorf("the successor: %+v", rec)
				}
				if err := r.engine.Release(t.Context(), "m1"); err == nil {
					t.Error("what is gone was released again")
				}
			})
		})
	}
}

// A release survives a process that dies before its teardown is through, and one
// whose teardown the cloud refuses at first.
func TestReleaseIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		failBound(r)
		r.cloud.script("discard", slicesOf(errors.New("500"), 5)...)
		if err := r.engine.Release(t.Context(), "m1"); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.start()
		time.Sleep(5 * time.Minute)
		if r.cloud.size() != 0 {
			t.Error("the host is left")
		}
	})
}

func TestReleaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		want := func(id string, code machine.Code) {
			t.Helper()
			var refused *machine.Error
			if err := r.engine.Release(t.Context(), id); !errors.As(err, &refused) || refused.Code != code {
				t.Errorf("Release(%s) = %v, want code %d", id, err, code)
			}
		}
		want("m9", machine.NotFound)
		want("m1", machine.Misplaced)
		r.must(machine.Create)
		want("m1", machine.Misplaced)
		r.settle(machine.Idle)
		want("m1", machine.Misplaced)
		if r.cloud.size() != 1 {
			t.Error("a refused release removed the server")
		}
		// Another process owns the server by now.
		r.must(machine.Configure)
		r.settle(machine.Configured)
		r.hosts.edit(func() { r.hosts.silent = true })
		r.must(machine.Drain)
		r.settle(machine.Failed)
		r.cloud.edit(func() {
			in := r.cloud.instances["z/1"]
			in.Epoch = cloud.OwnerEpoch{Number: 1 << 40, Holder: "other"}
			r.cloud.instances["z/1"] = in
		})
		time.Sleep(2 * time.Minute)
		want("m1", machine.Unavailable)
		if r.cloud.size() != 1 {
			t.Error("another's server was removed")
		}
	})
}

// A kept dedicated server becomes spare.
func TestReleaseOfAKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *lifecycle.Options) { kept(o) })
		synctest.Wait()
		failBound(r)
		if k := r.engine.Kept(); len(k) != 1 || k[0].Then == "" {
			t.Errorf("kept: %+v", k)
		}
		before := r.cloud.count("discard")
		if err := r.engine.Release(t.Context(), "m1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := r.cloud.count("discard") - before; n != 1 {
			t.Errorf("%d discards, want 1", n)
		}
	})
}
