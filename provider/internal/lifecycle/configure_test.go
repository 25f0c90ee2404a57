package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/shared/command"
)

func TestAgentFailureKeepsTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.hosts.edit(func() {
			r.hosts.report = func(command.Command) (bool, string) { return false, "kubeadm: exit 1" }
		})
		r.must(machine.Configure)
		rec := r.settle(machine.Failed)
		for _, w := range []string{"(agent)", "kubeadm: exit 1", "z/1 is kept for 1h0m0s", "; hint: agent"} {
			if !strings.Contains(rec.LastError, w) {
				t.Errorf("last_error %q does not say %q", rec.LastError, w)
			}
		}
		if rec.Cluster != "c1" || rec.Host != "z/1" {
			t.Errorf("the binding is gone: %+v", rec)
		}
		if n := len(r.hosts.outcomes()); n != 1 || r.hosts.outcomes()[0] != nil {
			t.Errorf("confirmed %v", r.hosts.outcomes())
		}
		time.Sleep(59 * time.Minute)
		if r.cloud.size() != 1 {
			t.Fatal("the host went before the retention was over")
		}
		time.Sleep(5 * time.Minute)
		if r.cloud.size() != 0 {
			t.Error("the host outlives its retention")
		}
	})
}

// TestHostNeedsNoCloud: while the cloud's API does not answer, a host whose
// agent is there is configured and drained all the same.
func TestHostNeedsNoCloud(t *testing.T) {
	for name, fault := range map[string]error{"down": errors.New("503"), "refused": cloud.ErrDenied, "throttled": cloud.ErrThrottled} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				synctest.Wait()
				r.must(machine.Create)
				r.settle(machine.Idle)
				r.cloud.script("start", slicesOf(fault, 1000)...)
				r.cloud.script("set-cluster", slicesOf(fault, 20)...)
				r.must(machine.Configure)
				r.settle(machine.Configured)
				r.must(machine.Drain)
				r.settle(machine.Idle)
				r.hosts.edit(func() { r.hosts.silent = true })
				r.must(machine.Configure)
				if rec := r.settle(machine.Failed); !strings.Contains(rec.LastError, `"start"`) {
					t.Errorf("a host that nobody heard from: %q", rec.LastError)
				}
			})
		})
	}
}

func TestHostsDeadlineLeavesRoomForItsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.must(machine.Configure)
		deadline := r.record("m1").Op.Deadline
		r.settle(machine.Configured)
		if got := deadline.Sub(r.hosts.sent()[0].Deadline); got < 9*time.Second || got > 11*time.Second {
			t.Errorf("the host has %s less than the operation", got)
		}
	})
}

// TestHostGoneDuringConfigure: nothing can run on a host that is gone, so its
// slot is not held back for the retention.
func TestHostGoneDuringConfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.cloud.script("start", slicesOf(cloud.ErrNotFound, 10)...)
		r.must(machine.Configure)
		rec := r.settle(machine.Failed)
		if !strings.Contains(rec.LastError, "z/1 is gone") || strings.Contains(rec.LastError, "is kept") {
			t.Errorf("last_error %q", rec.LastError)
		}
		time.Sleep(time.Minute)
		if next := r.record("m1-r2"); next.State != machine.Speculative {
			t.Errorf("the slot has no successor: %+v", next)
		}
	})
}

func TestMissingTagIsNoFailedJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.cloud.script("set-cluster", slicesOf(errors.New("503"), 8)...)
		r.must(machine.Configure)
		r.settle(machine.Configured)
		time.Sleep(5 * time.Minute)
		if got := r.cloud.tag("z/1"); got != "c1" {
			t.Errorf("reconcile did not mend the tag: %q", got)
		}
	})
}
