package fakecloud

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
)

func TestDebugPages(t *testing.T) {
	a := serve(t, Options{})
	s := a.createWith(t, &instance.CreateServerRequest{Name: "n", CommercialType: "DEV1-S", Tags: []string{"t"}})
	a.setUserData(t, s.ID, "a-secret-token")
	a.mustAct(t, s.ID, instance.ServerActionPoweron)

	var servers []ServerInfo
	page := a.direct("GET", "/debug/servers", "").Body.String()
	if err := json.Unmarshal([]byte(page), &servers); err != nil || len(servers) != 1 || servers[0].State != StateRunning || len(servers[0].Volumes) != 1 {
		t.Errorf("/debug/servers: %v, %s", err, page)
	}
	if strings.Contains(page, "secret") {
		t.Error("/debug/servers shows user data")
	}
	var volumes []VolumeInfo
	page = a.direct("GET", "/debug/volumes", "").Body.String()
	if err := json.Unmarshal([]byte(page), &volumes); err != nil || len(volumes) != 1 || volumes[0].ServerID != s.ID {
		t.Errorf("/debug/volumes: %v, %s", err, page)
	}
	if page = a.direct("GET", "/debug/leaks", "").Body.String(); page != "[]\n" {
		t.Errorf("/debug/leaks: %s", page)
	}

	a.mustAct(t, s.ID, instance.ServerActionPoweroff)
	if err := a.instance.DeleteServer(&instance.DeleteServerRequest{ServerID: s.ID}); err != nil {
		t.Fatal(err)
	}
	var leaks []Leak
	page = a.direct("GET", "/debug/leaks", "").Body.String()
	if err := json.Unmarshal([]byte(page), &leaks); err != nil || len(leaks) != 1 || leaks[0].Type != "l_ssd" || leaks[0].HourlyEUR != 20*localGBHour {
		t.Errorf("/debug/leaks: %v, %s", err, page)
	}
}
