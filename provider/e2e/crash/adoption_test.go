package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud/fakecloudtest"
)

// console is the API as an operator uses it.
func (f *fleet) console() *scw.Client {
	f.t.Helper()
	return fakecloudtest.Serve(f.t, f.cloud.Handler()).Client(f.t, "fr-par-1", nil)
}

// byHand orders a server, installs it and returns its id.
func (f *fleet) byHand(tags ...string) string {
	f.t.Helper()
	const zone = scw.ZoneFrPar1
	client := f.console()
	api := baremetal.NewAPI(client)
	offers, err := api.ListOffers(&baremetal.ListOffersRequest{Zone: zone, Name: new(metalType), SubscriptionPeriod: baremetal.OfferSubscriptionPeriodHourly})
	if err != nil {
		f.t.Fatal(err)
	}
	systems, err := api.ListOS(&baremetal.ListOSRequest{Zone: zone})
	if err != nil {
		f.t.Fatal(err)
	}
	keys, err := iam.NewAPI(client).ListSSHKeys(&iam.ListSSHKeysRequest{})
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := api.CreateServer(&baremetal.CreateServerRequest{
		Zone: zone, OfferID: offers.Offers[0].ID, Name: "mine", Tags: tags,
		Install: &baremetal.CreateServerRequestInstall{OsID: systems.Os[0].ID, Hostname: "mine", SSHKeyIDs: []string{keys.SSHKeys[0].ID}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, 10*time.Second, func() error {
		for _, m := range f.cloud.Metal() {
			if m.ID == s.ID && m.InstallStatus == "completed" {
				return nil
			}
		}
		return fmt.Errorf("server %s is not installed", s.ID)
	})
	return s.ID
}

// TestMetalByHand: servers that the offerings file names are IDLE from the
// start, also when it names one more later, and nothing is ordered; one that
// lacks our tag costs its slot only.
func TestMetalByHand(t *testing.T) {
	t.Parallel()
	offerings := filepath.Join(t.TempDir(), "by-hand.json")
	f := newMetalWorld(t, 1, "--offerings="+offerings)
	first, second, stranger := f.byHand(scaleway.OwnerTag(providerName)), f.byHand(scaleway.OwnerTag(providerName)), f.byHand()
	offer := func(servers ...string) {
		t.Helper()
		content, err := json.Marshal([]map[string]any{{"commercial_type": metalType, "zone": "fr-par-1", "servers": servers}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(offerings, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	offer(first, stranger)
	p := f.run()
	list := f.list().GetMachines()
	if len(list) != 1 || list[0].GetState() != idle || list[0].GetHost().GetRef() != "fr-par-1/"+first {
		t.Fatalf("machines %v, want one that is IDLE on %s", list, first)
	}
	if !p.said("lacks the tag") {
		t.Error("nothing is said of the server without our tag")
	}
	p.kill()
	offer(first, stranger, second)
	f.run()
	eventually(t, 10*time.Second, func() error {
		hosts := map[string]bool{}
		for _, m := range f.list().GetMachines() {
			if m.GetState() == idle {
				hosts[m.GetHost().GetRef()] = true
			}
		}
		if len(hosts) != 2 || !hosts["fr-par-1/"+second] {
			return fmt.Errorf("IDLE on %v, want %s and %s", hosts, first, second)
		}
		return nil
	})
	if f.orders() != 3 {
		t.Errorf("%d servers, want the 3 that were ordered by hand", f.orders())
	}
}

// TestMetalSystemIsRefused: where no agent could be installed, no provider
// starts.
func TestMetalSystemIsRefused(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{"Proxmox VE 8": "does not support cloud-init", "Plan 9": "no such system"} {
		f := newMetalWorld(t, 1, "--image="+image)
		f.stops(f.launch(), "--image", want)
	}
}
