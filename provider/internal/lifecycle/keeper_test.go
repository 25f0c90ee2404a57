package lifecycle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// keeping is a cloud that gives nothing back.
type keeping struct{ *scriptedCloud }

func (keeping) Keeps(ref, _ string) string {
	return fmt.Sprintf("server %q is yours to give back", ref)
}

// kept makes the rig's cloud a cloud.Keeper.
func kept(o *lifecycle.Options) {
	c := o.Cloud.(*scriptedCloud)
	o.Deleter, o.Sweeper = nil, nil
	o.Keeper, o.Capacity = keeping{c}, machine.BareMetal
}

// A failure that leaves a server says so, in the cloud's words, and its end at
// the cloud is Discard, which keeps it.
func TestFailureSaysWhatIsKept(t *testing.T) {
	for name, tt := range map[string]struct {
		step string
		err  error
		want []string
	}{
		"after the order":     {"boot", cloud.ErrInvalid, []string{"(invalid)", `server "z/1" is yours`}},
		"an order in doubt":   {"order", fmt.Errorf("%w: nobody answered", cloud.ErrUncertain), []string{"(uncertain)", "nobody answered", `server "" is yours`, "console"}},
		"with its own advice": {"boot", cloud.Advise(cloud.ErrInvalid, "ask the vendor"), []string{"(invalid)", `server "z/1" is yours`, "; ask the vendor"}},
		"before any of that":  {"order", cloud.ErrNoCapacity, []string{"(capacity)", `server "" is yours`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, kept)
				synctest.Wait()
				r.cloud.script(tt.step, tt.err)
				r.must(machine.Create)
				rec := r.settle(machine.Failed)
				for _, part := range tt.want {
					if !strings.Contains(rec.LastError, part) {
						t.Errorf("last_error %q does not say %q", rec.LastError, part)
					}
				}
				if strings.Contains(rec.LastError, "removed") {
					t.Errorf("last_error speaks of a removal: %q", rec.LastError)
				}
				if n := r.cloud.count("order"); n != 1 {
					t.Errorf("%d orders, want 1", n)
				}
				time.Sleep(time.Minute)
				if n := r.cloud.count("discard"); n != 1 {
					t.Errorf("%d discards, want 1", n)
				}
			})
		})
	}
}

// A server that somebody gave back meanwhile is not spoken of as kept.
func TestFailureOfAKeeperWhoseServerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, kept)
		synctest.Wait()
		r.cloud.script("boot", slicesOf(cloud.ErrNotFound, 3)...)
		r.must(machine.Create)
		rec := r.settle(machine.Failed)
		if !strings.Contains(rec.LastError, "(missing)") || !strings.Contains(rec.LastError, "z/1 is gone at the cloud, nothing is left") || strings.Contains(rec.LastError, "yours") {
			t.Errorf("last_error %q", rec.LastError)
		}
	})
}

// An install may be repeated in one Create: the host that the first one made may
// have called, and must not keep the next one's token from it.
func TestRepeatedInstallIsAnotherHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, kept)
		synctest.Wait()
		r.cloud.script("boot", cloud.Again(time.Minute, "the install is repeated"))
		r.must(machine.Create)
		time.Sleep(10 * time.Second)
		if _, err := r.store.Do(t.Context(), "m1", machine.LockHost(r.record("m1").History.Create, "first install")); err != nil {
			t.Fatal(err)
		}
		if got := r.record("m1").LockedTo(); got != "first install" {
			t.Fatalf("tied to %q: the test proves nothing", got)
		}
		if rec := r.settle(machine.Idle); rec.LockedTo() != "" {
			t.Errorf("the token is tied to %q, which was installed over", rec.LockedTo())
		}
	})
}

// While a slot's order is in doubt, nobody fills the slot.
func TestSlotInDoubtWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, kept)
		synctest.Wait()
		r.cloud.script("order", cloud.ErrUncertain)
		r.cloud.script("discard", slicesOf(cloud.Again(10*time.Minute, "it may turn up"), 3)...)
		r.must(machine.Create)
		r.settle(machine.Failed)
		time.Sleep(25 * time.Minute)
		if s := r.record("m1-r2").State; s != machine.Unknown {
			t.Errorf("the slot has a new machine, %s, while its order is in doubt", s)
		}
		time.Sleep(10 * time.Minute)
		if s := r.record("m1-r2").State; s != machine.Speculative {
			t.Errorf("the slot's next machine is %s, want SPECULATIVE", s)
		}
	})
}

// A pass leaves spares alone and counts them. A server that was never installed
// is no machine: it becomes a spare once it is old.
func TestPassOverKeptServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 2, func(o *lifecycle.Options) {
			kept(o)
			o.Awaiting = true
		}, func(r *rig) {
			r.server("z/spare", "", "", "")
			r.server("z/half", "m1", "op-lost", "")
			r.server("z/nobody", "old-1", "op-old", "")
			r.cloud.edit(func() {
				spare, half, old := r.cloud.instances["z/spare"], r.cloud.instances["z/half"], r.cloud.instances["z/nobody"]
				spare.Spare, half.Unfinished = true, true
				half.Created = time.Now()
				r.cloud.instances["z/spare"], r.cloud.instances["z/half"], r.cloud.instances["z/nobody"] = spare, half, old
			})
		})
		time.Sleep(10 * time.Minute)
		if s := r.record("m1").State; s != machine.Speculative {
			t.Errorf("m1 is %s by a server that was never installed", s)
		}
		if rec := r.record("old-1"); rec.State != machine.Idle || rec.Offer.Capacity != machine.BareMetal {
			t.Errorf("a server of an earlier life is %s, %+v; want IDLE bare metal", rec.State, rec.Offer)
		}
		spares := 0
		r.saw.look(func() { spares = r.saw.last.Reported["spare"] })
		if n := spares; n != 1 {
			t.Errorf("%d spares reported, want 1", n)
		}
		if n := r.cloud.count("discard"); n != 0 {
			t.Errorf("%d servers were put back, young as they are", n)
		}
		time.Sleep(time.Hour)
		var got []string
		r.cloud.edit(func() {
			for _, call := range r.cloud.calls {
				if machine, is := strings.CutPrefix(call, "discard "); is {
					got = append(got, machine)
				}
			}
		})
		if !slices.Equal(got, []string{"m1"}) {
			t.Errorf("put back were the servers of %q, want that of m1", got)
		}
	})
}

// A host that is gone fails its machine, since no Delete could free the slot.
func TestHostOfAKeeperIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 1, kept, func(r *rig) { r.host(1, machine.Idle, "") })
		r.cloud.edit(func() { delete(r.cloud.instances, "z/h1") })
		time.Sleep(10 * time.Minute)
		if rec := r.record("m1"); rec.State != machine.Failed || !strings.Contains(rec.LastError, "z/h1 is gone") {
			t.Errorf("m1 is %s (%s)", rec.State, rec.LastError)
		}
		if s := r.record("m1-r2").State; s != machine.Speculative {
			t.Errorf("the slot's next machine is %s", s)
		}
	})
}

// List is told of each step of a Create, and of nothing more.
func TestStagesAreShown(t *testing.T) {
	for name, options := range map[string]func(*lifecycle.Options){"kept": kept, "not kept": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options)
				synctest.Wait()
				before := r.record("m1").Revision
				r.must(machine.Create)
				changes := r.settle(machine.Idle).Revision - before
				want := uint64(2) // CREATING, IDLE
				if options != nil {
					want += 4 // order, boot, first-contact, scrub
				}
				if changes != want {
					t.Errorf("%d changes were shown, want %d", changes, want)
				}
			})
		})
	}
}
