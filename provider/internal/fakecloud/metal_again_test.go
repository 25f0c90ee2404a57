package fakecloud

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestMetalInstalledAnew: an install wipes the disks, and the new system sees
// the user data of now.
func TestMetalInstalledAnew(t *testing.T) {
	hosts := &guestLog{}
	c := New(Options{Hosts: hosts, SSHKeys: []string{SampleSSHKey}})
	defer c.Close()
	id := c.order(t)
	c.mustDirect(t, http.StatusOK, "PATCH", metalPath+"/servers/"+id, `{"user_data":"I3k="}`)
	if s := c.Metal()[0]; string(s.FirstBoot) != "#x" || string(s.UserData) != "#y" || s.Boots != 1 {
		t.Errorf("before: %+v", s)
	}
	key := c.inv.sshKeys.all[0].id
	c.mustDirect(t, http.StatusOK, "POST", metalPath+"/servers/"+id+"/install", `{"os_id":"`+metalSystems[1].id+`","hostname":"h2","ssh_key_ids":["`+key+`"]}`)
	if s := c.Metal()[0]; string(s.FirstBoot) != "#y" || s.Boots != 1 || s.Hostname != "h2" {
		t.Errorf("after: %+v", s)
	}
	if told := fmt.Sprint(hosts.take()); told != "[boot m at 127.64.0.1 halt gone boot m at 127.64.0.1]" {
		t.Errorf("hosts were told %s", told)
	}
}

// TestMetalRestored: a server of an earlier process is there under its id.
func TestMetalRestored(t *testing.T) {
	hosts := &guestLog{}
	c := New(Options{Hosts: hosts})
	defer c.Close()
	e := Existing{ID: uuid.NewString(), Zone: "fr-par-2", Project: DefaultProjectID, Name: "m", CommercialType: "EM-A610R-NVME", Hostname: "h", Installed: true, UserData: []byte("#x")}
	if err := c.RestoreMetal(e); err != nil {
		t.Fatal(err)
	}
	raw := e
	raw.ID, raw.Installed = uuid.NewString(), false
	if err := c.RestoreMetal(raw); err != nil {
		t.Fatal(err)
	}
	all := c.Metal()
	if len(all) != 2 || all[0].ID != e.ID || all[0].InstallStatus != "completed" || all[0].Boots != 1 || all[1].InstallStatus != "" || all[1].Boots != 0 {
		t.Errorf("restored: %+v", all)
	}
	for name, wrong := range map[string]Existing{
		"twice": e, "no id": {ID: "x", Zone: e.Zone, CommercialType: e.CommercialType},
		"no offer": {ID: uuid.NewString(), Zone: e.Zone, CommercialType: "DEV1-S"},
	} {
		if err := c.RestoreMetal(wrong); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestMetalForced: the control endpoint sets a dedicated server's status, and its
// transition is over.
func TestMetalForced(t *testing.T) {
	c := New(Options{Scale: 1})
	defer c.Close()
	id := c.order(t)
	if w := c.direct("POST", "/debug/switches", `{"servers":[{"id":"`+id+`","state":"asleep","guest_shutdown":true}]}`); w.Code != http.StatusBadRequest ||
		!strings.Contains(w.Body.String(), "servers.0.state") || !strings.Contains(w.Body.String(), "servers.0.guest_shutdown") {
		t.Errorf("mistakes: %d %s", w.Code, w.Body)
	}
	for _, status := range []string{"locked", "out_of_stock", "error", "ready"} {
		c.mustDirect(t, http.StatusOK, "POST", "/debug/switches", `{"servers":[{"id":"`+id+`","state":"`+status+`","protected":true}]}`)
		if s := c.Metal()[0]; s.Status != status {
			t.Errorf("status %q, want %q", s.Status, status)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.inv.metal[id]; s.flow != nil || !s.protected {
		t.Errorf("its delivery goes on (%v) or it is not protected", s.flow != nil)
	}
}

func TestMetalLag(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	id := c.order(t)
	c.SetLag(time.Hour, 0)
	if _, text := c.mustDirect(t, http.StatusOK, "GET", metalPath+"/servers", ""); strings.Contains(text, id) {
		t.Errorf("listed in spite of the lag: %s", text)
	}
	c.mustDirect(t, http.StatusOK, "GET", metalPath+"/servers/"+id, "")
	c.SetLag(0, time.Hour)
	c.mustDirect(t, http.StatusNotFound, "GET", metalPath+"/servers/"+id, "")
	if _, text := c.mustDirect(t, http.StatusOK, "GET", metalPath+"/servers", ""); !strings.Contains(text, id) {
		t.Errorf("not listed: %s", text)
	}
}

// TestMetalMetadata: the guest of an installed server finds itself, its user data
// from a privileged port only, and changes nothing.
func TestMetalMetadata(t *testing.T) {
	c := New(Options{SSHKeys: []string{SampleSSHKey}})
	defer c.Close()
	id := c.order(t)
	at := c.Metal()[0].MetadataSource
	for _, tt := range []struct {
		method, path, port string
		status             int
		want               string
	}{
		{"GET", "/conf?format=json", "2000", 200, `"id":"` + id + `"`},
		{"GET", "/conf?format=json", "2000", 200, `"hostname":"h"`},
		{"GET", "/conf", "2000", 200, "COMMERCIAL_TYPE='EM-A610R-NVME'"},
		{"GET", "/user_data", "2000", 403, ""},
		{"GET", "/user_data?format=json", "22", 200, `["cloud-init"]`},
		{"GET", "/user_data/cloud-init", "22", 200, "#x"},
		{"GET", "/user_data/other", "22", 404, ""},
		{"PATCH", "/user_data/cloud-init", "22", 404, ""},
		{"DELETE", "/user_data/cloud-init", "22", 404, ""},
		{"GET", "/vendor_data/cloud-init", "22", 404, ""},
	} {
		w := c.asGuest(at+":"+tt.port, tt.method, tt.path, "x")
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s from port %s: %d %s, want %d with %s", tt.method, tt.path, tt.port, w.Code, w.Body, tt.status, tt.want)
		}
	}
	if err := c.MapGuest("127.0.0.9", id); err != nil {
		t.Fatal(err)
	}
	if w := c.asGuest("127.0.0.9:22", "GET", "/user_data/cloud-init", ""); w.Body.String() != "#x" {
		t.Errorf("from a mapped address: %d %s", w.Code, w.Body)
	}
	c.mustDirect(t, http.StatusOK, "DELETE", metalPath+"/servers/"+id, "")
	if w := c.asGuest(at+":22", "GET", "/conf", ""); w.Code != http.StatusMisdirectedRequest {
		t.Errorf("of a server that is gone: %d", w.Code)
	}
}
