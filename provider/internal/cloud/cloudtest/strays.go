package cloudtest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/cloud"
)

// testStrays removes a server behind the provider's back: what it leaves is
// found under its machine and its operation and can be removed. What another
// server uses, and what is a stranger's, is no stray.
func testStrays(t *testing.T, w *World) {
	sweeper, ok := w.Connect(t).(cloud.Sweeper)
	if !ok {
		t.Skip("nothing outlives a server of this cloud")
	}
	c := w.Connect(t)
	w.Stranger(t, 3)
	w.create(t, c, "m-1")
	before := slices.Sorted(slices.Values(w.Remains()))
	op := w.create(t, c, "m-2")
	if strays, err := sweeper.Strays(deadline(t)); err != nil || len(strays) > 0 {
		t.Fatalf("while all servers are there: strays %+v, %v", strays, err)
	}
	w.Remove(t, op.Ref)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // they may be in use for a while
		strays, err := sweeper.Strays(deadline(t))
		must(t, err)
		for _, s := range strays {
			if s.MachineID != op.Spec.MachineID || s.OperationID != op.Spec.OperationID {
				t.Fatalf("stray %+v, want only what %q left", s, op.Spec.MachineID)
			}
			for range 2 { // what is gone is success
				if err := sweeper.Remove(deadline(t), s); err != nil && !errors.Is(err, cloud.ErrConflict) {
					t.Fatalf("Remove of %+v: %v", s, err)
				}
			}
		}
		left := slices.Sorted(slices.Values(w.Remains()))
		if slices.Equal(before, left) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("what remains (-want +got):\n%s", cmp.Diff(before, left))
		}
	}
}
