package elasticmetal_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/fakecloudtest"
)

const (
	zone     = "fr-par-2"
	offer    = "EM-B112X-SSD"
	provider = "scaleway-fr-par-2"
)

// world is a fake cloud behind HTTP.
type world struct {
	*fakecloud.Cloud
	served *fakecloudtest.Server
}

func newWorld(t *testing.T, adjust ...func(*fakecloud.Options)) *world {
	t.Helper()
	o := fakecloud.Options{Scale: 0.0001, SSHKeys: []string{fakecloud.SampleSSHKey}}
	for _, f := range adjust {
		f(&o)
	}
	w := &world{Cloud: fakecloud.New(o)}
	t.Cleanup(w.Close)
	w.served = fakecloudtest.Serve(t, w.Handler())
	return w
}

func (w *world) client(t *testing.T) *scw.Client {
	t.Helper()
	return w.served.Client(t, zone, nil)
}

// connect returns a new process' adapter; adjust may change its configuration.
func (w *world) connect(t *testing.T, adjust ...func(*elasticmetal.Config)) *elasticmetal.Cloud {
	t.Helper()
	cfg := elasticmetal.Config{
		Client: w.client(t), Zone: zone, ProjectID: fakecloud.DefaultProjectID, Provider: provider, System: "Ubuntu 24.04",
		Timing: elasticmetal.Timing{Poll: 2 * time.Millisecond, Settle: 60 * time.Millisecond, Turn: 200 * time.Millisecond, Hold: 100 * time.Millisecond},
	}
	for _, f := range adjust {
		f(&cfg)
	}
	c, err := elasticmetal.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) api(t *testing.T) *baremetal.API {
	t.Helper()
	return baremetal.NewAPI(w.client(t))
}

func id(ref string) string { return strings.TrimPrefix(ref, zone+"/") }

func (w *world) server(ref string) (fakecloud.MetalInfo, bool) {
	for _, s := range w.Metal() {
		if s.ID == id(ref) {
			return s, true
		}
	}
	return fakecloud.MetalInfo{}, false
}

// orders counts the orders that the cloud has carried out.
func (w *world) orders() int { return len(w.Metal()) }

// spares are the ids of the servers that are nobody's.
func (w *world) spares() []string {
	var ids []string
	for _, s := range w.Metal() {
		if scaleway.ParseTags(s.Tags).Spare != "" {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *world) contract() *cloudtest.World {
	return &cloudtest.World{
		Zone:    zone,
		Type:    offer,
		Connect: func(t *testing.T) cloud.Cloud { t.Helper(); return w.connect(t) },
		Servers: func() []string {
			var refs []string
			for _, s := range w.Metal() {
				refs = append(refs, s.Zone+"/"+s.ID)
			}
			return refs
		},
		Remains: func() []string {
			var list []string
			spares := w.spares()
			for _, s := range w.Metal() {
				if !slices.Contains(spares, s.ID) {
					list = append(list, fmt.Sprintf("server %s %q", s.ID, s.Tags))
				}
			}
			return list
		},
		UserData: func(ref string) (now, first []byte) {
			s, _ := w.server(ref)
			return s.UserData, s.FirstBoot
		},
		Stop: func(t *testing.T, ref string) {
			t.Helper()
			if _, err := w.api(t).StopServer(&baremetal.StopServerRequest{Zone: zone, ServerID: id(ref)}); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "server stopped", func() bool { s, _ := w.server(ref); return s.Status == "stopped" })
		},
		Remove: func(t *testing.T, ref string) {
			t.Helper()
			if _, err := w.api(t).DeleteServer(&baremetal.DeleteServerRequest{Zone: zone, ServerID: id(ref)}); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "server gone", func() bool { _, ok := w.server(ref); return !ok })
		},
		Stranger:   w.stranger,
		LoseAnswer: func(n int) func() bool { return fakecloudtest.LoseAnswer(w.Cloud, n) },
	}
}

func (w *world) offerID(t *testing.T) string {
	t.Helper()
	list, err := w.api(t).ListOffers(&baremetal.ListOffersRequest{Zone: zone, Name: new(offer), SubscriptionPeriod: baremetal.OfferSubscriptionPeriodHourly})
	if err != nil || len(list.Offers) != 1 {
		t.Fatalf("offers of %s: %v, %v", offer, list, err)
	}
	return list.Offers[0].ID
}

// byHand orders a server in the console and waits until it is there.
func (w *world) byHand(t *testing.T, tags ...string) string {
	t.Helper()
	s, err := w.api(t).CreateServer(&baremetal.CreateServerRequest{Zone: zone, OfferID: w.offerID(t), Name: "by-hand", Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "delivery", func() bool { got, _ := w.server(s.ID); return got.Status == "ready" })
	return s.ID
}

// stranger makes servers that lack our tags in one way or another.
func (w *world) stranger(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		w.byHand(t, [][]string{{"bigfleet=another-provider"}, nil, {"bigfleet-machine=m-1", provider}}[i%3]...)
	}
}

func TestContract(t *testing.T) {
	cloudtest.Run(t, func(t *testing.T) *cloudtest.World { return newWorld(t).contract() })
}

func (w *world) sshKeys(t *testing.T) []string {
	t.Helper()
	list, err := iam.NewAPI(w.client(t)).ListSSHKeys(&iam.ListSSHKeysRequest{ProjectID: new(fakecloud.DefaultProjectID)})
	if err != nil || len(list.SSHKeys) == 0 {
		t.Fatalf("SSH keys: %v, %v", list, err)
	}
	return []string{list.SSHKeys[0].ID}
}
