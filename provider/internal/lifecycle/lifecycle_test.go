package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/shared/command"
)

func TestWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		create := r.must(machine.Create)
		if again := r.must(machine.Create); again != create {
			t.Errorf("a replay got operation %s, want %s", again, create)
		}
		if rec := r.settle(machine.Idle); rec.Host != "z/1" {
			t.Errorf("host %+v", rec.Host)
		}
		configure := r.must(machine.Configure)
		rec := r.settle(machine.Configured)
		if rec.Cluster != "c1" || rec.Op != nil || r.cloud.tag("z/1") != "c1" {
			t.Errorf("after Configure: %+v, tag %q", rec, r.cloud.tag("z/1"))
		}
		cmd := r.hosts.sent()[0]
		if cmd.CommandID != configure || string(cmd.Blob) != "join me" || cmd.Kind != command.Configure || cmd.ProviderID != "scripted://z/1" || cmd.NodeName != "m1" {
			t.Errorf("command %+v", cmd)
		}
		if _, err := r.do(machine.Drain, func(q *machine.Request) { q.GraceSeconds = 7 }); err != nil {
			t.Fatal(err)
		}
		rec = r.settle(machine.Idle)
		if rec.Cluster != "" || r.cloud.tag("z/1") != "" {
			t.Errorf("after Drain: %+v", rec)
		}
		if cmd := r.hosts.sent()[1]; cmd.Kind != command.Drain || cmd.GraceSeconds != 7 || len(cmd.Blob) > 0 {
			t.Errorf("command %+v", cmd)
		}
		r.must(machine.Delete)
		r.settle(machine.Speculative)
		if r.cloud.size() != 0 || r.cloud.count("order") != 1 || r.cloud.count("scrub") != 1 {
			t.Errorf("left %d instances after %d calls", r.cloud.size(), r.cloud.count(""))
		}
		for _, err := range r.hosts.outcomes() {
			if err != nil {
				t.Errorf("a report was not confirmed: %v", err)
			}
		}
	})
}

// TestRestartAtEveryMoment stops the engine at each quarter of a second of a
// Create and a Configure and starts a new one: same operation, one server.
func TestRestartAtEveryMoment(t *testing.T) {
	for at := range 12 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			synctest.Wait()
			id := r.must(machine.Create)
			time.Sleep(time.Duration(at) * 250 * time.Millisecond)
			r.stop()
			r.start()
			synctest.Wait()
			if again := r.must(machine.Create); again != id {
				t.Errorf("operation %s after the restart, %s before", again, id)
			}
			r.settle(machine.Idle)

			id = r.must(machine.Configure)
			deadline := r.record("m1").Op.Deadline
			time.Sleep(time.Duration(at) * 250 * time.Millisecond)
			r.stop()
			if op := r.record("m1").Op; op != nil && !op.Deadline.Equal(deadline) {
				t.Errorf("the deadline moved")
			}
			r.start()
			synctest.Wait()
			if again := r.must(machine.Configure); again != id {
				t.Errorf("operation %s after the restart, %s before", again, id)
			}
			r.settle(machine.Configured)
			for _, cmd := range r.hosts.sent() {
				if cmd.CommandID != id || string(cmd.Blob) != "join me" {
					t.Errorf("command %s with blob %q", cmd.CommandID, cmd.Blob)
				}
			}
			if r.cloud.size() != 1 {
				t.Errorf("%d servers", r.cloud.size())
			}
		})
	}
}

// TestNotesAfterARestart: what a resumed step notes reaches the store, although
// the operation had notes before; the record as it was stays what it was.
func TestNotesAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.cloud.edit(func() { r.cloud.noting = true })
		r.cloud.script("order", slicesOf(cloud.Again(time.Minute, "it takes its time"), 10)...)
		r.must(machine.Create)
		time.Sleep(time.Second)
		before := r.record("m1").Op.Notes
		r.stop()
		r.start()
		time.Sleep(time.Second)
		if got := r.record("m1").Op.Notes["calls"]; got != "2" {
			t.Errorf("the store has the note of call %q, want that of the second", got)
		}
		if before["calls"] != "1" {
			t.Errorf("the note of call %q is in the record as it was before: it was never handed to the store", before["calls"])
		}
		r.settle(machine.Idle)
	})
}

// TestRefusalsAreCountedOverCheckpoints: a step that has its notes made durable
// before each try gets no more tries for it.
func TestRefusalsAreCountedOverCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		var script []error
		for range 20 {
			script = append(script, cloud.Again(0, "about to be sent"), cloud.ErrDenied)
		}
		r.cloud.script("order", script...)
		r.must(machine.Create)
		if rec := r.settle(machine.Failed); !strings.Contains(rec.LastError, "(permission)") || !strings.Contains(rec.LastError, "6 tries failed") {
			t.Errorf("last_error %q, want the end after 6 refusals", rec.LastError)
		}
	})
}

// TestStepOfAnotherRelease resumes a Create whose step this release does not
// have: every step is told that its effect may exist, so none makes it again.
func TestStepOfAnotherRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		id := r.must(machine.Create)
		time.Sleep(time.Second)
		r.stop()
		_, err := r.store.Do(t.Context(), "m1", func(cur machine.Record) (machine.Record, machine.Change, error) {
			next, ok := machine.Advance(cur, id, machine.Progress{Step: "of another release", Ref: cur.Op.Ref})
			if !ok {
				t.Error("the operation is over")
			}
			return next, machine.Private, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r.hosts.edit(func() { r.hosts.silent = false })
		r.cloud.edit(func() { r.cloud.reruns = nil })
		r.start()
		r.settle(machine.Idle)
		r.cloud.edit(func() {
			if got := strings.Join(r.cloud.reruns, " "); got != "order boot" || len(r.cloud.instances) != 1 {
				t.Errorf("told to look first: %q; %d servers", got, len(r.cloud.instances))
			}
		})
	})
}

func TestBlobIsSealedAndErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.must(machine.Configure)
		op := r.record("m1").Op
		if op == nil || len(op.Sealed) == 0 || bytes.Contains(op.Sealed, []byte("join me")) {
			t.Fatalf("the blob is not sealed: %+v", op)
		}
		if rec := r.settle(machine.Configured); rec.Op != nil {
			t.Errorf("the sealed blob outlives its operation")
		}
	})
}

// TestUnsealableBlobWaitsForTheShard restarts without a durable secret: the
// interrupted Configure waits for the shard to send the blob again, and fails
// at its deadline if nobody does.
func TestUnsealableBlobWaitsForTheShard(t *testing.T) {
	for _, again := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *lifecycle.Options) { o.Sealer = nil })
			synctest.Wait()
			r.must(machine.Create)
			r.settle(machine.Idle)
			id := r.must(machine.Configure)
			if op := r.record("m1").Op; op.Sealed != nil {
				t.Error("something was kept without a key")
			}
			r.stop()
			delivered := len(r.hosts.sent())
			r.start()
			time.Sleep(time.Minute)
			if len(r.hosts.sent()) != delivered {
				t.Fatal("a command went out without its blob")
			}
			if !again {
				rec := r.settle(machine.Failed)
				if !strings.Contains(rec.LastError, "timeout") || !strings.Contains(rec.LastError, "deliver") {
					t.Errorf("last_error %q", rec.LastError)
				}
				return
			}
			if got := r.must(machine.Configure); got != id {
				t.Errorf("the replay got operation %s, want %s", got, id)
			}
			r.settle(machine.Configured)
			if cmd := r.hosts.sent()[len(r.hosts.sent())-1]; string(cmd.Blob) != "join me" {
				t.Errorf("blob %q", cmd.Blob)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	transient := errors.New("503")
	for name, tc := range map[string]struct {
		step  string
		errs  []error
		want  machine.State
		says  []string
		tries int
	}{
		"transient":  {"order", []error{transient, transient, cloud.ErrThrottled}, machine.Idle, nil, 4},
		"again":      {"boot", []error{cloud.Again(time.Minute, "boots"), cloud.Again(time.Minute, "boots")}, machine.Idle, nil, 3},
		"capacity":   {"boot", []error{cloud.ErrNoCapacity}, machine.Failed, []string{"Create", `"boot"`, "(capacity)", "z/1", "another type"}, 1},
		"quota":      {"order", []error{cloud.ErrQuota}, machine.Failed, []string{`"order"`, "(quota)", "raise"}, 1},
		"invalid":    {"order", []error{cloud.ErrInvalid}, machine.Failed, []string{"(invalid)"}, 1},
		"flapping":   {"order", []error{cloud.ErrDenied, cloud.ErrDenied}, machine.Idle, nil, 3},
		"permission": {"order", []error{cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied}, machine.Failed, []string{"(permission)"}, 6},
		"endless":    {"boot", slicesOf(cloud.Again(time.Minute, "starting for ever"), 100), machine.Failed, []string{"(timeout)", "starting for ever", "deadline", "raise --create-timeout"}, 10},
		"scrub":      {"scrub", slicesOf(transient, 100), machine.Idle, nil, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				synctest.Wait()
				r.cloud.script(tc.step, tc.errs...)
				r.must(machine.Create)
				rec := r.settle(tc.want)
				for _, w := range tc.says {
					if !strings.Contains(rec.LastError, w) {
						t.Errorf("last_error %q does not say %q", rec.LastError, w)
					}
				}
				if n := r.cloud.count(tc.step); n < tc.tries || n > tc.tries+3 {
					t.Errorf("%d tries of %s, want about %d", n, tc.step, tc.tries)
				}
			})
		})
	}
}

func slicesOf(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

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
		if !strings.Contains(rec.LastError, "first-contact") || !strings.Contains(rec.LastError, "--bootstrap-endpoint") {
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
		for _, w := range []string{"(agent)", "kubeadm: exit 1", "z/1 is kept for 1h0m0s", "journalctl"} {
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

func TestReconcile(t *testing.T) {
	idle := func(t *testing.T) *rig {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		time.Sleep(2 * time.Minute)
		return r
	}
	instance := func(ref, id string) cloud.Instance {
		return cloud.Instance{Ref: ref, MachineID: id, OperationID: "old", Power: cloud.PowerRunning, Created: time.Now()}
	}
	t.Run("a lost host is believed after three inventories", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := idle(t)
			r.cloud.edit(func() { delete(r.cloud.instances, "z/1") })
			time.Sleep(130 * time.Second)
			if s := r.record("m1").State; s != machine.Idle {
				t.Fatalf("%s after two inventories", s)
			}
			time.Sleep(time.Minute)
			if rec := r.record("m1"); rec.State != machine.Speculative || rec.Host != "" || r.cloud.count("terminate m1") != 1 {
				t.Errorf("%+v after three, %d teardowns", rec, r.cloud.count("terminate"))
			}
		})
	})
	t.Run("a failed inventory concludes nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := idle(t)
			r.cloud.edit(func() { r.cloud.listErr = errors.New("page 2: 503") })
			before, _, _ := r.store.Get("m1")
			time.Sleep(time.Hour)
			if after, _, _ := r.store.Get("m1"); after.Revision != before.Revision {
				t.Error("something changed")
			}
		})
	})
	t.Run("nothing changed moves nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := idle(t)
			before, _, _ := r.store.Get("m1")
			time.Sleep(time.Hour)
			if after, _, _ := r.store.Get("m1"); after.Revision != before.Revision {
				t.Error("a reconcile without news moved the revision")
			}
		})
	})
	t.Run("a duplicate is removed, the recorded host stays", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := idle(t)
			r.cloud.edit(func() { r.cloud.instances["z/0"] = instance("z/0", "m1") })
			time.Sleep(25 * time.Minute)
			if r.cloud.size() != 2 {
				t.Fatal("removed before the grace period was over")
			}
			time.Sleep(10 * time.Minute)
			if _, err := r.cloud.Get(context.Background(), "z/1"); err != nil || r.cloud.size() != 1 {
				t.Errorf("z/1: %v; %d left", err, r.cloud.size())
			}
		})
	})
	t.Run("too many strangers halt the removal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := idle(t)
			for _, ref := range []string{"z/a", "z/b", "z/c", "z/d"} {
				r.cloud.edit(func() { r.cloud.instances[ref] = instance(ref, "m1") })
			}
			time.Sleep(3 * time.Hour)
			if r.cloud.size() != 5 {
				t.Errorf("%d left", r.cloud.size())
			}
		})
	})
	t.Run("a new state adopts what exists, and accepts nothing before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *lifecycle.Options) { o.Awaiting = true })
			r.stop()
			r.cloud.edit(func() { r.cloud.listErr = errors.New("503") })
			bound := instance("z/7", "m1")
			bound.Cluster = "c9"
			r.cloud.edit(func() { r.cloud.instances["z/7"] = bound })
			r.cloud.edit(func() { r.cloud.instances["z/8"] = instance("z/8", "retired") })
			r.start()
			time.Sleep(time.Minute)
			var refused *machine.Error
			if _, err := r.do(machine.Create, nil); !errors.As(err, &refused) || refused.Code != machine.Unavailable || !strings.Contains(refused.Text, "(503)") {
				t.Fatalf("accepted before the inventory was read: %v", err)
			}
			r.cloud.edit(func() { r.cloud.listErr = nil })
			time.Sleep(time.Minute)
			if rec := r.record("m1"); rec.State != machine.Configured || rec.Cluster != "c9" || rec.Host != "z/7" {
				t.Errorf("m1: %+v", rec)
			}
			if rec := r.record("retired"); rec.State != machine.Idle || !rec.Retired {
				t.Errorf("a machine whose offering is gone: %+v", rec)
			}
			if _, err := r.do(machine.Configure, func(q *machine.Request) { q.Cluster = "c9" }); err != nil {
				t.Errorf("a Configure for the adopted binding: %v", err)
			}
			time.Sleep(24 * time.Hour)
			if r.cloud.size() != 2 {
				t.Error("an adopted server was removed")
			}
		})
	})
}

func TestSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		ctx := context.Background()
		seed := func(slots map[string]*machine.Offer) {
			t.Helper()
			if err := r.engine.Seed(ctx, slots); err != nil {
				t.Fatal(err)
			}
		}
		dearer := *offer
		dearer.PricePerHour = 2
		seed(map[string]*machine.Offer{"m1": &dearer, "m2": offer})
		if rec := r.record("m1"); rec.Offer.PricePerHour != 2 || rec.State != machine.Idle {
			t.Errorf("m1: %+v", rec)
		}
		before := r.record("m1").Revision
		seed(map[string]*machine.Offer{"m1": &dearer, "m2": offer})
		if r.record("m1").Revision != before {
			t.Error("the same offer moved the revision")
		}
		seed(nil)
		if r.record("m2").State != machine.Unknown {
			t.Error("a SPECULATIVE slot outlives its offering")
		}
		if rec := r.record("m1"); rec.State != machine.Idle || !rec.Retired {
			t.Errorf("a live machine went with its offering: %+v", rec)
		}
		r.must(machine.Delete)
		for range 100 {
			time.Sleep(time.Second)
		}
		if rec := r.record("m1"); rec.State != machine.Unknown || r.cloud.size() != 0 {
			t.Errorf("a retired machine outlives its Delete: %+v", rec)
		}
	})
}

func TestNodeName(t *testing.T) {
	long := strings.Repeat("a", 63)
	seen := map[string]string{}
	for _, id := range []string{"a", "m-1", "M-1", "m_1", "m.1", long, long + "b", long + "c", "-x-", "ü", "\x00", strings.Repeat("-", 70)} {
		name := lifecycle.NodeName(id)
		if len(name) > 63 || len(name) == 0 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || name[0] == '-' || name[len(name)-1] == '-' {
			t.Errorf("%q: %q is no DNS label", id, name)
		}
		if other, dup := seen[name]; dup {
			t.Errorf("%q and %q share the name %q", id, other, name)
		}
		seen[name] = id
		if lifecycle.NodeName(id) != name {
			t.Errorf("%q: not stable", id)
		}
	}
	if got := lifecycle.NodeName("scaleway-dev1-s-0001"); got != "scaleway-dev1-s-0001" {
		t.Errorf("a valid label was changed to %q", got)
	}
}

func TestSealer(t *testing.T) {
	a, err := lifecycle.NewSealer(bytes.Repeat([]byte("a"), 32))
	if err != nil {
		t.Fatal(err)
	}
	b, err := lifecycle.NewSealer(bytes.Repeat([]byte("b"), 32))
	if err != nil {
		t.Fatal(err)
	}
	sealed := a.Seal("m1", "op1", []byte("blob"))
	if got, err := a.Open("m1", "op1", sealed); err != nil || string(got) != "blob" {
		t.Errorf("Open: %q, %v", got, err)
	}
	// While the secret is changed, what was sealed under the one before opens too.
	rotated, err := lifecycle.NewSealer(bytes.Repeat([]byte("b"), 32), bytes.Repeat([]byte("a"), 32))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := rotated.Open("m1", "op1", sealed); err != nil || string(got) != "blob" {
		t.Errorf("Open with the previous secret: %q, %v", got, err)
	}
	if got, err := b.Open("m1", "op1", rotated.Seal("m1", "op1", []byte("blob"))); err != nil || string(got) != "blob" {
		t.Errorf("it is not sealed under the present secret: %q, %v", got, err)
	}
	damaged := bytes.Clone(sealed)
	damaged[len(damaged)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another secret":    func() ([]byte, error) { return b.Open("m1", "op1", sealed) },
		"another machine":   func() ([]byte, error) { return a.Open("m2", "op1", sealed) },
		"another operation": func() ([]byte, error) { return a.Open("m1", "op2", sealed) },
		"damaged":           func() ([]byte, error) { return a.Open("m1", "op1", damaged) },
		"short":             func() ([]byte, error) { return a.Open("m1", "op1", sealed[:5]) },
	} {
		if got, err := open(); err == nil || got != nil {
			t.Errorf("%s: opened as %q", name, got)
		}
	}
}

func TestCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		over, cancel := context.WithCancel(context.Background())
		cancel()
		q := machine.Request{Kind: machine.Create, MachineID: "m1", Fence: machine.Fence{Shard: "s", Epoch: 1, Sequence: 1}}
		if _, _, err := r.engine.Start(over, q, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose caller is gone: %v", err)
		}
		if rec := r.record("m1"); rec.State != machine.Speculative || len(rec.Marks) > 0 {
			t.Errorf("a call whose caller is gone did something: %+v", rec)
		}
		ctx, hangUp := context.WithCancel(context.Background())
		if _, _, err := r.engine.Start(ctx, q, nil); err != nil {
			t.Fatal(err)
		}
		hangUp()
		r.settle(machine.Idle)
	})
}

// TestLanes accepts more Creates than may run at once: each waits its turn, a
// restart loses none, and one whose deadline passes in the queue fails.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := map[string]*machine.Offer{}
		ids := []string{"a", "b", "c", "d", "e", "f"}
		for _, id := range ids {
			slots[id] = offer
		}
		r := newRig(t, func(o *lifecycle.Options) { o.MaxCreates = 2 })
		if err := r.engine.Seed(context.Background(), slots); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		accepted := time.Now()
		for _, id := range ids {
			if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = id }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if driven, waiting := r.engine.Backlog(machine.Create); driven != 2 || waiting != 4 || r.cloud.size() != 2 {
			t.Fatalf("%d driven, %d wait, %d servers", driven, waiting, r.cloud.size())
		}
		r.stop()
		r.opts.MaxCreates = 1
		r.start()
		if err := r.engine.Seed(context.Background(), slots); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(accepted.Add(10*time.Minute + 30*time.Second)))
		for _, id := range ids {
			if rec := r.record(id); rec.State != machine.Failed || !strings.Contains(rec.LastError, "timeout") {
				t.Errorf("%s: %s %q", id, rec.State, rec.LastError)
			}
		}
		if driven, waiting := r.engine.Backlog(machine.Create); driven != 0 || waiting != 0 {
			t.Errorf("%d driven, %d wait", driven, waiting)
		}
	})
}

// TestThrottledTriesStayNear: the limit on calls sets the pace, so that ten
// refusals in a row do not cost minutes more.
func TestThrottledTriesStayNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		var script []error
		for range 10 {
			script = append(script, cloud.Again(0, "about to be sent"), cloud.ErrThrottled)
		}
		r.cloud.script("order", script...)
		begun := time.Now()
		r.must(machine.Create)
		r.settle(machine.Idle)
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}
