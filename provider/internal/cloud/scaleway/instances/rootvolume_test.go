package instances_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/fakecloud"
)

// withoutBlockStorage has every call of Block Storage refused, as for a key that
// lacks the permission, until the right is granted.
func (w *world) withoutBlockStorage() (grant func()) {
	return w.Inject(fakecloud.Fault{Times: -1, Reply: fakecloud.Forbidden("volume", "read"), Match: func(r fakecloud.Request) bool {
		return strings.Contains(r.Route, "/block/")
	}})
}

// TestCreateWithoutBlockStorage: what a Create made that could not tag its volume
// stays findable, with or without the state of before, and goes once the key may
// remove it.
func TestCreateWithoutBlockStorage(t *testing.T) {
	for name, lost := range map[string]bool{"state is kept": false, "state is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				grant := w.withoutBlockStorage()
				c := w.connect(t)
				if err := c.Missing(within(t)); !errors.Is(err, cloud.ErrDenied) || !strings.Contains(err.Error(), "BlockStorageFullAccess") {
					t.Errorf("Missing = %v", err)
				}
				op := operation("m-1")
				op.Spec.Type = blockType
				if err := op.Run(within(t), c.Create()); !errors.Is(err, cloud.ErrDenied) {
					t.Fatalf("Create = %v", err)
				}
				discard := op.Teardown()
				if err := discard.Run(within(t), c.Discard()); !errors.Is(err, cloud.ErrDenied) {
					t.Fatalf("Discard = %v", err)
				}
				if s := w.Servers(); len(s) != 1 || s[0].State != fakecloud.StateStopped || len(w.Volumes()) != 1 {
					t.Fatalf("the server must stay with its volume: %+v, %+v", s, w.Volumes())
				}
				grant()
				if err := c.Missing(within(t)); err != nil {
					t.Errorf("Missing = %v", err)
				}
				if lost { // a new process sees a server of its own without a record
					list, err := c.List(within(t))
					must(t, err)
					if len(list) != 1 {
						t.Fatalf("%d servers in the inventory", len(list))
					}
					discard = &cloudtest.Operation{Ref: list[0].Ref}
				}
				must(t, discard.Run(within(t), w.connect(t).Discard()))
				if left := w.remains(); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		})
	}
}

// TestVolumeIsTaggedBeforeItsServerGoes: should the process die in between, and
// its state be lost, the volume is a stray that can be told.
func TestVolumeIsTaggedBeforeItsServerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := operation("m-1")
		op.Spec.Type = blockType
		must(t, op.RunTo(within(t), c.Create(), 1)) // ordered, its volume not tagged
		steps := c.Discard()
		must(t, op.Teardown().RunTo(within(t), steps, 3))
		if n := len(w.Servers()); n > 0 || steps[3].Name != "volumes" {
			t.Fatalf("%d servers before step %q", n, steps[3].Name)
		}
		var strays []cloud.Stray
		waitFor(t, "the volume is free", func() bool {
			var err error
			strays, err = w.connect(t).Strays(within(t))
			must(t, err)
			return len(strays) > 0
		})
		if len(strays) != 1 || strays[0].Kind != cloud.KindVolume || strays[0].MachineID != "m-1" || strays[0].OperationID != op.Spec.OperationID {
			t.Fatalf("strays: %+v", strays)
		}
		must(t, c.Remove(within(t), strays[0]))
		if left := w.remains(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}
