package instances_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"

	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud"
)

// A server's volumes bill on when it goes. A Delete takes its root volume, of
// either kind, and a data volume of ours: also when somebody has removed the
// server before, and when the process dies between server and volumes.
func TestDeleteTakesTheVolumes(t *testing.T) {
	for _, typ := range []string{blockType, localType} {
		for name, remove := range map[string]func(*testing.T, *world, *cloudtest.Operation){
			"at once": func(*testing.T, *world, *cloudtest.Operation) {},
			"server is gone": func(t *testing.T, w *world, op *cloudtest.Operation) {
				w.action(t, op.Ref, instance.ServerActionTerminate)
				waitFor(t, "server gone", func() bool { return len(w.Servers()) == 0 })
			},
			"killed after the server": func(t *testing.T, w *world, op *cloudtest.Operation) {
				heal := w.Inject(fakecloud.Fault{Times: -1, Reply: fakecloud.Unavailable(), Match: func(r fakecloud.Request) bool {
					return r.Route == fakecloud.RouteDeleteBlockVolume || r.Route == fakecloud.RouteDeleteLocalVolume
				}})
				defer heal()
				steps := w.connect(t).Delete()
				must(t, op.RunTo(within(t), steps, 3))
				if n := len(w.Servers()); n > 0 || steps[3].Name != "volumes" {
					t.Fatalf("%d servers before step %q", n, steps[3].Name)
				}
				op.Lost(within(t), steps, 3)
			},
		} {
			t.Run(typ+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					c := w.connect(t)
					op := operation("m-1")
					op.Spec.Type = typ
					must(t, op.Run(within(t), c.Create()))
					w.attach(t, op.Ref, "data", scaleway.Tags{Owner: owner, Machine: "m-1"}.List())
					if n := len(w.Volumes()); n != 2 {
						t.Fatalf("%d volumes, want 2", n)
					}
					del := &cloudtest.Operation{Spec: op.Spec, Ref: op.Ref}
					remove(t, w, del)
					must(t, del.Run(within(t), w.connect(t).Delete()))
					if left := w.remains(); len(left) > 0 {
						t.Errorf("left behind: %q", left)
					}
				})
			})
		}
	}
}

// What is to be removed may go between a look and the call: then the call's 404,
// in whatever words, is success.
func TestGoneBeforeTheCall(t *testing.T) {
	words := map[string]fakecloud.Reply{
		"empty":          {Status: http.StatusNotFound},
		"page":           {Status: http.StatusNotFound, ContentType: "text/html", Body: "<h1>Seite nicht gefunden</h1>"},
		"other language": {Status: http.StatusNotFound, ContentType: "application/json", Body: `{"message":"introuvable"}`},
	}
	for name, reply := range words {
		for _, typ := range []string{blockType, localType} {
			for _, state := range []string{"running", "stopped"} {
				t.Run(strings.Join([]string{name, typ, state}, " "), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						c := w.connect(t)
						op := operation("m-1")
						op.Spec.Type = typ
						must(t, op.Run(within(t), c.Create()))
						w.address(t, zone, scaleway.Tags{Owner: owner, Machine: "m-1"}.List(), new(id(op.Ref)))
						if state == "stopped" {
							w.action(t, op.Ref, instance.ServerActionPoweroff)
							w.await(t, op.Ref, fakecloud.StateStopped)
						}
						w.Inject(fakecloud.Fault{Commit: true, Times: -1, Reply: &reply, Match: func(r fakecloud.Request) bool {
							if r.Route == fakecloud.RouteDeleteBlockVolume && w.inUse(r.ID) {
								return false // that refusal is not the matter here
							}
							return r.Route == fakecloud.RouteServerAction || strings.HasPrefix(r.Route, http.MethodDelete)
						}})
						must(t, (&cloudtest.Operation{Spec: op.Spec, Ref: op.Ref}).Run(within(t), c.Delete()))
						if left := w.remains(); len(left) > 0 {
							t.Errorf("left behind: %q", left)
						}
					})
				})
			}
		}
	}
}

// inUse says that a volume is there and could not be deleted now.
func (w *world) inUse(volume string) bool {
	return slices.ContainsFunc(w.Volumes(), func(v fakecloud.VolumeInfo) bool { return v.ID == volume && v.Status != "available" })
}

// The task of a termination may say "pending" for ever. The server tells the
// truth.
func TestPendingTaskIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := made(t, c, "m-1")
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteServerAction, Action: "terminate", Commit: true, Reply: &fakecloud.Reply{
			Status: http.StatusAccepted, ContentType: "application/json",
			Body: `{"task":{"id":"33333333-3333-4333-8333-333333333333","description":"server_terminate","status":"pending","progress":0,"href_from":"/servers/x/action"}}`,
		}})
		must(t, op.Run(within(t), c.Delete()))
		if left := w.remains(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		for _, call := range w.Calls() {
			if strings.Contains(call.Path, "/tasks") {
				t.Errorf("a task was read: %s", call.Path)
			}
		}
	})
}
