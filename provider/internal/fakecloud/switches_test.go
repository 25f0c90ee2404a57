package fakecloud

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

func TestPageShift(t *testing.T) {
	a := serve(t, Options{})
	for i := range 6 {
		a.create(t, fmt.Sprintf("n%d", i))
	}
	for shift, want := range map[int]string{
		0:  "n5 n4 n3 n2 n1 n0",
		1:  "n5 n4 n4 n3 n2 n1 n0", // one was made after page one: n4 comes again
		-1: "n5 n4 n2 n1 n0",       // one of page one was deleted: n3 is skipped
	} {
		a.SetPageShift(shift)
		var got []string
		for page := int32(1); ; page++ {
			list, err := a.instance.ListServers(&instance.ListServersRequest{Page: &page, PerPage: new(uint32(2))})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Servers) == 0 {
				break
			}
			for _, s := range list.Servers {
				got = append(got, s.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("shift %d: %v, want %s", shift, got, want)
		}
	}
}

func TestQuotaBodies(t *testing.T) {
	a := serve(t, Options{})
	a.SetQuota("DEV1-S", 0)
	for body, details := range map[QuotaBody]int{QuotaBodyFlat: 0, QuotaBodyStandard: 1, QuotaBodyLegacy: 1, "": 0} {
		a.SetQuotaBody(body)
		_, err := a.instance.CreateServer(&instance.CreateServerRequest{CommercialType: "DEV1-S", Image: new("ubuntu_noble")})
		var quota *scw.QuotasExceededError
		if !errors.As(err, &quota) || len(quota.Details) != details {
			t.Errorf("%q: %#v", body, err)
		}
	}
}

// What a sweep meets that comes right after a server is gone.
func TestVolumesOutlastTheirServer(t *testing.T) {
	tests := []struct {
		name   string
		delays Delays
		remove string
		until  time.Duration // from the call until the server is a 404
		want   []string      // the volume's status and reference at 0, 2 s, … after that
		second int           // of a DELETE of the volume at the first look
	}{
		{"delete, as usual", Delays{}, "", 0, []string{"in_use detaching", "available"}, http.StatusConflict},
		{"delete, slow to begin", Delays{DetachStart: 3 * time.Second}, "", 0, []string{"in_use attached", "in_use attached", "in_use detaching", "available"}, http.StatusPreconditionFailed},
		{"terminate, as usual", Delays{}, "terminate", 5 * time.Second, []string{"available"}, http.StatusNoContent},
		{"terminate, slow", Delays{DetachTerminated: 6 * time.Second}, "terminate", 5 * time.Second, []string{"in_use detaching", "in_use detaching", "available"}, http.StatusConflict},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Options{Scale: 1, Delays: tt.delays})
				defer c.Close()
				id := c.directServer(t, "PLAY2-NANO", "")
				if tt.remove == "" {
					c.mustDirect(t, http.StatusNoContent, "DELETE", serversPath+"/"+id, "")
				} else {
					c.directAct(t, id, "poweron")
					time.Sleep(5 * time.Second)
					synctest.Wait()
					c.directAct(t, id, tt.remove)
				}
				time.Sleep(tt.until)
				synctest.Wait()
				path := "/block/v1/zones/fr-par-1/volumes/" + c.Volumes()[0].ID
				var got []string
				for range tt.want {
					c.mu.Lock()
					v := c.inv.volumes[c.inv.zones["fr-par-1"].volumes.all[0].id]
					now := v.status
					if v.ref != nil {
						now += " " + v.ref.status
					}
					c.mu.Unlock()
					got = append(got, now)
					if len(got) == 1 {
						if w := c.direct("DELETE", path, ""); w.Code != tt.second {
							t.Errorf("DELETE of the volume: %d %s, want %d", w.Code, w.Body, tt.second)
						}
						if tt.second == http.StatusNoContent {
							break
						}
					}
					time.Sleep(2 * time.Second)
					synctest.Wait()
				}
				if c.condition(id) != "gone" || !slices.Equal(got, tt.want) {
					t.Errorf("the server is %s, its volume %q, want %q", c.condition(id), got, tt.want)
				}
			})
		})
	}
}

func TestSlowestRecordedTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1, Delays: Delays{PowerOff: 188 * time.Second}})
		defer c.Close()
		id := c.directServer(t, "PLAY2-NANO", "")
		c.directAct(t, id, "poweron")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		c.directAct(t, id, "poweroff")
		time.Sleep(187 * time.Second)
		synctest.Wait()
		if got := c.condition(id); got != "stopping/stopping" {
			t.Errorf("after 187 s: %s", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.directAct(t, id, "poweron")
		time.Sleep(5 * time.Second)
		synctest.Wait()

		c.Inject(Fault{Route: RouteServerAction, Action: "terminate", Outcome: OutcomeStuck})
		c.directAct(t, id, "terminate")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := c.condition(id); got != "stopping/terminating" {
			t.Errorf("terminate that never ends, a day later: %s", got)
		}
	})
}

func TestNetworkHeldAfterItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1, Delays: Delays{NetworkRelease: 30 * time.Second}})
		defer c.Close()
		network := "/vpc/v2/regions/fr-par/private-networks/" + c.directNetwork(t)
		_, id, _ := strings.Cut(network, "private-networks/")
		server := c.directServer(t, "PLAY2-NANO", "")
		c.mustDirect(t, http.StatusCreated, "POST", serversPath+"/"+server+"/private_nics", `{"private_network_id":"`+id+`"}`)
		c.mustDirect(t, http.StatusNoContent, "DELETE", serversPath+"/"+server, "")
		for _, want := range []int{http.StatusPreconditionFailed, http.StatusNoContent} {
			if w := c.direct("DELETE", network, ""); w.Code != want {
				t.Errorf("delete of the network: %d %s, want %d", w.Code, w.Body, want)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
		}
	})
}

func TestLeaksOfEveryKind(t *testing.T) {
	a := serve(t, Options{})
	s := a.create(t, "n")
	volume := a.Volumes()[0].ID
	if _, err := a.block.CreateSnapshot(&block.CreateSnapshotRequest{VolumeID: volume, Name: "snap", ProjectID: DefaultProjectID}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.instance.CreateIP(&instance.CreateIPRequest{Type: instance.IPTypeRoutedIPv4}); err != nil {
		t.Fatal(err)
	}
	if err := a.instance.DeleteServer(&instance.DeleteServerRequest{ServerID: s.ID}); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, leak := range a.Leaks() {
		kinds = append(kinds, leak.Kind)
		if leak.HourlyEUR <= 0 {
			t.Errorf("%+v costs nothing", leak)
		}
	}
	if want := []string{"volume", "ip", "snapshot"}; !slices.Equal(kinds, want) {
		t.Errorf("leaks %v, want %v", kinds, want)
	}
}
