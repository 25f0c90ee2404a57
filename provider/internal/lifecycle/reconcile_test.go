package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// A state that knows too little must not lead to a deletion: not a new one, not
// an old copy.
func TestLostOrOldStateDeletesNothing(t *testing.T) {
	const machines = 50
	for name, tt := range map[string]struct {
		known  int
		change func(*lifecycle.Options)
	}{
		"a new state":                      {0, func(o *lifecycle.Options) { o.Awaiting = true }},
		"a copy with 10 of 50":             {10, func(o *lifecycle.Options) { o.Awaiting = true; o.RemovalsFrom = time.Now().Add(time.Hour) }},
		"a copy that passes for the state": {10, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, machines, tt.change, func(r *rig) {
					for n := 1; n <= machines; n++ {
						if n <= tt.known {
							r.host(n, machine.Configured, "c1")
						} else {
							r.server(fmt.Sprint("z/h", n), fmt.Sprint("m", n), fmt.Sprint("create-", n), "c1")
						}
					}
					r.cloud.edit(func() {
						for n := 1; n <= machines; n++ {
							ref := fmt.Sprint("z/v", n)
							r.cloud.strays[ref] = cloud.Stray{Kind: cloud.KindVolume, Ref: ref, MachineID: fmt.Sprint("m", n), OperationID: fmt.Sprint("create-", n)}
						}
					})
				})
				time.Sleep(48 * time.Hour)
				if n := r.cloud.size(); n != machines {
					t.Errorf("%d of %d servers are left", n, machines)
				}
				if n := len(r.cloud.left()); n != machines {
					t.Errorf("%d of %d volumes are left", n, machines)
				}
				if got := r.states(machines); got[machine.Configured] != machines {
					t.Errorf("states %v", got)
				}
			})
		})
	}
}

// An inventory that failed is no inventory, and one direct 404 against a list
// that has the server is nothing.
func TestPartialReadsConcludeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 10, nil, func(r *rig) {
			for n := 1; n <= 10; n++ {
				r.host(n, machine.Idle, "")
			}
			r.cloud.edit(func() {
				r.cloud.unread["z/h1"] = func(context.Context) error { return cloud.ErrNotFound }
			})
		})
		time.Sleep(10*time.Minute + time.Second)
		if got := r.states(10); got[machine.Idle] != 10 {
			t.Fatalf("states %v: a 404 counted although the list has the server", got)
		}
		// Two good inventories without m2's server, then failed ones: the row holds,
		// and goes on with the next good one.
		r.cloud.edit(func() { delete(r.cloud.instances, "z/h2") })
		time.Sleep(2 * time.Minute)
		r.cloud.edit(func() { r.cloud.listErr = errors.New("list servers, page 2: 503") })
		failed := 0
		r.saw.look(func() { failed = r.saw.failed })
		time.Sleep(time.Hour)
		if got := r.states(10); got[machine.Idle] != 10 {
			t.Fatalf("states %v after failed inventories", got)
		}
		r.saw.look(func() {
			if r.saw.failed < failed+50 {
				t.Errorf("%d failed passes counted", r.saw.failed-failed)
			}
		})
		r.cloud.edit(func() { r.cloud.listErr = nil })
		time.Sleep(3 * time.Minute)
		if got := r.states(10); got[machine.Idle] != 9 || got[machine.Speculative] != 1 {
			t.Errorf("states %v after good inventories", got)
		}
	})
}

// One bad server must not keep the pass from the others.
func TestBadServersDoNotStopThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r := fleet(t, 60, nil, func(r *rig) {
			for n := 1; n <= 50; n++ {
				r.server(fmt.Sprint("z/h", n), fmt.Sprint("m", n), fmt.Sprint("create-", n), "") // to be adopted
			}
			r.server("z/hung", "m51", "create-51", "")
			r.server("z/nameless", "", "", "")
			r.server("z/garbled", "m\xff\x00", "op", "")
			r.server("z/long", strings.Repeat("x", 300), "op", "")
			r.server("z/odd", "m52", "create-52", "")
			r.server("z/locked", "m53", "create-53", "")
			r.host(54, machine.Configured, "c1") // its server is gone, and its Get hangs
			r.cloud.edit(func() {
				r.cloud.unread["z/hung"] = hangs
				r.cloud.unread["z/h54"] = hangs
				delete(r.cloud.instances, "z/h54")
				for ref, power := range map[string]cloud.Power{"z/odd": cloud.PowerUnknown, "z/locked": cloud.PowerLocked} {
					in := r.cloud.instances[ref]
					in.Power, in.PowerWord = power, "hibernating (deeply)"
					r.cloud.instances[ref] = in
				}
			})
		})
		r.stop()
		time.Sleep(time.Second)
		r.engine = lifecycle.New(r.opts)
		began := time.Now()
		for range 3 {
			if err := r.engine.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 4*time.Minute {
			t.Errorf("three passes took %s", took)
		}
		// 50, and the locked and the odd one, which are servers all the same.
		if got := r.states(60); got[machine.Idle] != 52 || got[machine.Configured] != 1 {
			t.Errorf("states %v", got)
		}
		r.saw.look(func() {
			want := map[string]int{"unreadable": 2, "no_machine": 3, "locked": 1, "unknown_state": 1, "stopped": 0}
			for reason, n := range want {
				if got := r.saw.last.Reported[reason]; got != n {
					t.Errorf("%d reported as %s, want %d", got, reason, n)
				}
			}
		})
		log := r.log.String()
		for _, ref := range []string{"z/hung", "z/nameless", "z/garbled", "z/long", "z/odd", "z/locked", "z/h54", "hibernating (deeply)"} {
			if !strings.Contains(log, ref) {
				t.Errorf("%s is not reported by name", ref)
			}
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

// A key that may not read does not empty the fleet: not when the inventory is
// refused, and not when a server that the list lacks cannot be read.
func TestRefusedReadsAreNoEmptyInventory(t *testing.T) {
	denied := fmt.Errorf("list servers: %w: read server", cloud.ErrDenied)
	for name, change := range map[string]func(*rig){
		"the inventory": func(r *rig) { r.cloud.listErr = denied },
		"each server": func(r *rig) {
			for n := 1; n <= 10; n++ {
				ref := fmt.Sprint("z/h", n)
				r.cloud.unread[ref] = func(context.Context) error { return denied }
				r.cloud.hidden[ref] = time.Now().Add(1000 * time.Hour)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 10, nil, func(r *rig) {
					for n := 1; n <= 5; n++ {
						r.host(n, machine.Configured, "c1")
						r.host(n+5, machine.Idle, "")
					}
				})
				time.Sleep(time.Minute)
				r.cloud.edit(func() { change(r) })
				time.Sleep(24 * time.Hour)
				if got := r.states(10); got[machine.Configured] != 5 || got[machine.Idle] != 5 {
					t.Errorf("states %v", got)
				}
				if n := r.cloud.size(); n != 10 || len(r.cloud.calls) > 0 {
					t.Errorf("%d servers are left after calls %q", n, r.cloud.calls)
				}
				if !strings.Contains(r.log.String(), "read server") {
					t.Error("the log does not say what is not permitted")
				}
			})
		})
	}
}
