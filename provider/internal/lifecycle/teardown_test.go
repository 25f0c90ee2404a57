package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

// TestFailedCreateIsReplaced follows a failed machine to its end: its host is
// torn down although that fails at first, a new id takes the slot, and the old
// one disappears after it was shown, its last_error unchanged.
func TestFailedCreateIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		r.cloud.script("discard", errors.New("500"), cloud.Again(time.Second, "stopping"))
		r.must(machine.Create)
		rec := r.settle(machine.Failed)
		if !strings.Contains(rec.LastError, "first-contact") || !strings.Contains(rec.LastError, "; hint: contact") {
			t.Errorf("last_error %q", rec.LastError)
		}
		reason := rec.LastError
		time.Sleep(time.Minute)
		if r.cloud.size() != 0 {
			t.Error("the host of a failed Create is left")
		}
		next := r.record("m1-r2")
		if next.State != machine.Speculative || next.Slot != "m1" || next.Offer != offer {
			t.Fatalf("successor %+v", next)
		}
		if rec := r.record("m1"); rec.State != machine.Failed || rec.LastError != reason {
			t.Errorf("the failed machine changed: %+v", rec)
		}
		if _, err := r.do(machine.Create, nil); err == nil {
			t.Error("a FAILED machine was created again")
		}
		r.stop()
		r.start() // the pair survives a restart
		time.Sleep(11 * time.Minute)
		if rec := r.record("m1"); rec.State != machine.Unknown {
			t.Errorf("the failed machine is still listed: %+v", rec)
		}
		r.hosts.edit(func() { r.hosts.silent = false })
		if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = "m1-r2" }); err != nil {
			t.Errorf("the successor: %v", err)
		}
		time.Sleep(time.Minute)
		if rec := r.record("m1-r2"); rec.State != machine.Idle {
			t.Errorf("the successor is %s", rec.State)
		}
	})
}
