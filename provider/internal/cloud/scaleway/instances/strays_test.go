package instances_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

const owner = "scaleway-fr-par-1" // of connect

// volume makes a block volume that nothing uses.
func (w *world) volume(t *testing.T, in string, tags []string) string {
	t.Helper()
	v, err := block.NewAPI(w.client(t)).CreateVolume(&block.CreateVolumeRequest{
		Zone: scw.Zone(in), Name: "stray", ProjectID: fakecloud.DefaultProjectID, Tags: tags,
		FromEmpty: &block.CreateVolumeRequestFromEmpty{Size: 10 * scw.GB},
	})
	must(t, err)
	waitFor(t, "volume available", func() bool {
		return slices.ContainsFunc(w.Volumes(), func(i fakecloud.VolumeInfo) bool { return i.ID == v.ID && i.Status == "available" })
	})
	return v.ID
}

// address makes a flexible IP, for a server or for none.
func (w *world) address(t *testing.T, in string, tags []string, server *string) string {
	t.Helper()
	resp, err := instance.NewAPI(w.client(t)).CreateIP(&instance.CreateIPRequest{
		Zone: scw.Zone(in), Project: new(fakecloud.DefaultProjectID), Tags: tags, Server: server, Type: instance.IPTypeRoutedIPv4,
	})
	must(t, err)
	return resp.IP.ID
}

// things are the volumes and addresses that exist.
func (w *world) things() []string {
	var list []string
	for _, v := range w.Volumes() {
		list = append(list, v.ID)
	}
	for _, l := range w.Leaks() {
		if l.Kind == "ip" {
			list = append(list, l.ID)
		}
	}
	return list
}

func TestStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := made(t, c, "m-1") // its root volume is in use
		lost := scaleway.Tags{Owner: owner, Machine: "m-2", Operation: "op-2"}.List()
		volume, address := w.volume(t, zone, lost), w.address(t, zone, lost, nil)
		nameless := w.volume(t, zone, scaleway.Tags{Owner: owner}.List())
		w.attach(t, op.Ref, "data", lost)
		w.address(t, zone, lost, new(id(op.Ref)))
		for _, tags := range [][]string{nil, {"bigfleet=scaleway-fr-par-10"}, {"bigfleet=scaleway"}, {"bigfleet-machine=m-2"}, {"x" + lost[0]}} {
			w.volume(t, zone, tags)
			w.address(t, zone, tags, nil)
		}
		w.volume(t, "fr-par-2", lost)
		w.address(t, "fr-par-2", lost, nil)

		strays, err := c.Strays(within(t))
		must(t, err)
		got := map[string]cloud.Stray{}
		for _, s := range strays {
			if s.Kind == cloud.KindVolume && time.Since(s.Created) > time.Minute {
				t.Errorf("%+v: made a moment ago", s)
			}
			s.Created = time.Time{}
			got[s.Ref] = s
		}
		want := map[string]cloud.Stray{}
		for _, s := range []cloud.Stray{
			{Kind: cloud.KindVolume, Ref: zone + "/" + volume, MachineID: "m-2", OperationID: "op-2"},
			{Kind: cloud.KindAddress, Ref: zone + "/" + address, MachineID: "m-2", OperationID: "op-2"},
			{Kind: cloud.KindVolume, Ref: zone + "/" + nameless},
		} {
			want[s.Ref] = s
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("strays (-want +got):\n%s", diff)
		}

		before := w.things()
		for _, s := range strays {
			for range 2 { // what is gone is success
				if err := c.Remove(within(t), s); err != nil {
					t.Errorf("Remove of %+v: %v", s, err)
				}
			}
		}
		after := w.things()
		gone := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return slices.Contains(after, id) })
		slices.Sort(gone)
		if diff := cmp.Diff(slices.Sorted(slices.Values([]string{volume, address, nameless})), gone); diff != "" {
			t.Errorf("removed (-want +got):\n%s", diff)
		}
	})
}

// What was listed may have been taken into use, or have lost our tag, since.
func TestRemoveLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := made(t, c, "m-1")
		ours := scaleway.Tags{Owner: owner, Machine: "m-2"}.List()
		ref := func(id string) string { return zone + "/" + id }
		for name, s := range map[string]cloud.Stray{
			"a volume in use":             {Kind: cloud.KindVolume, Ref: ref(w.attach(t, op.Ref, "data", ours))},
			"a volume of another":         {Kind: cloud.KindVolume, Ref: ref(w.volume(t, zone, []string{"bigfleet=" + owner + "-2"}))},
			"a volume without tags":       {Kind: cloud.KindVolume, Ref: ref(w.volume(t, zone, nil))},
			"an address in use":           {Kind: cloud.KindAddress, Ref: ref(w.address(t, zone, ours, new(id(op.Ref))))},
			"an address of another":       {Kind: cloud.KindAddress, Ref: ref(w.address(t, zone, []string{"bigfleet=scaleway-fr-par"}, nil))},
			"an address without any tags": {Kind: cloud.KindAddress, Ref: ref(w.address(t, zone, nil, nil))},
		} {
			if err := c.Remove(within(t), s); !errors.Is(err, cloud.ErrConflict) {
				t.Errorf("%s: %v, want ErrConflict", name, err)
			}
		}
		for name, s := range map[string]cloud.Stray{
			"another zone":    {Kind: cloud.KindVolume, Ref: "fr-par-2/" + w.volume(t, "fr-par-2", ours)},
			"a kind of later": {Kind: "snapshot", Ref: ref("33333333-3333-4333-8333-333333333333")},
			"no id":           {Kind: cloud.KindAddress, Ref: ref("..")},
		} {
			if err := c.Remove(within(t), s); !errors.Is(err, cloud.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		if n := w.Requests(fakecloud.RouteDeleteBlockVolume) + w.Requests(fakecloud.RouteDeleteIP); n > 0 {
			t.Errorf("%d deletions were sent", n)
		}
	})
}

// Somebody deleted a server by hand, which keeps its root volume. It is found by
// its tags alone, be it network storage or a local disk: as a stray, and by the
// teardown of a Create whose notes are lost.
func TestRootVolumeOfAServerDeletedByHand(t *testing.T) {
	for _, typ := range []string{blockType, localType} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.connect(t)
				orphan := func() *cloudtest.Operation {
					op := operation("m-1")
					op.Spec.Type = typ
					must(t, op.Run(within(t), c.Create()))
					if strays, err := c.Strays(within(t)); err != nil || len(strays) > 0 {
						t.Errorf("with the server there: %+v, %v", strays, err)
					}
					w.action(t, op.Ref, instance.ServerActionPoweroff)
					w.await(t, op.Ref, fakecloud.StateStopped)
					must(t, instance.NewAPI(w.client(t)).DeleteServer(&instance.DeleteServerRequest{Zone: zone, ServerID: id(op.Ref)}))
					waitFor(t, "volume free", func() bool {
						v := w.Volumes()
						return len(w.Servers()) == 0 && len(v) == 1 && v[0].Status == "available"
					})
					return op
				}
				op := orphan()
				strays, err := c.Strays(within(t))
				must(t, err)
				if len(strays) != 1 || strays[0].Kind != cloud.KindVolume || strays[0].MachineID != "m-1" ||
					strays[0].OperationID != op.Spec.OperationID || strays[0].Created.IsZero() {
					t.Fatalf("strays %+v", strays)
				}
				for range 2 { // what is gone is success
					must(t, c.Remove(within(t), strays[0]))
				}
				if left := w.remains(); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}

				lost := orphan().Teardown()
				lost.Ref, lost.Notes = "", nil
				must(t, lost.Run(within(t), c.Discard()))
				if left := w.remains(); len(left) > 0 {
					t.Errorf("left behind by the teardown: %q", left)
				}
			})
		})
	}
}

// A volume that is noted may not be the server's any more: what the server has
// is tagged.
func TestVolumesAreReadAnew(t *testing.T) {
	for note, typ := range map[string]string{"root": blockType, "root-local": localType} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.connect(t)
				op := operation("m-1")
				op.Spec.Type = typ
				must(t, op.RunTo(within(t), c.Create(), 2))
				op.Died(c.Create(), 2) // in the step that tags
				op.Notes[note] = "33333333-3333-4333-8333-333333333333"
				must(t, op.Run(within(t), c.Create()))
				if v := w.Volumes(); len(v) != 1 || !slices.Contains(v[0].Tags, "bigfleet-machine=m-1") {
					t.Errorf("volumes %+v", v)
				}
			})
		})
	}
}

// A list that cannot be read is an error, not an empty list.
func TestStraysAreCompleteOrAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, route := range []string{fakecloud.RouteListBlockVolumes, fakecloud.RouteListLocalVolumes, fakecloud.RouteListIPs} {
			w := newWorld(t)
			w.volume(t, zone, scaleway.Tags{Owner: owner, Machine: "m-2"}.List())
			w.Inject(fakecloud.Fault{Route: route, Times: -1, Reply: &fakecloud.Reply{
				Status: http.StatusForbidden, ContentType: "application/json", Body: `{"type":"permissions_denied","message":"insufficient permissions","details":[]}`,
			}})
			if strays, err := w.connect(t).Strays(within(t)); !errors.Is(err, cloud.ErrDenied) || len(strays) > 0 {
				t.Errorf("%s: %v, %v", route, strays, err)
			}
		}
	})
}

// Providers in one project, one name beginning with another, and one name in two
// zones: none lists, reads, removes or tears down what is another's.
func TestProvidersDoNotTouchEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		type side struct {
			name, zone string
			c          *instances.Cloud
			ref        string
		}
		var sides []*side
		for _, s := range []*side{{name: "prod", zone: zone}, {name: "prod-1", zone: zone}, {name: "prod-10", zone: zone}, {name: "prod", zone: "fr-par-2"}} {
			s.c = w.connect(t, func(cfg *instances.Config) { cfg.Provider, cfg.Zone = s.name, s.zone })
			// The same machine and operation everywhere: only name and zone differ.
			op := operation("m-1")
			op.Spec.Zone = s.zone
			must(t, op.Run(within(t), s.c.Create()))
			s.ref = op.Ref
			tags := scaleway.Tags{Owner: s.name, Machine: "m-1", Operation: op.Spec.OperationID}.List()
			w.volume(t, s.zone, tags)
			w.address(t, s.zone, tags, nil)
			sides = append(sides, s)
		}
		for _, s := range sides {
			label := s.name + " in " + s.zone
			list, err := s.c.List(within(t))
			must(t, err)
			if len(list) != 1 || list[0].Ref != s.ref {
				t.Errorf("%s lists %+v, want %s alone", label, list, s.ref)
			}
			strays, err := s.c.Strays(within(t))
			must(t, err)
			if len(strays) != 2 {
				t.Errorf("%s finds %d strays, want 2", label, len(strays))
			}
			for _, other := range sides {
				if _, err := s.c.Get(within(t), other.ref); other != s && !errors.Is(err, cloud.ErrInvalid) {
					t.Errorf("%s reads the server of %s in %s: %v", label, other.name, other.zone, err)
				}
			}
		}
		// The first goes, with all that its machine and its operation ever had.
		first := sides[0]
		op := operation("m-1")
		op.Ref = first.ref
		must(t, op.Teardown().Run(within(t), first.c.Discard()))
		if n := len(w.Servers()); n != 3 {
			t.Errorf("%d servers are left, want 3", n)
		}
		strays, err := first.c.Strays(within(t))
		must(t, err)
		for _, s := range strays {
			must(t, first.c.Remove(within(t), s))
		}
		for _, s := range sides[1:] {
			if _, err := s.c.Get(within(t), s.ref); err != nil {
				t.Errorf("%s in %s lost its server: %v", s.name, s.zone, err)
			}
			if left, err := s.c.Strays(within(t)); err != nil || len(left) != 2 {
				t.Errorf("%s in %s: %d strays are left, %v; want its own 2", s.name, s.zone, len(left), err)
			}
		}
	})
}

// A reconcile pass over 200 machines must leave the API's budget to others: so
// many calls a pass, 30 passes an hour.
func TestPassIsFrugal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const machines, passesAnHour, ceiling = 200, 30, 400
		w := newWorld(t)
		w.fill(t, machines)
		for n := range machines { // as if all booted from block volumes
			w.volume(t, zone, scaleway.Tags{Owner: owner, Machine: fmt.Sprint("m-", n)}.List())
		}
		c := w.connect(t)
		before := w.Requests("")
		list, err := c.List(within(t))
		must(t, err)
		strays, err := c.Strays(within(t))
		must(t, err)
		if len(list) != machines || len(strays) != machines {
			t.Fatalf("%d servers and %d volumes", len(list), len(strays))
		}
		calls := w.Requests("") - before
		if calls*passesAnHour > ceiling {
			t.Errorf("a pass takes %d calls, so an hour %d; want at most %d", calls, calls*passesAnHour, ceiling)
		}
		t.Logf("%d calls a pass, %d an hour", calls, calls*passesAnHour)
	})
}
