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

// fleet is a rig with n slots, m1 to mn, on records and servers that change
// makes; the engine starts on them as after a restart.
func fleet(t *testing.T, n int, options func(*lifecycle.Options), change func(r *rig)) *rig {
	t.Helper()
	r := newRig(t, options)
	r.stop()
	for i := range n {
		r.slots[fmt.Sprint("m", i+1)] = offer
	}
	if err := r.engine.Seed(t.Context(), r.slots); err != nil {
		t.Fatal(err)
	}
	change(r)
	r.start()
	return r
}

// host gives a machine a server, as its record knows.
func (r *rig) host(n int, state machine.State, cluster string) {
	r.t.Helper()
	id, ref, op := fmt.Sprint("m", n), fmt.Sprint("z/h", n), fmt.Sprint("create-", n)
	_, err := r.store.Do(context.Background(), id, func(cur machine.Record) (machine.Record, machine.Change, error) {
		next := cur.Clone()
		next.State, next.Cluster, next.Since = state, cluster, time.Now()
		next.Host, next.History = ref, machine.History{Create: op}
		return next, machine.Visible, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.server(ref, id, op, cluster)
}

// server makes a server at the cloud.
func (r *rig) server(ref, id, op, cluster string) {
	r.cloud.edit(func() {
		r.cloud.instances[ref] = cloud.Instance{
			Ref: ref, MachineID: id, OperationID: op, Cluster: cluster, Type: "DEV1-S", Zone: "z",
			Power: cloud.PowerRunning, PowerWord: "running", Created: time.Now().Add(-24 * time.Hour),
		}
	})
}

// count of machines in a state, of the first n.
func (r *rig) states(n int) map[machine.State]int {
	states := map[machine.State]int{}
	for i := range n {
		states[r.record(fmt.Sprint("m", i+1)).State]++
	}
	return states
}

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

// Of two servers that carry one machine, always the same is kept. Where both are
// bound, both stay: see TestBoundServerOfAnOlderState.
func TestTwoServersOfOneMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(a, b *cloud.Instance) // z/a and z/b, alike but for the reference
		want   string
		left   int
	}{
		"alike":            {func(_, _ *cloud.Instance) {}, "z/a", 1},
		"the older":        {func(a, b *cloud.Instance) { b.Created = a.Created.Add(-time.Minute) }, "z/b", 1},
		"the bound":        {func(_, b *cloud.Instance) { b.Cluster = "c1" }, "z/b", 1},
		"bound, not older": {func(a, b *cloud.Instance) { a.Created, b.Cluster = a.Created.Add(-time.Hour), "c1" }, "z/b", 1},
		// Workloads may run on either.
		"both bound": {func(a, b *cloud.Instance) { a.Cluster, b.Cluster, b.Created = "c1", "c1", a.Created.Add(-1) }, "z/b", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 1, func(o *lifecycle.Options) { o.Awaiting = true }, func(r *rig) {
					r.server("z/a", "m1", "op", "")
					r.server("z/b", "m1", "op", "")
					r.cloud.edit(func() {
						a, b := r.cloud.instances["z/a"], r.cloud.instances["z/b"]
						tt.change(&a, &b)
						r.cloud.instances["z/a"], r.cloud.instances["z/b"] = a, b
					})
				})
				time.Sleep(time.Hour)
				if rec := r.record("m1"); rec.Host != tt.want || r.cloud.size() != tt.left {
					t.Errorf("%s was kept, %d servers are left; want %s and %d", rec.Host, r.cloud.size(), tt.want, tt.left)
				}
				r.saw.look(func() {
					if r.saw.orphans["server removed"] != 2-tt.left || (r.saw.orphans["server held"] > 0) != (tt.left == 2) {
						t.Errorf("counted %v", r.saw.orphans)
					}
				})
			})
		})
	}
}

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
