package instances_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud"
)

// lockedReply is the answer to a call for an object on which something else is
// at work.
func lockedReply() *fakecloud.Reply {
	return &fakecloud.Reply{
		Status: http.StatusLocked, ContentType: "application/json",
		Body: `{"type":"locked","resource":"instance_server","resource_id":"33333333-3333-4333-8333-333333333333"}`,
	}
}

// A name proves nothing: a server that is called as the one we look for, but
// does not carry our tags, is neither taken over nor touched.
func TestNameHeldByAnotherServer(t *testing.T) {
	op := operation("m-1")
	mark := scaleway.OperationTag(op.Spec.OperationID)
	for name, tags := range map[string][]string{
		"no tags":                  nil,
		"another provider's":       {"bigfleet=another", mark},
		"our operation, no owner":  {mark},
		"a name that ours begins":  {"bigfleet=scaleway-fr-par-10", mark},
		"our tags in one, spelled": {"bigfleet=scaleway-fr-par-1 " + mark},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				op := operation("m-1")
				resp, err := instance.NewAPI(w.client(t)).CreateServer(&instance.CreateServerRequest{
					Zone: zone, Name: scaleway.ServerName("m-1", op.Spec.OperationID), CommercialType: blockType,
					Image: new("ubuntu_noble"), Tags: tags, DynamicIPRequired: new(true),
				})
				must(t, err)
				theirs := zone + "/" + resp.Server.ID
				before, _ := w.server(theirs)
				c := w.connect(t)
				op.Died(c.Create(), 0) // so that it looks for an earlier order first
				must(t, op.Run(within(t), c.Create()))
				if op.Ref == theirs || len(w.Servers()) != 2 {
					t.Errorf("the machine runs on %s of %d servers, not on one of its own", op.Ref, len(w.Servers()))
				}
				must(t, op.Teardown().Run(within(t), c.Discard()))
				if after, ok := w.server(theirs); !ok || after.State != before.State || !slices.Equal(after.Tags, before.Tags) {
					t.Errorf("the other server was touched: %+v, before %+v", after, before)
				}
			})
		})
	}
}

// followUps are the calls of a Create after its order, the steps that make
// them, and a type that needs them.
var followUps = []struct{ route, step, typ string }{
	{fakecloud.RouteUpdateBlockVolume, "label-volumes", blockType},
	{fakecloud.RouteUpdateLocalVolume, "label-volumes", localType},
	{fakecloud.RouteCreateIP, "networks", blockType},
	{fakecloud.RouteCreatePrivateNIC, "networks", blockType},
	{fakecloud.RouteSetUserData, "user-data", blockType},
	{fakecloud.RouteServerAction, "power-on", blockType},
}

// followed is an operation that makes the call, with every option that its type
// has.
func (w *world) followed(t *testing.T, typ string) *cloudtest.Operation {
	t.Helper()
	op := operation("m-1")
	op.Spec.Type = typ
	options := w.everyOption(t)
	if typ == localType {
		options.RootVolume = nil // it asks for a block volume
	}
	op.Spec.Options = options.Encode()
	return op
}

// What fails after the order and can pass is repeated on the server that exists;
// nothing is ordered again, and the guest boots with its user data.
func TestFollowUpThatFailsOnceIsRepeated(t *testing.T) {
	for _, f := range followUps {
		for name, reply := range map[string]*fakecloud.Reply{
			"500": fakecloud.InternalError(), "503": fakecloud.Unavailable(), "429": fakecloud.RateLimited(),
			"409": {Status: http.StatusConflict}, "423": lockedReply(),
		} {
			t.Run(f.route+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.Inject(fakecloud.Fault{Route: f.route, Reply: reply, Times: 2})
					op := w.followed(t, f.typ)
					c := w.connect(t)
					must(t, op.RunTo(within(t), c.Create(), 1))
					ordered := op.Ref
					must(t, op.Run(within(t), c.Create()))
					s, _ := w.server(ordered)
					if len(w.Servers()) != 1 || op.Ref != ordered || s.State != fakecloud.StateRunning || len(s.FirstBoot) == 0 {
						t.Errorf("%s runs, %s was ordered: %+v", op.Ref, ordered, w.Servers())
					}
					if f := w.Faults()[0]; f.Hits != 2 {
						t.Fatalf("the call failed %d times, want 2", f.Hits)
					}
				})
			})
		}
	}
}

// What fails for ever ends the Create with the step by name, and the server that
// was paid for goes, with its volume and its address.
func TestFollowUpThatFailsForEver(t *testing.T) {
	for _, f := range followUps {
		for name, reply := range map[string]*fakecloud.Reply{
			"503": fakecloud.Unavailable(), "403": fakecloud.Forbidden("server", "write"),
		} {
			t.Run(f.route+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					heal := w.Inject(fakecloud.Fault{Route: f.route, Reply: reply, Times: -1})
					op := w.followed(t, f.typ)
					c := w.connect(t)
					if err := op.Run(within(t), c.Create()); err == nil || !strings.Contains(err.Error(), `step "`+f.step+`"`) {
						t.Errorf("Create = %v, want a failure of step %s", err, f.step)
					}
					if posts := w.Requests(fakecloud.RouteCreateServer); posts != 1 || len(w.Servers()) != 1 {
						t.Fatalf("%d orders made %d servers", posts, len(w.Servers()))
					}
					if s := w.Servers()[0]; s.State != fakecloud.StateStopped {
						t.Errorf("the server is %s", s.State)
					}
					if f.route == fakecloud.RouteServerAction {
						heal() // terminating is an action, too
					}
					must(t, op.Teardown().Run(within(t), c.Discard()))
					if left := w.remains(); len(left) > 0 {
						t.Errorf("left behind: %q", left)
					}
				})
			})
		}
	}
}

// "Locked" means later, whatever it answers: a Create and a Delete each get
// through, although every call that changes something is refused at first.
func TestLockedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		refused := map[string]bool{}
		lock := func() {
			refused = map[string]bool{}
			seen := map[string]int{}
			w.Inject(fakecloud.Fault{Times: -1, Reply: lockedReply(), Match: func(r fakecloud.Request) bool {
				call := r.Route + " " + r.Action
				if strings.HasPrefix(r.Route, http.MethodGet) || seen[call] == 3 {
					return false
				}
				seen[call]++
				refused[call] = true
				return true
			}})
		}
		op := operation("m-1")
		op.Spec.Options = w.everyOption(t).Encode()
		c := w.connect(t)
		lock()
		must(t, op.Run(within(t), c.Create()))
		if len(w.Servers()) != 1 || len(refused) < 6 {
			t.Errorf("%d servers after refusals of %v", len(w.Servers()), refused)
		}
		lock()
		must(t, op.Teardown().Run(within(t), c.Delete()))
		if left := w.remains(); len(left) > 0 || len(refused) < 3 {
			t.Errorf("left behind: %q after refusals of %v", left, refused)
		}
	})
}

// An image has a variant for each architecture, and the one that fits may be on
// the second page.
func TestImageOnTheSecondPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const armType = "BASIC2-A2C-4G"
		imageOf := func(typ string) string {
			op := operation("probe-" + typ)
			op.Spec.Type = typ
			must(t, op.RunTo(within(t), w.connect(t).Create(), 1))
			resp, err := instance.NewAPI(w.client(t)).GetServer(&instance.GetServerRequest{Zone: zone, ServerID: id(op.Ref)})
			must(t, err)
			return resp.Server.Image.ID
		}
		images := []struct{ id, arch, typ string }{{imageOf(blockType), "x86_64", blockType}, {imageOf(armType), "arm64", armType}}
		for n, i := range images {
			w.Inject(fakecloud.Fault{
				Route: fakecloud.RouteListLocalImages, Times: -1,
				Match: func(r fakecloud.Request) bool { return (url.Values(r.Query).Get("page") == "2") == (n == 1) },
				Reply: &fakecloud.Reply{Status: http.StatusOK, ContentType: "application/json", Body: fmt.Sprintf(
					`{"local_images":[{"id":%q,"arch":%q,"zone":%q,"label":"ubuntu_noble","type":"instance_sbs","compatible_commercial_types":[%q]}],"total_count":2}`,
					i.id, i.arch, zone, i.typ)},
			})
		}
		orders := w.bodies(fakecloud.RouteCreateServer)
		var got, want []string
		for _, i := range images {
			op := operation("m-" + i.typ)
			op.Spec.Type = i.typ
			must(t, op.RunTo(within(t), w.connect(t).Create(), 1))
			got, want = append(got, orders()[len(got)]["image"].(string)), append(want, i.id)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("images of the orders (-want +got):\n%s", diff)
		}
		op := operation("m-3")
		op.Spec.Type = localType
		if err := op.Run(within(t), w.connect(t).Create()); !errors.Is(err, cloud.ErrInvalid) || !strings.Contains(err.Error(), localType) {
			t.Errorf("a type that no page has: %v", err)
		}
	})
}

// TestLimitsOfNetworks: whatever the status and the words, a Create that meets a
// full network or too few addresses ends at once as what it is, says which limit
// that is and what to do, and leaves nothing.
func TestLimitsOfNetworks(t *testing.T) {
	for name, tc := range map[string]struct {
		route string
		reply *fakecloud.Reply
		words string
	}{
		"addresses":       {fakecloud.RouteCreateIP, fakecloud.AddressLimit(), "Primary IP limit reached"},
		"quota, flat":     {fakecloud.RouteCreateIP, fakecloud.QuotaFlat("instance_ips"), "instance_ips (quota 0, in use 0)"},
		"quota, legacy":   {fakecloud.RouteCreateIP, fakecloud.QuotaLegacy(), "make an IPv6"},
		"network, 400":    {fakecloud.RouteCreatePrivateNIC, fakecloud.NetworkFull(400), "subnet of the private network is full"},
		"network, 409":    {fakecloud.RouteCreatePrivateNIC, fakecloud.NetworkFull(409), "private network is full"},
		"network, 412":    {fakecloud.RouteCreatePrivateNIC, fakecloud.NetworkFull(412), "no available IP address left"},
		"interfaces":      {fakecloud.RouteCreatePrivateNIC, fakecloud.QuotaStandard("instance_private_nics"), "instance_private_nics"},
		"network, legacy": {fakecloud.RouteCreatePrivateNIC, fakecloud.QuotaLegacy(), "private_network_ids: attach"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.connect(t)
			op := w.followed(t, blockType)
			before := w.remains()
			w.Inject(fakecloud.Fault{Route: tc.route, Times: -1, Reply: tc.reply})
			err := op.Run(within(t), c.Create())
			if !errors.Is(err, cloud.ErrLimit) || !errors.Is(err, cloud.ErrQuota) || errors.Is(err, cloud.ErrDenied) || errors.Is(err, cloud.ErrInvalid) || errors.Is(err, cloud.ErrConflict) {
				t.Errorf("Create = %v, want a limit and nothing else", err)
			}
			if !strings.Contains(err.Error(), tc.words) || cloud.Advice(err) == "" {
				t.Errorf("Create = %q with advice %q, want %q", err, cloud.Advice(err), tc.words)
			}
			if n := w.Requests(tc.route); n != 1 {
				t.Errorf("%d calls for what was refused for sure", n)
			}
			must(t, op.Teardown().Run(within(t), c.Discard()))
			if diff := cmp.Diff(before, w.remains()); diff != "" {
				t.Errorf("left behind (-before +after):\n%s", diff)
			}
		})
	}
}
