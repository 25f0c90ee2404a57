package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// stray makes a side resource without server, a day old.
func (r *rig) stray(kind, ref, id, op string) {
	r.cloud.edit(func() {
		s := cloud.Stray{Kind: kind, Ref: ref, MachineID: id, OperationID: op}
		if kind == cloud.KindVolume { // addresses have no date
			s.Created = time.Now().Add(-24 * time.Hour)
		}
		r.cloud.strays[ref] = s
	})
}

// What a stray needs to be removed, and what protects one.
func TestStraysThatAreClaimedStay(t *testing.T) {
	set := func(r *rig, id string, change func(*machine.Record)) {
		_, err := r.store.Do(context.Background(), id, func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			change(&next)
			return next, machine.Visible, nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 8, func(o *lifecycle.Options) { o.RemovalCap = 10 }, func(r *rig) {
			// Claimed.
			r.host(1, machine.Idle, "")
			r.stray(cloud.KindVolume, "z/of-host", "m1", "create-1")
			r.stray(cloud.KindVolume, "z/of-host-untold", "m1", "")
			set(r, "m2", func(rec *machine.Record) {
				rec.State, rec.LastError = machine.Failed, "x"
				rec.Leftover = &machine.Leftover{OperationID: "create-2", After: time.Now().Add(100 * time.Hour)}
			})
			r.stray(cloud.KindVolume, "z/of-leftover", "m2", "create-2")
			set(r, "m3", func(rec *machine.Record) {
				rec.State, rec.Offer = machine.Creating, offer
				rec.History = machine.History{Create: "create-3"}
				rec.Op = &machine.Operation{ID: "create-3", Kind: machine.Create, Started: time.Now(), Deadline: time.Now().Add(100 * time.Hour), Step: "order"}
			})
			r.cloud.script("order", cloud.Again(99*time.Hour, "slow"))
			r.stray(cloud.KindVolume, "z/of-operation", "m3", "create-3")
			r.server("z/dup", "m1", "create-0", "") // itself an orphan, but still there
			r.cloud.script("discard", slicesOf(errors.New("503"), 1000)...)
			r.stray(cloud.KindVolume, "z/of-server", "m1", "create-0")
			// Not ours to judge, and busy by the direct read.
			r.stray(cloud.KindVolume, "z/nameless", "", "")
			r.stray(cloud.KindVolume, "z/garbled", "m\xff", "old")
			r.stray(cloud.KindVolume, "z/busy", "m4", "old")
			r.cloud.edit(func() { r.cloud.busy["z/busy"] = true })
			// Claimed by nobody.
			r.stray(cloud.KindVolume, "z/old-life", "m1", "create-00")
			r.stray(cloud.KindVolume, "z/free-slot", "m5", "create-5")
			r.stray(cloud.KindAddress, "z/free-address", "m5", "create-5")
			r.stray(cloud.KindVolume, "z/unknown-machine", "m99", "create-99")
			r.cloud.edit(func() {
				s := r.cloud.strays["z/unknown-machine"]
				s.Ref, s.Created = "z/young", time.Now().Add(9*time.Hour)
				r.cloud.strays["z/young"] = s
			})
		})
		time.Sleep(90 * time.Second) // two passes
		if n := r.cloud.count("remove"); n != 0 {
			t.Fatalf("%d removals before the third pass", n)
		}
		time.Sleep(10 * time.Minute)
		if n := r.cloud.count("remove z/free-address"); n != 0 {
			t.Error("an address without a date was not given its time from the first sight")
		}
		time.Sleep(time.Hour)
		want := []string{"z/busy", "z/garbled", "z/nameless", "z/of-host", "z/of-host-untold", "z/of-leftover", "z/of-operation", "z/of-server", "z/young"}
		if diff := cmp.Diff(want, r.cloud.left()); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
		r.saw.look(func() {
			if r.saw.orphans["volume removed"] != 3 || r.saw.orphans["address removed"] != 1 || r.saw.orphans["volume failed"] == 0 {
				t.Errorf("counted %v", r.saw.orphans)
			}
			if diff := cmp.Diff(map[string]int{"server": 1, "volume": 2, "address": 0}, r.saw.last.Orphans); diff != "" {
				t.Errorf("orphans found (-want +got):\n%s", diff)
			}
		})
	})
}

// The cap counts everything together; a dry run removes nothing of any kind.
func TestRemovalsThatAreHeldBack(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*lifecycle.Options)
		result string
		says   string
	}{
		"over the cap": {func(o *lifecycle.Options) { o.RemovalCap = 2 }, "held", "--removal-cap"},
		"a dry run":    {func(o *lifecycle.Options) { o.DryRun = true }, "dry_run", "dry run"},
		"a restored copy": {func(o *lifecycle.Options) { o.RemovalsFrom = time.Now().Add(100 * time.Hour) },
			"held", "restored copy"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 3, tt.change, func(r *rig) {
					r.host(1, machine.Idle, "")
					r.server("z/dup", "m1", "older", "")
					r.cloud.edit(func() { // young, so that it is judged with the others
						in := r.cloud.instances["z/dup"]
						in.Created = time.Now()
						r.cloud.instances["z/dup"] = in
					})
					for _, ref := range []string{"z/v1", "z/v2", "z/v3"} {
						r.stray(cloud.KindVolume, ref, "m2", "old")
					}
					r.stray(cloud.KindAddress, "z/a", "m2", "old")
					r.host(3, machine.Idle, "")
					r.cloud.edit(func() { delete(r.cloud.instances, "z/h3") }) // gone
				})
				time.Sleep(6 * time.Hour)
				if n := r.cloud.size(); n != 2 {
					t.Errorf("%d servers are left, want 2", n)
				}
				if got := r.cloud.left(); len(got) != 4 {
					t.Errorf("left %q", got)
				}
				r.saw.look(func() {
					for _, kind := range []string{"server", "volume", "address"} {
						if r.saw.orphans[kind+" "+tt.result] == 0 {
							t.Errorf("no %s counted as %s: %v", kind, tt.result, r.saw.orphans)
						}
					}
				})
				if !strings.Contains(r.log.String(), tt.says) {
					t.Errorf("the log does not say %q", tt.says)
				}
				want := machine.Speculative
				if r.opts.DryRun {
					want = machine.Idle
				}
				if s := r.record("m3").State; s != want {
					t.Errorf("the machine without host is %s, want %s", s, want)
				}
			})
		})
	}
}

// A list of strays that cannot be read stops neither the rest of the pass nor
// the count of sightings.
func TestUnreadableStraysAreNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 2, nil, func(r *rig) {
			r.host(1, machine.Idle, "")
			r.stray(cloud.KindVolume, "z/v", "m2", "old")
			r.cloud.script("strays", slicesOf(errors.New("403"), 60)...)
			r.cloud.edit(func() { delete(r.cloud.instances, "z/h1") })
		})
		time.Sleep(30 * time.Minute)
		if s := r.record("m1").State; s != machine.Speculative {
			t.Errorf("the machine without host is %s", s)
		}
		if len(r.cloud.left()) != 1 {
			t.Error("removed without having been read")
		}
		r.saw.look(func() {
			if _, swept := r.saw.last.Orphans["volume"]; swept {
				t.Errorf("volumes that were not read are reported: %v", r.saw.last.Orphans)
			}
		})
		time.Sleep(2 * time.Hour)
		if len(r.cloud.left()) != 0 {
			t.Error("never removed")
		}
	})
}

// Passes over a quiet fleet read lists and nothing else, whatever its size; so
// does a restart.
func TestQuietFleetCostsNoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 200, nil, func(r *rig) {
			r.cloud.edit(func() { r.cloud.listers = 0 })
			for n := 1; n <= 200; n++ {
				r.host(n, machine.Idle, "")
				ref := fmt.Sprint("z/h", n)
				r.cloud.edit(func() {
					r.cloud.unread[ref] = func(context.Context) error {
						t.Errorf("a direct read of %s", ref)
						return nil
					}
				})
			}
		})
		time.Sleep(time.Hour - time.Second)
		r.cloud.edit(func() {
			// 60 passes of two lists, and one more if its moment falls to this side.
			if r.cloud.listers < 120 || r.cloud.listers > 122 || len(r.cloud.calls) > 0 {
				t.Errorf("%d lists and %d other calls in 60 passes, want 120 and 0", r.cloud.listers, len(r.cloud.calls))
			}
		})
	})
}

// What an inventory shows was so when it was asked for. What was young then, or
// found within the hold of a restored copy, is not removed on its word, however
// long it took to read.
func TestInventoryThatTakesItsTime(t *testing.T) {
	for name, change := range map[string]func(*lifecycle.Options){
		"young":           func(*lifecycle.Options) {},
		"a restored copy": func(o *lifecycle.Options) { o.RemovalGrace, o.RemovalsFrom = 0, time.Now().Add(30*time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := fleet(t, 2, change, func(r *rig) {
					r.host(1, machine.Idle, "")
					r.server("z/dup", "m1", "older", "")
					r.cloud.edit(func() {
						in := r.cloud.instances["z/dup"]
						in.Created = time.Now()
						r.cloud.instances["z/dup"] = in
						r.cloud.late = 8 * time.Minute // a pass each nine minutes: the fourth begins in the 27th
					})
					r.stray(cloud.KindAddress, "z/a", "m2", "old") // without a date
				})
				time.Sleep(35*time.Minute + 30*time.Second - time.Since(began))
				if n := r.cloud.size(); n != 2 || len(r.cloud.left()) != 1 {
					t.Errorf("after the fourth inventory %d servers are left and %q, want all", n, r.cloud.left())
				}
				time.Sleep(9 * time.Minute)
				if n := r.cloud.size(); n != 1 || len(r.cloud.left()) != 0 {
					t.Errorf("after the fifth inventory %d servers are left and %q, want what is claimed", n, r.cloud.left())
				}
			})
		})
	}
}
