package lifecycle_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// beside begins another process with the owner tag of r's, on a state of its own.
func (r *rig) beside(t *testing.T) *rig {
	t.Helper()
	var end *scriptedCloud
	other := newRig(t, func(o *lifecycle.Options) {
		end = r.cloud.another()
		o.Cloud, o.Deleter, o.Sweeper = end, end, end
		o.Awaiting = true // new
	})
	other.cloud = end
	return other
}

func (r *rig) wantOwner(want bool) {
	r.t.Helper()
	if got := r.engine.Owner(); got != want {
		r.t.Errorf("the process is the owner: %t, want %t", got, want)
	}
	if err := r.engine.Ready(); (err == nil) != want {
		r.t.Errorf("ready: %v", err)
	}
}

const severalPasses = 5*time.Minute + time.Second

func TestLaterOwnerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, nil)
		synctest.Wait()
		a.must(machine.Create)
		a.settle(machine.Idle)
		a.wantOwner(true)

		b := a.beside(t)
		time.Sleep(severalPasses)
		a.wantOwner(false)
		b.wantOwner(true)
		if rec := b.record("m1"); rec.State != machine.Idle || rec.Host != "z/1" {
			t.Fatalf("the server was not adopted: %+v", rec)
		}
		for _, k := range []machine.Kind{machine.Configure, machine.Delete} {
			if _, err := a.do(k, nil); err == nil || !strings.Contains(err.Error(), "another provider process owns") {
				t.Errorf("%s by the former owner: %v", k, err)
			}
		}

		// What the owner makes of it is left alone, for as long as any grace.
		b.must(machine.Configure)
		b.settle(machine.Configured)
		b.cloud.edit(func() { a.cloud.calls = nil })
		time.Sleep(3 * time.Hour)
		if got := a.cloud.count("set-cluster") + a.cloud.count("discard") + a.cloud.count("terminate") + a.cloud.count("order"); got != 0 {
			t.Errorf("changing calls at rest: %q", a.cloud.calls)
		}
		if tag := a.cloud.tag("z/1"); tag != "c1" {
			t.Errorf("the server's cluster is %q", tag)
		}

		// A restart of the former owner, as by a supervisor, does not take it back;
		// also when nothing at the cloud shows the other's epoch any more.
		for _, forget := range []bool{false, true} {
			a.stop()
			if forget {
				b.stop()
				a.cloud.edit(func() { clear(a.cloud.instances) })
			}
			a.start()
			time.Sleep(severalPasses)
			a.wantOwner(false)
		}
	})
}

// TestOwnerOverRestarts is one provider that is stopped and killed as it likes:
// its own earlier epochs never depose it.
func TestOwnerOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		for range 4 {
			before := r.store.Ownership().Number
			r.stop()
			r.cloud = r.cloud.another()
			r.opts.Cloud, r.opts.Deleter, r.opts.Sweeper = r.cloud, r.cloud, r.cloud
			r.start()
			synctest.Wait()
			if err := r.engine.Establish(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			r.wantOwner(true)
			if got := r.store.Ownership().Number; got <= before {
				t.Errorf("the epoch after a restart is %d, before it was %d", got, before)
			}
			r.must(machine.Delete)
			r.settle(machine.Speculative)
			time.Sleep(severalPasses)
			r.must(machine.Create)
			r.settle(machine.Idle)
		}
	})
}

// TestFormerOwnerAfterADelete: the server that showed the epoch is given back, and
// the former owner, which was off when it lost the servers, starts before the next pass.
func TestFormerOwnerAfterADelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, nil)
		synctest.Wait()
		a.must(machine.Create)
		a.settle(machine.Idle)
		time.Sleep(time.Second)
		second := a.cloud.clone("z/1", "z/second", "m2")
		a.stop()

		b := a.beside(t)
		time.Sleep(severalPasses)
		b.wantOwner(true)
		if in := b.cloud.instance(second); in.Epoch == b.ownEpoch() {
			t.Fatalf("not only the oldest shows the new epoch: %+v", in)
		}
		b.must(machine.Delete)
		b.settle(machine.Speculative)
		if in := b.cloud.instance(second); in.Epoch != b.ownEpoch() {
			t.Errorf("the next oldest shows %v, want %v", in.Epoch, b.ownEpoch())
		}

		a.cloud = a.cloud.another()
		a.opts.Cloud, a.opts.Deleter, a.opts.Sweeper = a.cloud, a.cloud, a.cloud
		a.start()
		synctest.Wait()
		if err := a.engine.Establish(t.Context()); err == nil {
			t.Error("the former owner took over")
		}
		a.wantOwner(false)
		time.Sleep(severalPasses)
		a.wantOwner(false)
		b.wantOwner(true)
	})
}

func (r *rig) ownEpoch() cloud.OwnerEpoch {
	o := r.store.Ownership()
	return cloud.OwnerEpoch{Number: o.Number, Holder: o.Holder}
}

// TestLaterOwnerOfNothing: without servers nothing shows an epoch, and the one that
// started last is the owner, however often the other was started before.
func TestLaterOwnerOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, func(o *lifecycle.Options) { o.Awaiting = true })
		synctest.Wait()
		for range 3 {
			a.stop()
			a.start()
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		b := a.beside(t)
		synctest.Wait()
		a.must(machine.Create)
		a.settle(machine.Idle)
		time.Sleep(2 * severalPasses)
		a.wantOwner(false)
		b.wantOwner(true)
	})
}

// TestOwnersThatStartTogether leaves exactly one.
func TestOwnersThatStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, func(o *lifecycle.Options) { o.Awaiting = true })
		b := a.beside(t)
		synctest.Wait()
		a.must(machine.Create) // nothing showed either of them the other
		b.must(machine.Create)
		time.Sleep(2 * severalPasses)
		if a.engine.Owner() == b.engine.Owner() {
			t.Fatalf("owners: %t, %t", a.engine.Owner(), b.engine.Owner())
		}
		time.Sleep(2 * time.Hour)
		a.cloud.edit(func() {
			if len(a.cloud.instances) == 0 {
				t.Error("no server is left")
			}
		})
		if a.engine.Owner() == b.engine.Owner() {
			t.Errorf("owners later: %t, %t", a.engine.Owner(), b.engine.Owner())
		}
	})
}

// TestWorkWaitsForOwnership: while the cloud cannot be read, nothing is done to
// it; and what is under way when the ownership is lost stays as it is.
func TestWorkWaitsForOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, nil)
		synctest.Wait()
		a.must(machine.Create)
		a.settle(machine.Idle)
		a.stop()
		a.cloud.edit(func() { a.cloud.listErr, a.cloud.calls = context.DeadlineExceeded, nil })
		a.cloud = a.cloud.another()
		a.opts.Cloud, a.opts.Deleter, a.opts.Sweeper = a.cloud, a.cloud, a.cloud
		a.start()
		synctest.Wait()
		op := a.must(machine.Delete)
		time.Sleep(2 * time.Minute)
		if a.cloud.edit(func() {}); len(a.cloud.calls) > 0 || a.engine.Owner() {
			t.Fatalf("before the cloud was read: %q", a.cloud.calls)
		}
		a.cloud.edit(func() {
			a.cloud.listErr = nil
			in := a.cloud.instances["z/1"]
			in.Epoch = cloud.OwnerEpoch{Number: 1 << 40, Holder: "other"}
			a.cloud.instances["z/1"] = in
		})
		time.Sleep(time.Hour)
		a.wantOwner(false)
		if rec := a.record("m1"); rec.State != machine.Deleting || rec.Op == nil || rec.Op.ID != op {
			t.Errorf("the operation under way: %+v", rec)
		}
		if len(a.cloud.calls) > 0 || a.cloud.size() != 1 {
			t.Errorf("calls %q", a.cloud.calls)
		}
	})
}

// TestOwnerLostInAStep: an adapter meets the greater epoch before a pass does.
func TestOwnerLostInAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t, nil)
		synctest.Wait()
		a.must(machine.Create)
		a.settle(machine.Idle)
		time.Sleep(30 * time.Second) // between two passes
		a.cloud.edit(func() {
			in := a.cloud.instances["z/1"]
			in.Epoch = cloud.OwnerEpoch{Number: 1 << 40, Holder: "other"}
			a.cloud.instances["z/1"] = in
		})
		a.must(machine.Delete)
		time.Sleep(5 * time.Second)
		a.wantOwner(false)
		if a.cloud.size() != 1 {
			t.Error("the other's server was removed")
		}
		if rec := a.record("m1"); rec.State != machine.Deleting {
			t.Errorf("the machine is %s (%s)", rec.State, rec.LastError)
		}
	})
}

// TestEveryServerShowsTheOwner: a process that starts sees the epoch whichever
// servers have gone since.
func TestOldestServerShowsTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *lifecycle.Options) { o.Awaiting = true })
		r.cloud.edit(func() {
			for i, ref := range []string{"z/7", "z/8"} {
				r.cloud.instances[ref] = cloud.Instance{Ref: ref, MachineID: "gone-" + ref, Cluster: "c", Zone: "z", Created: time.Now().Add(time.Duration(i) * time.Minute)}
			}
		})
		time.Sleep(severalPasses)
		own := r.store.Ownership()
		for range 2 {
			in, ok, err := r.cloud.Oldest(t.Context())
			if err != nil || !ok || in.Epoch.Number != own.Number || in.Epoch.Holder != own.Holder {
				t.Errorf("the oldest server: %+v, %v; the owner: %+v", in, err, own)
			}
			r.cloud.edit(func() { delete(r.cloud.instances, slices.Min(slices.Collect(maps.Keys(r.cloud.instances)))) })
			time.Sleep(severalPasses)
		}
	})
}
