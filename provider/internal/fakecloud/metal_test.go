package fakecloud

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	iamsdk "github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

const metalPath = "/baremetal/v1/zones/fr-par-2"

// order makes a dedicated server with an install and user data "#x".
func (c *Cloud) order(t *testing.T) string {
	t.Helper()
	key, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/ssh-keys", `{"name":"me","public_key":"`+sampleSSHKey+`","project_id":"`+DefaultProjectID+`"}`)
	offer, _ := findMetalOffer("fr-par-2", func(o metalOffer) bool { return o.name == "EM-A610R-NVME" && !o.monthly })
	id, _ := c.mustDirect(t, http.StatusOK, "POST", metalPath+"/servers", `{"offer_id":"`+offer.id()+`","project_id":"`+DefaultProjectID+`","name":"m","user_data":"I3g=",
		"install":{"os_id":"`+metalSystems[0].id+`","hostname":"h","ssh_key_ids":["`+key+`"]}}`)
	return id
}

// metalState is "status/install/ping", or "gone".
func (c *Cloud) metalState(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.inv.metal[id]
	if s == nil {
		return "gone"
	}
	return s.status + "/" + s.install.status + "/" + strings.TrimPrefix(s.ping, "ping_status_")
}

func TestMetalTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := &guestLog{}
		c := New(Options{Scale: 1, Hosts: hosts})
		defer c.Close()
		begin := time.Now()
		id := c.order(t)
		var got []moment
		watch := func(d time.Duration) {
			for end := time.Now().Add(d); ; time.Sleep(time.Second) {
				synctest.Wait()
				if now := c.metalState(id); len(got) == 0 || got[len(got)-1].Now != now {
					got = append(got, moment{time.Since(begin), now})
				}
				if !time.Now().Before(end) {
					return
				}
			}
		}
		watch(400 * time.Second)
		for _, action := range []string{"stop", "start", "reboot"} {
			c.mustDirect(t, http.StatusOK, "POST", metalPath+"/servers/"+id+"/"+action, `{}`)
			watch(20 * time.Second)
		}
		if _, text := c.mustDirect(t, http.StatusOK, "DELETE", metalPath+"/servers/"+id, ""); !strings.Contains(text, `"status":"deleting"`) {
			t.Errorf("the answer of DELETE: %s", text)
		}
		watch(10 * time.Second)
		want := []moment{
			{0, "ordered/to_install/unknown"},
			{2 * time.Second, "delivering/to_install/unknown"},
			{10 * time.Second, "ready/to_install/unknown"},
			{44 * time.Second, "ready/installing/unknown"},
			{248 * time.Second, "ready/installing/up"},
			{350 * time.Second, "ready/completed/up"},
			{400 * time.Second, "stopping/completed/up"},
			{415 * time.Second, "stopped/completed/down"},
			{420 * time.Second, "starting/completed/down"},
			{435 * time.Second, "ready/completed/up"},
			{440 * time.Second, "stopping/completed/up"},
			{455 * time.Second, "ready/completed/up"},
			{460 * time.Second, "deleting/completed/up"},
			{465 * time.Second, "gone"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("timeline (-want +got):\n%s", diff)
		}
		if told := hosts.take(); fmt.Sprint(told) != "[boot m at 127.64.0.1 halt boot m at 127.64.0.1 halt boot m at 127.64.0.1 halt gone]" {
			t.Errorf("hosts were told %q", told)
		}
		if len(c.addresses.used) != 0 {
			t.Error("an address is left")
		}
	})
}

func TestMetalGoesWrong(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	c.SetStock("fr-par-2", "EM-A610R-NVME", Shortage)
	if got := c.metalState(c.order(t)); got != "out_of_stock/to_install/unknown" {
		t.Errorf("in a shortage: %s", got)
	}
	c.SetStock("fr-par-2", "EM-A610R-NVME", Available)
	c.Inject(Fault{Route: RouteCreateMetal, Outcome: OutcomeFallBack})
	if got := c.metalState(c.order(t)); got != "ready/error/up" {
		t.Errorf("a failed install: %s", got)
	}
	c.Inject(Fault{Route: RouteCreateMetal, Outcome: OutcomeStuck})
	stuck := c.order(t)
	if got := c.metalState(stuck); got != "ordered/to_install/unknown" {
		t.Errorf("stuck: %s", got)
	}

	offer := func(name string) string {
		o, _ := findMetalOffer("fr-par-2", func(o metalOffer) bool { return o.name == name })
		return o.id()
	}
	create := func(offer, rest string) string {
		return `{"offer_id":"` + offer + `","project_id":"` + DefaultProjectID + `"` + rest + `}`
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/servers/" + stuck + "/stop", "{}", 400, `{"message":"Server is not delivered"}`},
		{"POST", "/servers", create(offer(metalWithoutCloudInit), `,"user_data":"I3g="`), 503, `{"message":"cloud-init is not supported on this offer"}`},
		{"POST", "/servers", create(nobody, ""), 404, `{"message":"Not Found"}`},
		{"POST", "/servers", create(offer("EM-A116X-SSD"), `,"install":{"os_id":"`+metalSystems[4].id+`","ssh_key_ids":["`+nobody+`"]}`), 400, `{"message":"Missing service password"}`},
		{"POST", "/servers", create(offer("EM-A116X-SSD"), `,"install":{"os_id":"`+metalSystems[0].id+`"}`), 400, `{"message":"Missing SSH key"}`},
		{"GET", "/offers/" + nobody, "", 404, `{"message":"Not Found"}`},
		{"GET", "/os/" + nobody, "", 404, `{"message":"Not Found"}`},
	} {
		if w := c.direct(tt.method, metalPath+tt.path, tt.body); w.Code != tt.status || w.Body.String() != tt.want {
			t.Errorf("%s %s %s: %d %s, want %d %s", tt.method, tt.path, tt.body, w.Code, w.Body, tt.status, tt.want)
		}
	}
	if infos := c.Metal(); len(infos) != 3 || infos[1].InstallStatus != "error" {
		t.Errorf("servers %+v", infos)
	}
	c.Reset()
	if n := len(c.Metal()); n != 0 {
		t.Errorf("%d servers after a reset", n)
	}
}

func sdkMetal(t *testing.T, a *account) {
	api := baremetal.NewAPI(a.client)
	z := scw.ZoneFrPar2
	offers := must(api.ListOffers(&baremetal.ListOffersRequest{Zone: z, SubscriptionPeriod: baremetal.OfferSubscriptionPeriodHourly}, scw.WithAllPages()))(t).Offers
	i := slices.IndexFunc(offers, func(o *baremetal.Offer) bool { return o.Name == "EM-A610R-NVME" })
	if len(offers) != len(metalPrices) || i < 0 || offers[i].PricePerHour.ToFloat() != 0.11 || offers[i].MonthlyOfferID == nil {
		t.Fatalf("%d offers, at %d", len(offers), i)
	}
	if monthly := must(api.GetOffer(&baremetal.GetOfferRequest{Zone: z, OfferID: *offers[i].MonthlyOfferID}))(t); monthly.PricePerHour != nil || monthly.Fee.ToFloat() != 39.99 {
		t.Errorf("monthly offer %+v", monthly)
	}
	system := must(api.ListOS(&baremetal.ListOSRequest{Zone: z}, scw.WithAllPages()))(t).Os[0]
	must(api.GetOS(&baremetal.GetOSRequest{Zone: z, OsID: system.ID}))(t)
	keys := iamsdk.NewAPI(a.client)
	key := must(keys.CreateSSHKey(&iamsdk.CreateSSHKeyRequest{Name: "me", PublicKey: sampleSSHKey, ProjectID: DefaultProjectID}))(t)

	data := []byte("#cloud-config\n")
	s := must(api.CreateServer(&baremetal.CreateServerRequest{Zone: z, OfferID: offers[i].ID, Name: "m", Tags: []string{"t"}, UserData: &data}))(t)
	if s.Status != baremetal.ServerStatusOrdered {
		t.Errorf("ordered: %s", s.Status)
	}
	must(api.InstallServer(&baremetal.InstallServerRequest{Zone: z, ServerID: s.ID, OsID: system.ID, Hostname: "h", SSHKeyIDs: []string{key.ID}}))(t)
	s = must(api.WaitForServerInstall(&baremetal.WaitForServerInstallRequest{Zone: z, ServerID: s.ID}))(t)
	if s.Install.Status != baremetal.ServerInstallStatusCompleted || len(s.IPs) != 1 || !bytes.Equal(*s.UserData, data) || s.PingStatus != baremetal.ServerPingStatusPingStatusUp {
		t.Errorf("installed: %+v", s)
	}
	must(api.UpdateServer(&baremetal.UpdateServerRequest{Zone: z, ServerID: s.ID, Tags: &[]string{"u"}}))(t)
	if list := must(api.ListServers(&baremetal.ListServersRequest{Zone: z, Tags: []string{"u"}}, scw.WithAllPages()))(t); len(list.Servers) != 1 || list.TotalCount != 1 {
		t.Errorf("servers %+v", list.Servers)
	}
	must(api.StopServer(&baremetal.StopServerRequest{Zone: z, ServerID: s.ID}))(t)
	if got := must(api.GetServer(&baremetal.GetServerRequest{Zone: z, ServerID: s.ID}))(t); got.Status != baremetal.ServerStatusStopped {
		t.Errorf("stopped: %s", got.Status)
	}
	must(api.StartServer(&baremetal.StartServerRequest{Zone: z, ServerID: s.ID}))(t)
	must(api.RebootServer(&baremetal.RebootServerRequest{Zone: z, ServerID: s.ID}))(t)
	if got := must(api.DeleteServer(&baremetal.DeleteServerRequest{Zone: z, ServerID: s.ID}))(t); got.Status != baremetal.ServerStatusDeleting {
		t.Errorf("deleted: %s", got.Status)
	}
	// Not the error that other products give.
	var plain *scw.ResponseError
	if _, err := api.GetServer(&baremetal.GetServerRequest{Zone: z, ServerID: s.ID}); !errors.As(err, &plain) || plain.StatusCode != http.StatusNotFound {
		t.Errorf("a server that is gone: %#v", err)
	}
	mustDo(t, keys.DeleteSSHKey(&iamsdk.DeleteSSHKeyRequest{SSHKeyID: key.ID}))
}
