package lifecycle_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

// A server that the list does not show yet is no lost host.
func TestNewServerMissingFromTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		hide := func(ref string, lag time.Duration) {
			r.cloud.edit(func() { r.cloud.hidden[ref] = time.Now().Add(lag) })
		}
		hide("z/1", time.Hour)
		r.must(machine.Create)
		r.settle(machine.Idle)
		for range 120 {
			if err := r.engine.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if s := r.record("m1").State; s != machine.Idle {
				t.Fatalf("the machine is %s, but its server can be read", s)
			}
		}
		if n := r.cloud.count("terminate"); n > 0 {
			t.Errorf("%d teardowns", n)
		}
		// Listed once, it begins anew.
		hide("z/1", 0)
		if err := r.engine.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.cloud.edit(func() { delete(r.cloud.instances, "z/1") })
		for range 2 {
			if err := r.engine.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := r.record("m1").State; s != machine.Idle {
			t.Errorf("%s after two inventories without it", s)
		}
	})
}

// Servers that go away or are switched off behind our back.
func TestHostsGoneOrOff(t *testing.T) {
	for name, tt := range map[string]struct {
		state   machine.State
		cluster string
		change  func(*rig)
		want    machine.State
		says    string
	}{
		"gone, CONFIGURED": {machine.Configured, "c1", func(r *rig) { delete(r.cloud.instances, "z/h1") }, machine.Failed, "is gone (missing)"},
		"gone, IDLE":       {machine.Idle, "", func(r *rig) { delete(r.cloud.instances, "z/h1") }, machine.Speculative, ""},
		"off, CONFIGURED":  {machine.Configured, "c1", powerOff, machine.Failed, "is powered off (missing)"},
		"off, IDLE":        {machine.Idle, "", powerOff, machine.Idle, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 1, nil, func(r *rig) { r.host(1, tt.state, tt.cluster) })
				time.Sleep(time.Minute)
				before := r.record("m1")
				r.cloud.edit(func() { tt.change(r) })
				time.Sleep(2 * time.Minute)
				if rec := r.record("m1"); rec.State != before.State {
					t.Fatalf("%s already (%s)", rec.State, rec.LastError)
				}
				time.Sleep(3 * time.Minute)
				rec := r.record("m1")
				if rec.State != tt.want || !strings.Contains(rec.LastError, tt.says) {
					t.Errorf("the machine is %s: %q", rec.State, rec.LastError)
				}
				if r.cloud.count("start") > 0 {
					t.Error("a server that somebody switched off was switched on")
				}
				if tt.want == machine.Idle {
					r.saw.look(func() {
						if r.saw.last.Reported["stopped"] != 1 {
							t.Errorf("reported %v", r.saw.last.Reported)
						}
					})
					if n := strings.Count(r.log.String(), "powered off"); n != 1 {
						t.Errorf("logged %d times, want once", n)
					}
				}
			})
		})
	}
}

func powerOff(r *rig) {
	in := r.cloud.instances["z/h1"]
	in.Power, in.PowerWord = cloud.PowerStopped, "stopped"
	r.cloud.instances["z/h1"] = in
}

// A freed machine is created anew under its own id, and the Delete that freed it
// survives a restart.
func TestVacatedSlotIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 1, nil, func(r *rig) { r.host(1, machine.Idle, "") })
		r.cloud.script("terminate", slicesOf(cloud.Again(time.Hour, "not yet"), 1)...)
		r.cloud.edit(func() { delete(r.cloud.instances, "z/h1") })
		time.Sleep(5 * time.Minute)
		rec := r.record("m1")
		if rec.State != machine.Deleting {
			t.Fatalf("the machine is %s", rec.State)
		}
		// A shard that asks for the same meanwhile is told of it.
		if id, err := r.do(machine.Delete, nil); err != nil || id != rec.Op.ID {
			t.Errorf("Delete: %s, %v, want a replay of %s", id, err, rec.Op.ID)
		}
		if _, err := r.do(machine.Configure, nil); err == nil {
			t.Error("a Configure of a machine without host was accepted")
		}
		r.stop()
		r.start()
		r.settle(machine.Speculative)
		r.must(machine.Create)
		if rec := r.settle(machine.Idle); rec.Host == "z/h1" {
			t.Errorf("%+v", rec)
		}
	})
}
