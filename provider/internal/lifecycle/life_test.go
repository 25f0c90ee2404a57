package lifecycle_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// rendered collects whose user data were asked for.
type rendered struct {
	mu  sync.Mutex
	ops []string
}

func (d *rendered) of(_, operation string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = append(d.ops, operation)
	return nil, nil
}

func (d *rendered) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ops := slices.Compact(d.ops)
	d.ops = nil
	return ops
}

func (r *rig) wantLife(what, id string, plain bool) {
	r.t.Helper()
	life, ok := r.record("m1").Life()
	if ok != (id != "") || life != (machine.Life{ID: id, Plain: plain}) {
		r.t.Errorf("%s: life %+v, %t; want %q, plain %t", what, life, ok, id, plain)
	}
}

// TestLivesOfASlot: each Create of an id makes user data of its own life, and its
// Delete ends that life when it is accepted, not when the server is gone.
func TestLivesOfASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var data rendered
		r := newRig(t, func(o *lifecycle.Options) { o.UserData = data.of })
		synctest.Wait()
		forgotten := 0
		r.hosts.edit(func() {
			r.hosts.forgotten = func(id string) {
				forgotten++
				if life, ok := r.record(id).Life(); ok {
					t.Errorf("forgotten while life %s goes on", life.ID)
				}
			}
		})
		for n := range 3 {
			first := n == 0
			r.wantLife("free", "", false)
			id := r.must(machine.Create)
			r.settle(machine.Idle)
			r.wantLife("IDLE", id, first)
			if got := data.take(); !slices.Equal(got, []string{id}) {
				t.Errorf("user data of %q, want of %q alone", got, id)
			}
			r.must(machine.Configure)
			r.settle(machine.Configured)
			r.must(machine.Drain)
			r.settle(machine.Idle)
			r.wantLife("drained", id, first)

			r.cloud.script("terminate", cloud.Again(time.Minute, "it takes a while"))
			forgotten = 0
			r.must(machine.Delete)
			r.wantLife("DELETING", "", false)
			if forgotten != 1 || r.cloud.size() != 1 {
				t.Errorf("at the acceptance of a Delete: forgotten %d times, %d servers; want once and 1", forgotten, r.cloud.size())
			}
			r.settle(machine.Speculative)
		}
	})
}

// TestLifeOfALostHost: the life of an IDLE machine whose server is gone ends with
// the decision to free its slot.
func TestLifeOfALostHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.cloud.script("terminate", cloud.Again(time.Hour, "it takes a while"))
		forgotten := 0
		r.hosts.edit(func() { r.hosts.forgotten = func(string) { forgotten++ } })
		r.cloud.edit(func() { clear(r.cloud.instances) })
		for range 100 {
			if r.record("m1").State == machine.Deleting {
				break
			}
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		r.wantLife("DELETING", "", false)
		if forgotten != 1 {
			t.Errorf("forgotten %d times, want once", forgotten)
		}
	})
}

// TestLifeOfAFailedMachine: the host of a failed machine keeps its life for as long
// as it is kept, and no longer; the machine that follows in the slot has another id.
func TestLifeOfAFailedMachine(t *testing.T) {
	for name, keep := range map[string]bool{"removed": false, "a spare, whose system runs on": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *lifecycle.Options) {
					if keep {
						kept(o)
					}
				})
				synctest.Wait()
				id := r.must(machine.Create)
				r.settle(machine.Idle)
				r.hosts.edit(func() { r.hosts.silent = true })
				r.must(machine.Configure)
				r.settle(machine.Failed)
				r.wantLife("its host is kept", id, true)
				late := false
				r.hosts.edit(func() {
					r.hosts.forgotten = func(string) {
						if _, ok := r.record("m1").Life(); ok {
							late = true
						}
					}
				})
				for range 1000 {
					if r.record("m1").Leftover == nil {
						break
					}
					time.Sleep(10 * time.Second)
				}
				synctest.Wait()
				r.wantLife("nothing is left", "", false)
				if late {
					t.Error("forgotten before its life was over: what polls in between stays parked")
				}
			})
		})
	}
}

// TestLifeOverRestarts: a Create is of one life however often the provider is
// restarted, and bound before the server is ordered if the id had another.
func TestLifeOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var data rendered
		r := newRig(t, func(o *lifecycle.Options) { o.UserData = data.of })
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.must(machine.Delete)
		r.settle(machine.Speculative)
		data.take()
		r.cloud.script("order", cloud.Again(time.Minute, "wait"))
		r.cloud.script("boot", cloud.Again(time.Minute, "wait"), cloud.Again(time.Minute, "wait"))
		id := r.must(machine.Create)
		for rec := r.record("m1"); rec.State == machine.Creating; rec = r.record("m1") {
			if rec.Op.Step != "" {
				r.wantLife(rec.Op.Step, id, false)
			}
			r.stop()
			r.start()
			time.Sleep(20 * time.Second)
		}
		r.wantLife("in the end", id, false)
		if got := data.take(); !slices.Equal(got, []string{id}) {
			t.Errorf("user data of %q, want of %q alone", got, id)
		}
	})
}

// TestLifeOfAServerAsItIs: a server that keeps the system which somebody put there
// has the token that they put there too, which knows of no life.
func TestLifeOfAServerAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.cloud.edit(func() { r.cloud.asIs = true })
		r.cloud.script("boot", cloud.Again(time.Minute, "wait"))
		id := r.must(machine.Create)
		time.Sleep(30 * time.Second)
		r.wantLife("before contact", id, true)
		r.settle(machine.Idle)
		r.wantLife("IDLE", id, true)
	})
}

// TestLifeOfAnAdoptedServer: what the state has lost, the server's tags say: which
// Create it is of, and whether its token knows that.
func TestLifeOfAnAdoptedServer(t *testing.T) {
	for name, tt := range map[string]struct {
		operation, life string
		plain           bool
	}{
		"made by this release":                              {"op-9", "op-9", false},
		"made by an earlier release":                        {"op-9", "", true},
		"taken over by an earlier release":                  {"op-9", "op-8", true},
		"given by hand":                                     {"", "", true},
		"whose operation was removed by hand from its tags": {"", "op-9", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *lifecycle.Options) { o.Awaiting = true })
				r.cloud.edit(func() {
					r.cloud.instances["z/7"] = cloud.Instance{
						Ref: "z/7", MachineID: "m1", OperationID: tt.operation, Life: tt.life, Zone: "z", Power: cloud.PowerRunning, Created: time.Now(),
					}
				})
				time.Sleep(3 * time.Minute)
				rec := r.record("m1")
				if rec.Host != "z/7" {
					t.Fatalf("not adopted: %+v", rec)
				}
				life, ok := rec.Life()
				if !ok || life.Plain != tt.plain || life.ID == "" || tt.operation != "" && life.ID != tt.operation {
					t.Errorf("life %+v, %t, want of %q, plain %t", life, ok, tt.operation, tt.plain)
				}
			})
		})
	}
}
