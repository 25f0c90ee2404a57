package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

// failed is a rig whose machine m1 has failed, with nothing left.
func failed(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, nil)
	synctest.Wait()
	r.cloud.script("order", cloud.ErrInvalid)
	r.must(machine.Create)
	r.settle(machine.Failed)
	synctest.Wait()
	return r
}

// offered restarts with other slots.
func (r *rig) offered(slots map[string]*machine.Offer) {
	r.stop()
	r.slots = slots
	r.start()
	synctest.Wait()
}

var (
	none = map[string]*machine.Offer{}
	m1   = map[string]*machine.Offer{"m1": offer}
)

func (r *rig) wantIDs(want ...string) {
	r.t.Helper()
	var ids []string
	r.store.Records(func(rec machine.Record) bool {
		ids = append(ids, rec.ID)
		if rec.Slot != "m1" {
			r.t.Errorf("%s fills slot %s", rec.ID, rec.Slot)
		}
		return true
	})
	slices.Sort(ids)
	if !slices.Equal(ids, want) {
		r.t.Errorf("machines %v, want %v", ids, want)
	}
}

// tryCreate asks for a machine that may be refused.
func (r *rig) tryCreate(id string) error {
	_, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = id })
	return err
}

func wantNotFound(t *testing.T, err error) {
	t.Helper()
	var refused *machine.Error
	if !errors.As(err, &refused) || refused.Code != machine.NotFound {
		t.Errorf("a Create of the failed id: %v", err)
	}
}

// TestFailedIDNeverComesBack takes the slot of a failed machine off the offers
// and back, at each moment of its end. Each time a new id takes the slot, and
// the failed one is unknown once it left the list.
func TestFailedIDNeverComesBack(t *testing.T) {
	for name, play := range map[string]func(*rig){
		"its successor goes with the slot, after it": func(r *rig) {
			r.wantIDs("m1", "m1-r2")
			time.Sleep(15 * time.Minute)
			r.wantIDs("m1-r2")
			r.offered(none)
			r.wantIDs()
			r.offered(m1)
		},
		"its successor goes with the slot, before it": func(r *rig) {
			r.offered(none)
			r.wantIDs("m1")
			r.offered(m1)
			r.wantIDs("m1", "m1-r2")
			time.Sleep(15 * time.Minute)
		},
		"the slot comes back after it": func(r *rig) {
			r.offered(none)
			time.Sleep(15 * time.Minute)
			r.wantIDs()
			r.offered(m1)
		},
		"the prices are read again meanwhile": func(r *rig) {
			for _, slots := range []map[string]*machine.Offer{none, m1, none, m1} {
				time.Sleep(4 * time.Minute)
				if err := r.engine.Seed(context.Background(), slots); err != nil {
					r.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := failed(t)
				play(r)
				r.wantIDs("m1-r2")
				wantNotFound(t, r.tryCreate("m1"))
				if err := r.tryCreate("m1-r2"); err != nil {
					t.Errorf("the successor: %v", err)
				}
				time.Sleep(time.Minute)
				if rec := r.record("m1-r2"); rec.State != machine.Idle {
					t.Errorf("the successor is %s", rec.State)
				}
			})
		})
	}
}

// TestSlotThatIsAwayWhileItsMachineFails: nothing succeeds a machine whose slot
// is offered no more. When the slot is back before the machine has left the
// list, its successor does not wait for the next look at the offers.
func TestSlotThatIsAwayWhileItsMachineFails(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			synctest.Wait()
			r.hosts.edit(func() { r.hosts.silent = true })
			r.must(machine.Create)
			r.offered(none)
			r.settle(machine.Failed)
			time.Sleep(away)
			if err := r.engine.Seed(context.Background(), m1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(15 * time.Minute)
			r.wantIDs("m1-r2")
			wantNotFound(t, r.tryCreate("m1"))
		})
	}
}

// TestGenerationsGrow fails one machine after the other, with restarts.
func TestGenerationsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := failed(t)
		for _, id := range []string{"m1-r2", "m1-r3"} {
			time.Sleep(20 * time.Minute)
			r.wantIDs(id)
			r.cloud.script("order", cloud.ErrInvalid)
			if err := r.tryCreate(id); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			r.offered(none)
			r.offered(m1)
		}
		time.Sleep(20 * time.Minute)
		r.wantIDs("m1-r4")
		r.offered(none)
		r.offered(m1)
		r.wantIDs("m1-r4")
	})
}

// TestServerOfAnIDThatIsOver appears after its machine has failed and is gone:
// it is removed like anything that no machine claims. Where workloads run it is
// shown all the same.
func TestServerOfAnIDThatIsOver(t *testing.T) {
	for _, cluster := range []string{"", "c1"} {
		synctest.Test(t, func(t *testing.T) {
			r := failed(t)
			time.Sleep(15 * time.Minute)
			r.cloud.edit(func() {
				r.cloud.instances["z/9"] = cloud.Instance{Ref: "z/9", MachineID: "m1", OperationID: "old", Cluster: cluster, Power: cloud.PowerRunning, Created: time.Now()}
			})
			time.Sleep(5 * time.Minute)
			if state := r.record("m1").State; (state != machine.Unknown) != (cluster != "") {
				t.Errorf("cluster %q: m1 is %s", cluster, state)
			}
			time.Sleep(40 * time.Minute)
			if n := r.cloud.size(); (n > 0) != (cluster != "") {
				t.Errorf("cluster %q: %d servers are left", cluster, n)
			}
		})
	}
}

// TestHostOfAGoneMachineIsForgotten: whatever polled with the machine's token until
// its record went leaves nothing behind, however often slots come and go.
func TestHostOfAGoneMachineIsForgotten(t *testing.T) {
	for name, play := range map[string]func(*rig){
		"a slot that is offered no more": func(r *rig) {
			if err := r.engine.Seed(context.Background(), none); err != nil {
				r.t.Fatal(err)
			}
		},
		"a failed machine that leaves the list": func(r *rig) {
			r.cloud.script("order", cloud.ErrInvalid)
			r.must(machine.Create)
			r.settle(machine.Failed)
			time.Sleep(15 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				synctest.Wait()
				after := 0 // Forgets that no poll can follow
				r.hosts.edit(func() {
					r.hosts.forgotten = func(id string) {
						if _, there := r.store.Record(id); id == "m1" && !there {
							after++
						}
					}
				})
				play(r)
				synctest.Wait()
				if _, there := r.store.Record("m1"); there {
					t.Fatal("m1 is still there")
				}
				r.hosts.edit(func() {
					if after != 1 {
						t.Errorf("its host was forgotten %d times since the record went, want once", after)
					}
				})
			})
		})
	}
}

// TestFailuresInARowSlowDown: where every Create fails at once, a shard that asks
// for each machine that it is offered gets a bounded number of failed ones, and no
// more the longer it goes on.
func TestFailuresInARowSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		for range 10_000 {
			r.cloud.script("order", cloud.ErrInvalid)
			r.store.Records(func(rec machine.Record) bool {
				if rec.State == machine.Speculative {
					if err := r.tryCreate(rec.ID); err != nil {
						t.Error(err)
					}
				}
				return true
			})
			time.Sleep(time.Second)
		}
		if n := r.store.Size(); n > 40 { // 10 minutes of one a minute, each half as late by chance
			t.Errorf("%d machines are listed for one slot", n)
		}
		// It ends with a success.
		r.cloud.script("order")
		time.Sleep(2 * time.Minute)
		var last string
		r.store.Records(func(rec machine.Record) bool {
			if rec.State == machine.Speculative {
				last = rec.ID
			}
			return true
		})
		if err := r.tryCreate(last); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if rec := r.record(last); rec.State != machine.Idle {
			t.Errorf("%s is %s: %s", last, rec.State, rec.LastError)
		}
	})
}
