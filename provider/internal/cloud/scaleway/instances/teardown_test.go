package instances_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

// made is a machine that was brought up, and the Delete that is to come: it
// knows no more than the server.
func made(t *testing.T, c *instances.Cloud, machineID string) *cloudtest.Operation {
	t.Helper()
	op := operation(machineID)
	must(t, op.Run(within(t), c.Create()))
	return &cloudtest.Operation{Spec: op.Spec, Ref: op.Ref}
}

// attach puts another block volume on a server.
func (w *world) attach(t *testing.T, ref, name string, tags []string) string {
	t.Helper()
	client := w.client(t)
	v, err := block.NewAPI(client).CreateVolume(&block.CreateVolumeRequest{
		Zone: zone, Name: name, ProjectID: fakecloud.DefaultProjectID, Tags: tags,
		FromEmpty: &block.CreateVolumeRequestFromEmpty{Size: 10 * scw.GB},
	})
	must(t, err)
	waitFor(t, "volume available", func() bool {
		return slices.ContainsFunc(w.Volumes(), func(i fakecloud.VolumeInfo) bool { return i.ID == v.ID && i.Status == "available" })
	})
	_, err = instance.NewAPI(client).AttachServerVolume(&instance.AttachServerVolumeRequest{
		Zone: zone, ServerID: id(ref), VolumeID: v.ID, VolumeType: instance.AttachServerVolumeRequestVolumeTypeSbsVolume,
	})
	must(t, err)
	return v.ID
}

// A persistent volume that a workload left attached holds data that is not
// ours; a volume and an address with our tag are.
func TestDeleteTakesWhatIsOursOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := scaleway.Tags{Owner: "scaleway-fr-par-1", Machine: "m-1"}.List()
		w := newWorld(t)
		c := w.connect(t)
		op := made(t, c, "m-1")
		theirs := w.attach(t, op.Ref, "pvc-1", []string{"managed-by=csi"})
		w.attach(t, op.Ref, "data", ours)
		for _, tags := range [][]string{ours, {"somebody"}} {
			_, err := instance.NewAPI(w.client(t)).CreateIP(&instance.CreateIPRequest{
				Zone: zone, Project: new(fakecloud.DefaultProjectID), Tags: tags, Server: new(id(op.Ref)), Type: instance.IPTypeRoutedIPv4,
			})
			must(t, err)
		}

		must(t, op.Run(within(t), c.Delete()))
		if n := len(w.Servers()); n > 0 {
			t.Errorf("%d servers are left", n)
		}
		if v := w.Volumes(); len(v) != 1 || v[0].ID != theirs {
			t.Errorf("volumes %+v are left, want the workload's, %s, alone", v, theirs)
		}
		addresses := slices.DeleteFunc(w.Leaks(), func(l fakecloud.Leak) bool { return l.Kind != "ip" })
		if len(addresses) != 1 {
			t.Errorf("addresses %+v are left, want the one without our tag", addresses)
		}
	})
}

// Block volumes stay in use for a while after their server is gone, and the API
// words that in several ways.
func TestVolumesAreDeletedWithPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.SetDelays(fakecloud.Delays{Detach: 30 * time.Second}) // scaled: 30 ms
		c := w.connect(t)
		op := made(t, c, "m-1")
		volume := w.Volumes()[0].ID
		for _, reply := range []*fakecloud.Reply{
			fakecloud.Transient("volume", volume, "detaching"),
			{Status: http.StatusPreconditionFailed, ContentType: "application/json", Body: `{"type":"precondition_failed","precondition":"resource_still_in_use"}`},
			{Status: http.StatusConflict},
			fakecloud.RateLimited(),
			fakecloud.Unavailable(),
		} {
			w.Inject(fakecloud.Fault{Route: fakecloud.RouteDeleteBlockVolume, Reply: reply})
		}
		// Deleting a stopped server detaches its volumes late.
		w.action(t, op.Ref, instance.ServerActionPoweroff)
		w.await(t, op.Ref, fakecloud.StateStopped)
		must(t, op.Run(within(t), c.Delete()))
		if left := w.remains(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// "Gone" is told by the status, in whatever words.
func TestDeleteKnowsNotFoundByItsStatus(t *testing.T) {
	for name, reply := range map[string]fakecloud.Reply{
		"empty":          {Status: http.StatusNotFound},
		"page":           {Status: http.StatusNotFound, ContentType: "text/html", Body: "<h1>Seite nicht gefunden</h1>"},
		"other language": {Status: http.StatusNotFound, ContentType: "application/json", Body: `{"message":"introuvable"}`},
		"typed":          {Status: http.StatusNotFound, ContentType: "application/json", Body: `{"type":"not_found","resource":"instance_server"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.connect(t)
				op := made(t, c, "m-1")
				w.action(t, op.Ref, instance.ServerActionTerminate)
				waitFor(t, "server gone", func() bool { return len(w.Servers()) == 0 })
				w.Inject(fakecloud.Fault{Route: fakecloud.RouteGetServer, Times: -1, Reply: &reply})
				must(t, op.Run(within(t), c.Delete()))
				if left := w.remains(); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		})
	}
}

// The console removed a server before its volume could be tagged: only the
// notes of the Create know of the volume.
func TestDiscardKnowsTheVolumesOfItsOrder(t *testing.T) {
	for _, typ := range []string{blockType, localType} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.connect(t)
				op := operation("m-1")
				op.Spec.Type = typ
				must(t, op.RunTo(within(t), c.Create(), 1))
				// Deleting a stopped server keeps both kinds of volumes.
				must(t, instance.NewAPI(w.client(t)).DeleteServer(&instance.DeleteServerRequest{Zone: zone, ServerID: id(op.Ref)}))
				if len(w.Volumes()) != 1 {
					t.Fatalf("%d volumes, want the orphan", len(w.Volumes()))
				}
				must(t, op.Teardown().Run(within(t), c.Discard()))
				if left := w.remains(); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		})
	}
}

// Time spent in one transition does not count for the next.
func TestStuckCountsFromTheTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := made(t, c, "m-1")
		task := &cloud.Task{Spec: op.Spec, Ref: op.Ref}
		steps := c.Delete()
		must(t, steps[0].Run(within(t), task))
		w.force(t, op.Ref, fakecloud.StateStarting, "rebooting")
		began := len(task.Notes)
		if err := steps[1].Run(within(t), task); err == nil || len(task.Notes) != began+1 {
			t.Fatalf("a server in transition: %v, notes %v", err, task.Notes)
		}
		w.force(t, op.Ref, fakecloud.StateRunning, "")
		must(t, steps[1].Run(within(t), task))
		if len(task.Notes) != began {
			t.Errorf("notes %v", task.Notes)
		}
	})
}

// A server that no longer answers its transition is forced, and that is an
// alarm: see the log.
func TestStuckTerminationIsForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := made(t, c, "m-1")
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteServerAction, Outcome: fakecloud.OutcomeStuck})
		ref, ctx, began := op.Ref, within(t), time.Now()
		ended := make(chan error, 1)
		go func() { ended <- op.Run(ctx, c.Delete()) }()
		// The fake, as the API, allows no way out but one: the hold ends by itself.
		waitFor(t, "the adapter to force the server", func() bool {
			n := 0
			for _, call := range w.Calls() {
				if call.Route == fakecloud.RouteServerAction {
					n++
				}
			}
			return n >= 3 // power-on, terminate, and the push
		})
		if took := time.Since(began); took < 150*time.Millisecond {
			t.Errorf("forced after %v, before it could count as stuck", took)
		}
		w.force(t, ref, fakecloud.StateStoppedInPlace, "")
		must(t, <-ended)
		if left := w.remains(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// Whatever the notes say: a server without our tags is not touched.
func TestNotesDoNotPassForTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.stranger(t, 1)
		for n, name := range []string{"terminate", "await-gone"} {
			task := &cloud.Task{Notes: map[string]string{"servers": w.Servers()[0].ID}}
			step := w.connect(t).Delete()[n+1]
			if err := step.Run(within(t), task); step.Name != name || !errors.Is(err, cloud.ErrInvalid) {
				t.Errorf("%s of another's server = %v, want ErrInvalid", step.Name, err)
			}
		}
		if w.Requests(fakecloud.RouteServerAction)+w.Requests(fakecloud.RouteDeleteServer) > 0 {
			t.Error("another's server was touched")
		}
	})
}

// Another zone's server has the same kind of id and answers 404 here, which
// must not pass for "deleted".
func TestRefsOfOtherZonesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		for _, ref := range []string{"fr-par-2/33333333-3333-4333-8333-333333333333", "33333333-3333-4333-8333-333333333333", "fr-par-1/..", "", "fr-par-1/"} {
			op := &cloudtest.Operation{Spec: cloud.Spec{MachineID: "m-1"}, Ref: ref}
			if err := op.Run(within(t), c.Delete()); err == nil || !strings.Contains(err.Error(), "does not name a server in zone fr-par-1") {
				t.Errorf("Delete of %q = %v", ref, err)
			}
		}
		if n := w.Requests(""); n > 0 {
			t.Errorf("%d calls were made for nothing", n)
		}
	})
}
