package fakecloud

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

func TestUserData(t *testing.T) {
	a := serve(t, Options{})
	s := a.create(t, "n")
	a.setUserData(t, s.ID, "#!/bin/sh\necho \"ü\"\n")
	list, err := a.instance.ListServerUserData(&instance.ListServerUserDataRequest{ServerID: s.ID})
	if err != nil || len(list.UserData) != 1 || list.UserData[0] != "cloud-init" {
		t.Errorf("keys %v, %v", list, err)
	}
	r, err := a.instance.GetServerUserData(&instance.GetServerUserDataRequest{ServerID: s.ID, Key: "cloud-init"})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(r); string(got) != "#!/bin/sh\necho \"ü\"\n" {
		t.Errorf("came back as %q", got)
	}
	for range 2 { // the second is a 404
		err = a.instance.DeleteServerUserData(&instance.DeleteServerUserDataRequest{ServerID: s.ID, Key: "cloud-init"})
	}
	_, errGet := a.instance.GetServerUserData(&instance.GetServerUserDataRequest{ServerID: s.ID, Key: "cloud-init"})
	_, errServer := a.instance.GetServerUserData(&instance.GetServerUserDataRequest{ServerID: "3f6c2f0e-7c0b-4f65-9f0a-6f0a2b1c9d1e", Key: "cloud-init"})
	// None of these is the SDK's ResourceNotFoundError: they are text/plain.
	for what, err := range map[string]error{"second delete": err, "missing key": errGet, "missing server": errServer} {
		var plain *scw.ResponseError
		if !errors.As(err, &plain) || plain.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %#v", what, err)
		}
	}
}

func TestFlexibleIPs(t *testing.T) {
	a := serve(t, Options{Scale: 1})
	made, err := a.instance.CreateIP(&instance.CreateIPRequest{Type: instance.IPTypeRoutedIPv4, Tags: []string{"t"}})
	if err != nil || made.IP.State != instance.IPStateDetached {
		t.Fatal(made, err)
	}
	if leaks := a.Leaks(); len(leaks) != 1 || leaks[0].HourlyEUR != 0.004 {
		t.Errorf("leaks %+v, want the address", leaks)
	}
	s := a.createWith(t, &instance.CreateServerRequest{Name: "n", PublicIPs: &[]string{made.IP.ID}})
	if len(s.PublicIPs) != 1 || s.PublicIPs[0].State != instance.ServerIPStateAttached || s.PublicIPs[0].Dynamic {
		t.Errorf("addresses %+v, want one attached at once", s.PublicIPs)
	}
	byAddress, err := a.instance.GetIP(&instance.GetIPRequest{IP: made.IP.Address.String()})
	if err != nil || byAddress.IP.ID != made.IP.ID || byAddress.IP.Server.ID != s.ID {
		t.Errorf("by address: %+v, %v", byAddress, err)
	}

	six, err := a.instance.CreateIP(&instance.CreateIPRequest{Type: instance.IPTypeRoutedIPv6})
	if err != nil || six.IP.Prefix.String() == "<nil>" {
		t.Fatalf("%+v, %v", six, err)
	}
	if err := a.ForceState(s.ID, StateRunning, ""); err != nil {
		t.Fatal(err)
	}
	up, err := a.instance.UpdateIP(&instance.UpdateIPRequest{IP: six.IP.ID, Server: &instance.NullableStringValue{Value: s.ID}, Tags: &[]string{"six"}})
	if err != nil || up.IP.State != instance.IPStatePending {
		t.Errorf("attached to a running server: %+v, %v, want pending first", up, err)
	}
	for _, ip := range a.get(t, s.ID).PublicIPs {
		if ip.Family == "inet6" && !netip.MustParsePrefix(six.IP.Prefix.String()).Contains(netip.MustParseAddr(ip.Address.String())) {
			t.Errorf("address %s is not in %s", ip.Address, six.IP.Prefix)
		}
	}
	wantErr(t, func() error {
		_, err := a.instance.UpdateIP(&instance.UpdateIPRequest{IP: six.IP.ID, Reverse: &instance.NullableStringValue{Value: "x.example"}})
		return err
	}(), "reverse")
	down, err := a.instance.UpdateIP(&instance.UpdateIPRequest{IP: six.IP.ID, Server: &instance.NullableStringValue{Null: true}})
	if err != nil || down.IP.Server != nil {
		t.Errorf("detached: %+v, %v", down, err)
	}
	list, err := a.instance.ListIPs(&instance.ListIPsRequest{Tags: []string{"six"}}, scw.WithAllPages())
	if err != nil || len(list.IPs) != 1 {
		t.Errorf("by tag: %v, %v", list, err)
	}
	if _, err := a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, PublicIPs: &[]string{six.IP.ID}}); err != nil {
		t.Fatal(err)
	}
	if got, err := a.instance.GetIP(&instance.GetIPRequest{IP: made.IP.ID}); err != nil || got.IP.Server != nil {
		t.Errorf("the replaced address: %+v, %v", got, err)
	}
	for _, id := range []string{made.IP.ID, six.IP.ID} { // the second is attached
		if err := a.instance.DeleteIP(&instance.DeleteIPRequest{IP: id}); err != nil {
			t.Error(err)
		}
	}
	if n := len(a.get(t, s.ID).PublicIPs); n != 0 {
		t.Errorf("%d addresses left on the server", n)
	}
}

func TestAddressesRunOut(t *testing.T) {
	var pool addressPool
	seen := map[netip.Addr]bool{}
	for {
		a, found := pool.v4()
		if !found {
			break
		}
		if seen[a] || !netip.MustParsePrefix("198.18.0.0/15").Contains(a) {
			t.Fatalf("%s: handed out twice or outside", a)
		}
		seen[a] = true
	}
	if want := poolSize - 2*512; len(seen) != want {
		t.Errorf("%d addresses, want %d", len(seen), want)
	}
	freed := netip.MustParseAddr("198.19.7.9")
	delete(pool.used, freed)
	if a, found := pool.v4(); !found || a != freed {
		t.Errorf("%s, %v, want the freed one", a, found)
	}
}

func TestPrivateNICs(t *testing.T) {
	a := serve(t, Options{})
	s := a.create(t, "n")
	network := a.directNetwork(t)
	var first *instance.PrivateNIC
	for range maxNICs {
		resp, err := a.instance.CreatePrivateNIC(&instance.CreatePrivateNICRequest{ServerID: s.ID, PrivateNetworkID: network, Tags: []string{"t"}})
		if err != nil {
			t.Fatal(err)
		}
		first = resp.PrivateNic
	}
	if first.State != instance.PrivateNICStateAvailable || !strings.HasPrefix(first.MacAddress, "02:00:00:") || len(first.IpamIPIDs) != 2 {
		t.Errorf("NIC %+v", first)
	}
	var quota *scw.QuotasExceededError
	if _, err := a.instance.CreatePrivateNIC(&instance.CreatePrivateNICRequest{ServerID: s.ID, PrivateNetworkID: network}); !errors.As(err, &quota) {
		t.Errorf("the ninth: %#v", err)
	}
	up, err := a.instance.UpdatePrivateNIC(&instance.UpdatePrivateNICRequest{ServerID: s.ID, PrivateNicID: first.ID, Tags: &[]string{"u"}})
	if err != nil || len(up.Tags) != 1 || up.Tags[0] != "u" {
		t.Errorf("updated %+v, %v", up, err)
	}
	list, err := a.instance.ListPrivateNICs(&instance.ListPrivateNICsRequest{ServerID: s.ID, Tags: []string{"t"}}, scw.WithAllPages())
	if err != nil || len(list.PrivateNics) != maxNICs-1 {
		t.Errorf("by tag: %d, %v", len(list.PrivateNics), err)
	}
	if err := a.instance.DeletePrivateNIC(&instance.DeletePrivateNICRequest{ServerID: s.ID, PrivateNicID: first.ID}); err != nil {
		t.Error(err)
	}
	var missing *scw.ResourceNotFoundError
	if _, err := a.instance.GetPrivateNIC(&instance.GetPrivateNICRequest{ServerID: s.ID, PrivateNicID: first.ID}); !errors.As(err, &missing) || missing.Resource != "instance_private_nic" {
		t.Errorf("a deleted NIC: %#v", err)
	}
	if n := len(a.get(t, s.ID).PrivateNics); n != maxNICs-1 {
		t.Errorf("the server shows %d NICs", n)
	}
}

func TestSecurityGroups(t *testing.T) {
	a := serve(t, Options{})
	s := a.create(t, "n")
	list, err := a.instance.ListSecurityGroups(&instance.ListSecurityGroupsRequest{Project: new(DefaultProjectID), ProjectDefault: new(true)})
	if err != nil || len(list.SecurityGroups) != 1 {
		t.Fatalf("%v, %v, want the default group", list, err)
	}
	g := list.SecurityGroups[0]
	if g.Name != "Default security group" || g.ID != s.SecurityGroup.ID || !g.Stateful || !g.EnableDefaultSecurity ||
		g.InboundDefaultPolicy != "accept" || len(g.Servers) != 1 {
		t.Errorf("default group %+v", g)
	}
	own, err := a.instance.CreateSecurityGroup(&instance.CreateSecurityGroupRequest{Name: "own", InboundDefaultPolicy: "drop", OutboundDefaultPolicy: "accept", Stateful: true})
	if err != nil || own.SecurityGroup.InboundDefaultPolicy != "drop" {
		t.Fatalf("%+v, %v", own, err)
	}
	if _, err := a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, SecurityGroup: &instance.SecurityGroupTemplate{ID: own.SecurityGroup.ID}}); err != nil {
		t.Fatal(err)
	}
	remove := func(id string) error {
		return a.instance.DeleteSecurityGroup(&instance.DeleteSecurityGroupRequest{SecurityGroupID: id})
	}
	up, err := a.instance.UpdateSecurityGroup(&instance.UpdateSecurityGroupRequest{SecurityGroupID: own.SecurityGroup.ID, Description: new("mine"), Tags: &[]string{"t"}})
	if err != nil || up.SecurityGroup.Description != "mine" || up.SecurityGroup.Name != "own" {
		t.Errorf("updated %+v, %v", up, err)
	}
	got, err := a.instance.GetSecurityGroup(&instance.GetSecurityGroupRequest{SecurityGroupID: own.SecurityGroup.ID})
	if err != nil || len(got.SecurityGroup.Tags) != 1 || len(got.SecurityGroup.Servers) != 1 {
		t.Errorf("%+v, %v, want one tag and one server", got, err)
	}
	_, err = a.instance.UpdateSecurityGroup(&instance.UpdateSecurityGroupRequest{SecurityGroupID: own.SecurityGroup.ID, InboundDefaultPolicy: "maybe"})
	wantErr(t, err, "inbound_default_policy")
	wantErr(t, remove(own.SecurityGroup.ID), "security group is used")
	wantErr(t, remove(g.ID), "default security group stays")
	if err := a.instance.DeleteServer(&instance.DeleteServerRequest{ServerID: s.ID}); err != nil {
		t.Fatal(err)
	}
	if err := remove(own.SecurityGroup.ID); err != nil {
		t.Error(err)
	}
}

func TestUpdateServer(t *testing.T) {
	a := serve(t, Options{})
	s := a.create(t, "n", "a", "b")
	update := func(req instance.UpdateServerRequest) (*instance.Server, error) {
		req.ServerID = s.ID
		resp, err := a.instance.UpdateServer(&req)
		if err != nil {
			return nil, err
		}
		return resp.Server, nil
	}
	got, err := update(instance.UpdateServerRequest{Name: new("New_Name"), CommercialType: new("PLAY2-MICRO"), Protected: new(true)})
	if err != nil || got.Hostname != "new-name" || got.CommercialType != "PLAY2-MICRO" || !got.Protected {
		t.Errorf("%+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, got.Tags); diff != "" {
		t.Errorf("tags that the request left out (-want +got):\n%s", diff)
	}
	if got, err = update(instance.UpdateServerRequest{Tags: &[]string{}}); err != nil || len(got.Tags) != 0 {
		t.Errorf("an empty list clears: %v, %v", got.Tags, err)
	}
	a.mustAct(t, s.ID, instance.ServerActionPoweron)
	for _, want := range []int{1, 1, 0} {
		if got, err = update(instance.UpdateServerRequest{DynamicIPRequired: new(want == 1)}); err != nil || len(got.PublicIPs) != want {
			t.Errorf("%d addresses, %v, want %d", len(got.PublicIPs), err, want)
		}
	}
	wantErr(t, a.act(s.ID, instance.ServerActionReboot), "protected")
	if _, err := update(instance.UpdateServerRequest{Protected: new(false)}); err != nil {
		t.Fatal(err)
	}
	a.mustAct(t, s.ID, instance.ServerActionPoweroff)
	for what, req := range map[string]instance.UpdateServerRequest{
		"boot_type":       {BootType: new(instance.BootType("floppy"))},
		"private_nics":    {PrivateNics: &[]string{"x"}},
		"placement_group": {PlacementGroup: &instance.NullableStringValue{Value: "x"}},
		"commercial_type": {CommercialType: new("BASIC2-A2C-4G")},
	} {
		_, err := update(req)
		wantErr(t, err, what)
	}
	if _, err := update(instance.UpdateServerRequest{PlacementGroup: &instance.NullableStringValue{Null: true}}); err != nil {
		t.Errorf("null clears a placement group: %v", err)
	}
}

func TestCatalog(t *testing.T) {
	cat := loadCatalog()
	// Types by zone, as counted in the recordings.
	for zone, want := range map[string]int{
		"fr-par-1": 148, "fr-par-2": 135, "fr-par-3": 41, "nl-ams-1": 125, "nl-ams-2": 92, "nl-ams-3": 41,
		"pl-waw-1": 40, "pl-waw-2": 61, "pl-waw-3": 41, "it-mil-1": 46,
		"it-mil-3": 46, "xx-new-1": 148, // no recording: the region's first zone, then fr-par-1
	} {
		if got := len(cat.in(zone)); got != want {
			t.Errorf("%s: %d types, want %d", zone, got, want)
		}
	}
	pop := cat.find("fr-par-3", "POP2-2C-8G")
	if got := pop.priceIn("fr-par-3"); got != 0.11025 {
		t.Errorf("POP2-2C-8G in fr-par-3: %v", got)
	}
	for _, p := range cat.all {
		if p.hourlyEUR <= 0 || p.vcpus == 0 || p.ramBytes < 1<<30 || len(p.zones) == 0 || p.arch != "x86_64" && p.arch != "arm64" {
			t.Errorf("%+v", p)
		}
		if model, memory := p.gpuModel(); (p.gpus > 0) != (model != "" && memory > 0) {
			t.Errorf("%s: %d GPUs, model %q with %d bytes", p.name, p.gpus, model, memory)
		}
	}
	for _, row := range [][]string{
		{"T", "x86_64", "many", "1", "0", "0.1", "0", "0", "false", "", "fr-par-1"},
		{"T", "x86_64", "1", "1", "0", "cheap", "0", "0", "false", "", "fr-par-1"},
		{"T", "x86_64", "1", "1", "0", "0.1", "0", "0", "soon", "", "fr-par-1"},
	} {
		if _, err := parseProduct(row); err == nil {
			t.Errorf("%v parsed", row)
		}
	}
}
