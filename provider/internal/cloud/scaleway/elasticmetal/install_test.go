package elasticmetal_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/fakecloud"
)

// TestInstallThatFails: three times is repeated on the same server; for ever is
// a failure that says so, whose server the next Create takes.
func TestInstallThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteInstallMetal, Times: 3, Outcome: fakecloud.OutcomeFallBack})
		w.create(t, w.connect(t), "m-1")
		w.wantOrders(t, 1)
		if n := w.Requests(fakecloud.RouteInstallMetal); n != 4 {
			t.Errorf("%d installs, want 4", n)
		}

		w = newWorld(t)
		healed := w.Inject(fakecloud.Fault{Route: fakecloud.RouteInstallMetal, Times: -1, Outcome: fakecloud.OutcomeFallBack})
		c, op := w.connect(t), operation("m-1")
		err := op.Run(deadline(t), c.Create())
		if !errors.Is(err, cloud.ErrInvalid) || !strings.Contains(err.Error(), "4 installs") {
			t.Fatalf("Create = %v, want an ErrInvalid that counts the installs", err)
		}
		discard(t, c, op)
		healed()
		if again := w.create(t, c, "m-2"); again.Ref != op.Ref {
			t.Errorf("m-2 has server %s, want that of m-1, %s", again.Ref, op.Ref)
		}
		w.wantOrders(t, 1)
	})
}

// TestInstallIsRepeatedAfterRefusals: answers that are none cost no install.
func TestInstallIsRepeatedAfterRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, f := range []fakecloud.Fault{
			{Times: 6, Reply: &fakecloud.Reply{Status: http.StatusInternalServerError}},
			{Commit: true, Hangup: true},
		} {
			f.Route = fakecloud.RouteInstallMetal
			w.Inject(f)
		}
		op := w.create(t, w.connect(t), "m-1")
		w.wantOrders(t, 1)
		if s, _ := w.server(op.Ref); s.Boots != 1 {
			t.Errorf("%d boots, want 1", s.Boots)
		}
	})
}

// TestStuckDelivery: the deadline ends the Create, its words name the stage, and
// whoever comes next waits for the same server.
func TestStuckDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Outcome: fakecloud.OutcomeStuck})
		c, op := w.connect(t), operation("m-1")
		if err := op.RunTo(deadline(t), c.Create(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := op.Run(ctx, c.Create()); err == nil || !strings.Contains(err.Error(), `step "delivery"`) {
			t.Fatalf("Create = %v, want one that was delivering", err)
		}
		discard(t, c, op)
		again := operation("m-2")
		if err := again.RunTo(deadline(t), c.Create(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := again.Run(ctx, c.Create()); err == nil || again.Ref != op.Ref {
			t.Errorf("the next Create: %v on server %q, want to wait for %q", err, again.Ref, op.Ref)
		}
		w.wantOrders(t, 1)
	})
}

// TestSpareInTheMiddleOfAnInstall: the API may refuse another install until the
// one before is over. No document says how, so that any refusal is waited out.
func TestSpareInTheMiddleOfAnInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteInstallMetal, Outcome: fakecloud.OutcomeStuck})
		c, op := w.connect(t), operation("m-1")
		ctx, cancel := context.WithCancel(deadline(t))
		var watch sync.WaitGroup
		watch.Go(func() {
			defer cancel()
			for ctx.Err() == nil && !slices.ContainsFunc(w.Metal(), func(s fakecloud.MetalInfo) bool { return s.InstallStatus != "" }) {
				time.Sleep(time.Millisecond)
			}
		})
		err := op.Run(ctx, c.Create())
		watch.Wait()
		if err == nil || !strings.Contains(err.Error(), `step "install"`) {
			t.Fatalf("Create = %v, want one that was installing", err)
		}
		discard(t, c, op)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteInstallMetal, Times: 3, Reply: &fakecloud.Reply{
			Status: http.StatusBadRequest, ContentType: "application/json", Body: `{"message":"Server is being installed"}`,
		}})
		if again := w.create(t, c, "m-2"); again.Ref != op.Ref {
			t.Errorf("m-2 has %s, want the spare %s", again.Ref, op.Ref)
		}
		w.wantOrders(t, 1)
	})
}

// TestSpareIsWipedClean: what takes a spare has its own data, name and tags.
func TestSpareIsWipedClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := w.create(t, c, "m-1")
		if err := c.SetCluster(deadline(t), op.Ref, "prod"); err != nil {
			t.Fatal(err)
		}
		discard(t, c, op)
		discard(t, c, op) // again, as after a restart
		if list, err := c.List(deadline(t)); err != nil || len(list) != 1 || !list[0].Spare || list[0].MachineID+list[0].Cluster+list[0].OperationID != "" {
			t.Fatalf("List = %+v, %v; want one spare", list, err)
		}
		next := operation("m-2")
		next.Spec.UserData = func() ([]byte, error) { return []byte("#cloud-config\n# m-2\n"), nil }
		if err := next.Run(deadline(t), c.Create()); err != nil {
			t.Fatal(err)
		}
		discard(t, c, op) // late: the server is another's by now
		s, _ := w.server(next.Ref)
		tags := scaleway.ParseTags(s.Tags)
		if want := (scaleway.Tags{Owner: provider, Machine: "m-2", Operation: "op-of-m-2", Life: "op-of-m-2"}); tags != want || s.Name != scaleway.ServerName("m-2", "op-of-m-2") || s.Hostname != s.Name {
			t.Errorf("server %q (%q) with %+v, want %+v", s.Name, s.Hostname, tags, want)
		}
		if string(s.FirstBoot) != "#cloud-config\n# m-2\n" || s.Boots != 1 {
			t.Errorf("the new system saw %q at boot %d", s.FirstBoot, s.Boots)
		}
		w.wantOrders(t, 1)
	})
}

// TestSparesAreTakenOnlyIfMarked: a server that was tagged by hand and not handed
// over must not be wiped.
func TestSparesAreTakenOnlyIfMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		mine := w.byHand(t, scaleway.OwnerTag(provider))
		w.byHand(t, scaleway.SpareTag("x")) // nobody's
		op := w.create(t, w.connect(t), "m-1")
		w.wantOrders(t, 3)
		given := w.byHand(t, scaleway.OwnerTag(provider), scaleway.SpareTag("by-hand"))
		if got := w.create(t, w.connect(t), "m-2"); id(got.Ref) != given {
			t.Errorf("m-2 has %s, want the server that was handed over, %s", got.Ref, given)
		}
		if s, _ := w.server(mine); s.InstallStatus != "" || id(op.Ref) == mine {
			t.Errorf("a server that nobody handed over was touched: %+v", s)
		}
	})
}

// installByHand puts a system on a server, as an operator would.
func (w *world) installByHand(t *testing.T, serverID string) {
	t.Helper()
	api := w.api(t)
	systems, err := api.ListOS(&baremetal.ListOSRequest{Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.InstallServer(&baremetal.InstallServerRequest{Zone: zone, ServerID: serverID, OsID: systems.Os[0].ID, Hostname: "mine", SSHKeyIDs: w.sshKeys(t)}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the install", func() bool { s, _ := w.server(serverID); return s.InstallStatus == "completed" })
}

func TestAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		mine := func(id string) bool { return id == "slot" }
		adopt := func(server string) error { return c.Adopt(deadline(t), server, offer, "slot", mine) }

		stranger := w.byHand(t)
		raw := w.byHand(t, scaleway.OwnerTag(provider))
		taken := w.create(t, c, "m-1")
		for name, server := range map[string]string{
			"not tagged": stranger, "not installed": raw, "another machine's": id(taken.Ref),
			"not there": "11111111-2222-4333-8444-555555555555", "no id": "x",
		} {
			if err := adopt(server); !errors.Is(err, cloud.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		if err := c.Adopt(deadline(t), raw, "EM-I220E-NVME", "slot", mine); !errors.Is(err, cloud.ErrInvalid) {
			t.Errorf("of another offer: %v, want ErrInvalid", err)
		}

		w.installByHand(t, raw)
		for range 2 {
			if err := adopt(raw); err != nil {
				t.Fatal(err)
			}
		}
		in, err := c.Get(deadline(t), zone+"/"+raw)
		if err != nil || in.MachineID != "slot" || in.Unfinished || in.Spare {
			t.Fatalf("the adopted server is %+v, %v", in, err)
		}
		// Should its machine be created all the same, it is used as it is.
		boots := func() int { s, _ := w.server(raw); return s.Boots }
		before, orders := boots(), w.orders()
		op := operation("slot")
		op.Spec.Options = cloud.Options{Server: raw}.Encode()
		if err := op.Run(deadline(t), c.Create()); err != nil || id(op.Ref) != raw || boots() != before {
			t.Errorf("Create: %v on %q after %d more boots", err, op.Ref, boots()-before)
		}
		// After a failure it is installed anew, for its own slot only.
		discard(t, c, op)
		if err := adopt(raw); err != nil {
			t.Errorf("of a spare: %v", err)
		}
		again := operation("slot-r2")
		again.Spec.Options = op.Spec.Options
		if err := again.Run(deadline(t), c.Create()); err != nil || id(again.Ref) != raw {
			t.Errorf("Create after a failure: %v on %q", err, again.Ref)
		}
		w.wantOrders(t, orders)
	})
}

func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := w.create(t, c, "m-1")
		if got, want := c.ProviderID(op.Ref), "scaleway://baremetal/"+op.Ref; got != want {
			t.Errorf("provider id %q, want %q", got, want)
		}
		if words := c.Keeps(op.Ref, offer); !strings.Contains(words, "capacityctl release --spare "+op.Ref) {
			t.Errorf("Keeps = %q; want it to say how to give the server back", words)
		}
		if err := c.Scrub(deadline(t), op.Ref); err != nil {
			t.Fatal(err)
		}
		if s, _ := w.server(op.Ref); string(s.UserData) != "#cloud-config\n" || strings.Contains(string(s.FirstBoot), "token") {
			t.Errorf("user data after Scrub: %q", s.UserData)
		}
	})
}

// TestUserDataRefused: the API's 503 of an offer without cloud-init is for ever.
func TestUserDataRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Match: func(r fakecloud.Request) bool { return strings.HasPrefix(r.Route, http.MethodPatch) }, Times: -1,
			Reply: &fakecloud.Reply{Status: http.StatusServiceUnavailable, ContentType: "application/json", Body: `{"message":"cloud-init is not supported on this offer"}`}})
		if err := operation("m-1").Run(deadline(t), w.connect(t).Create()); !errors.Is(err, cloud.ErrInvalid) {
			t.Errorf("Create = %v, want ErrInvalid", err)
		}
		w.wantOrders(t, 1)
	})
}

func TestConfigFaults(t *testing.T) {
	_, err := elasticmetal.New(elasticmetal.Config{Zone: "nowhere", PageSize: 1000, SSHKeys: []string{"x"}})
	for _, part := range []string{"client", "zone", "project id", "provider", "image", "SSH key", "page size"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("New = %v; want it to name %s", err, part)
		}
	}
}
