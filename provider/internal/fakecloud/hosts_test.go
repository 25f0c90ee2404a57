package fakecloud

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
)

// recorder is a Hosts that only remembers.
type recorder struct {
	mu     sync.Mutex
	events []string
	guests []Guest
}

func (r *recorder) note(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) Boot(g Guest) {
	r.note(fmt.Sprintf("boot %d %s", g.Boot, g.UserData))
	r.guests = append(r.guests, g)
}
func (r *recorder) Halt(string) { r.note("halt") }
func (r *recorder) Gone(string) { r.note("gone") }
func (r *recorder) Close()      { r.note("close") }

func (r *recorder) want(t *testing.T, events ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.events, events) {
		t.Errorf("events %q, want %q", r.events, events)
	}
}

func (a *account) setUserData(t *testing.T, id, text string) {
	t.Helper()
	if err := a.instance.SetServerUserData(&instance.SetServerUserDataRequest{ServerID: id, Key: "cloud-init", Content: strings.NewReader(text)}); err != nil {
		t.Fatal(err)
	}
}

// What the guest saw at its first boot stays; what comes later reaches nobody.
func TestGuestSeesTheUserDataOfItsFirstPowerOn(t *testing.T) {
	hosts := &recorder{}
	a := serve(t, Options{Hosts: hosts})
	s := a.createWith(t, &instance.CreateServerRequest{Name: "Node_1", Tags: []string{"a"}, DynamicIPRequired: new(true)})
	a.setUserData(t, s.ID, "first")
	a.mustAct(t, s.ID, instance.ServerActionPoweron)
	a.setUserData(t, s.ID, "second")
	a.mustAct(t, s.ID, instance.ServerActionReboot)
	a.mustAct(t, s.ID, instance.ServerActionPoweroff)
	a.mustAct(t, s.ID, instance.ServerActionPoweron)
	if !a.GuestShutdown(s.ID) {
		t.Error("a running guest did not shut down")
	}
	if a.GuestShutdown(s.ID) {
		t.Error("a guest shut down twice")
	}
	if got := a.get(t, s.ID); got.State != instance.ServerStateStoppedInPlace {
		t.Errorf("state %s after the guest's own shutdown", got.State)
	}
	a.mustAct(t, s.ID, instance.ServerActionTerminate)
	a.Close()
	hosts.want(t, "boot 1 first", "halt", "boot 2 first", "halt", "boot 3 first", "halt", "halt", "gone", "close")

	g := hosts.guests[0]
	if g.ServerID != s.ID || g.Name != "Node_1" || g.Hostname != "node-1" || g.Zone != "fr-par-1" || g.CommercialType != "PLAY2-NANO" ||
		!slices.Equal(g.Tags, []string{"a"}) || !strings.HasPrefix(g.PublicIP, "198.1") || g.Project != DefaultProjectID {
		t.Errorf("guest %+v", g)
	}
}

func TestGuestWithoutUserData(t *testing.T) {
	hosts := &recorder{}
	a := serve(t, Options{Hosts: hosts})
	s := a.create(t, "n")
	a.mustAct(t, s.ID, instance.ServerActionPoweron)
	a.setUserData(t, s.ID, "too late")
	a.mustAct(t, s.ID, instance.ServerActionReboot)
	hosts.want(t, "boot 1 ", "halt", "boot 2 ")
	info := a.Servers()[0]
	if info.FirstBoot != nil || string(info.UserData["cloud-init"]) != "too late" || info.Boots != 2 {
		t.Errorf("first boot %q, user data %q, %d boots", info.FirstBoot, info.UserData["cloud-init"], info.Boots)
	}
}

func TestDeleteOfAStoppedServerHalts(t *testing.T) {
	hosts := &recorder{}
	a := serve(t, Options{Hosts: hosts})
	s := a.create(t, "n")
	if err := a.instance.DeleteServer(&instance.DeleteServerRequest{ServerID: s.ID}); err != nil {
		t.Fatal(err)
	}
	hosts.want(t, "halt", "gone")
}

func TestSetStateDetail(t *testing.T) {
	a := serve(t, Options{})
	s := a.create(t, "n")
	a.SetStateDetail(s.ID, "ready")
	if got := a.get(t, s.ID).StateDetail; got != "" {
		t.Errorf("a stopped server says %q", got)
	}
	a.mustAct(t, s.ID, instance.ServerActionPoweron)
	a.SetStateDetail(s.ID, "ready")
	if got := a.get(t, s.ID).StateDetail; got != "ready" {
		t.Errorf("a running server says %q", got)
	}
}
