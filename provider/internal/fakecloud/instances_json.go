package fakecloud

import (
	"net/netip"
)

// serverBody has every key that the recordings always show, in their order.
type serverBody struct {
	ID                string         `json:"id"`
	Name              string         `json:"name"`
	Arch              string         `json:"arch"`
	CommercialType    string         `json:"commercial_type"`
	BootType          string         `json:"boot_type"`
	Organization      string         `json:"organization"`
	Project           string         `json:"project"`
	Hostname          string         `json:"hostname"`
	Image             *imageBody     `json:"image"`
	Volumes           map[string]any `json:"volumes"`
	Tags              []string       `json:"tags"`
	State             string         `json:"state"`
	Protected         bool           `json:"protected"`
	StateDetail       string         `json:"state_detail"`
	PublicIP          *addressBody   `json:"public_ip"`
	PublicIPs         []addressBody  `json:"public_ips"`
	MacAddress        string         `json:"mac_address"`
	RoutedIPEnabled   bool           `json:"routed_ip_enabled"`
	IPv6              *string        `json:"ipv6"`
	ExtraNetworks     []string       `json:"extra_networks"`
	DynamicIPRequired bool           `json:"dynamic_ip_required"`
	EnableIPv6        bool           `json:"enable_ipv6"`
	PrivateIP         *string        `json:"private_ip"`
	Created           stamp          `json:"creation_date"`
	Modified          stamp          `json:"modification_date"`
	Bootscript        *string        `json:"bootscript"`
	SecurityGroup     summaryBody    `json:"security_group"`
	Location          *location      `json:"location"`
	Maintenances      []string       `json:"maintenances"`
	AllowedActions    []string       `json:"allowed_actions"`
	PlacementGroup    *placementBody `json:"placement_group"`
	PrivateNICs       []nicBody      `json:"private_nics"`
	Zone              string         `json:"zone"`
	Filesystems       []string       `json:"filesystems"`
	EndOfService      bool           `json:"end_of_service"`
	DNS               string         `json:"dns"`
}

type summaryBody struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func summary(s *server) *summaryBody {
	if s == nil {
		return nil
	}
	return &summaryBody{ID: s.id, Name: s.name}
}

type addressBody struct {
	ID               string   `json:"id"`
	Address          string   `json:"address"`
	Dynamic          bool     `json:"dynamic"`
	Gateway          string   `json:"gateway"`
	Netmask          string   `json:"netmask"`
	Family           string   `json:"family"`
	ProvisioningMode string   `json:"provisioning_mode"`
	Tags             []string `json:"tags"`
	State            string   `json:"state"`
	IPAMID           string   `json:"ipam_id"`
}

// networkVolumeStub is all that a server tells of a network volume.
type networkVolumeStub struct {
	Boot       bool   `json:"boot"`
	VolumeType string `json:"volume_type"`
	ID         string `json:"id"`
	State      string `json:"state"`
	Zone       string `json:"zone"`
}

type attachedLocalVolume struct {
	localVolumeBody
	Boot bool `json:"boot"`
}

type serverEnvelope struct {
	Server serverBody `json:"server"`
}

func (c *Cloud) serverEnvelope(s *server) serverEnvelope { return serverEnvelope{c.serverView(s)} }

func (c *Cloud) serverView(s *server) serverBody {
	b := serverBody{
		ID: s.id, Name: s.name, Arch: s.product.arch, CommercialType: s.product.name, BootType: s.bootType,
		Organization: DefaultOrganizationID, Project: s.project, Hostname: s.hostname,
		Volumes: map[string]any{}, Tags: s.tags, State: s.state, Protected: s.protected, StateDetail: s.detail,
		PublicIPs: []addressBody{}, MacAddress: s.mac, RoutedIPEnabled: true, ExtraNetworks: []string{},
		DynamicIPRequired: s.wantsIP, Created: stamp(s.created), Modified: stamp(s.modified),
		SecurityGroup: summaryBody{ID: s.group.id, Name: s.group.name}, Location: s.location,
		Maintenances: []string{}, AllowedActions: s.allowedActions(), PrivateNICs: []nicBody{}, Zone: s.zone,
		Filesystems: []string{}, EndOfService: s.product.endOfService, DNS: s.id + ".pub.instances.scw.cloud",
	}
	if s.image != nil {
		image := s.image.view()
		b.Image = &image
	}
	if s.placement != nil {
		b.PlacementGroup = new(placementView(s.placement))
	}
	for slot, v := range s.volumes {
		if v.network() {
			b.Volumes[slot] = networkVolumeStub{Boot: v.boot, VolumeType: v.kind, ID: v.id, State: "available", Zone: v.zone}
		} else {
			b.Volumes[slot] = attachedLocalVolume{localVolumeView(v), v.boot}
		}
	}
	for _, ip := range s.ips {
		b.PublicIPs = append(b.PublicIPs, addressView(&ip.address, false, ip.tags))
	}
	if s.dynamic != nil {
		b.PublicIPs = append(b.PublicIPs, addressView(s.dynamic, true, []string{}))
	}
	if len(b.PublicIPs) > 0 {
		b.PublicIP = &b.PublicIPs[0]
	}
	for _, n := range s.nics {
		b.PrivateNICs = append(b.PrivateNICs, nicView(n, s))
	}
	return b
}

func addressView(a *address, dynamic bool, tags []string) addressBody {
	b := addressBody{
		ID: a.id, Address: a.ip.String(), Dynamic: dynamic, Gateway: "62.210.0.1", Netmask: "32",
		Family: "inet", ProvisioningMode: "dhcp", Tags: tags, State: a.state, IPAMID: a.id,
	}
	if a.ip.Is6() {
		b.Address = hostIn(a.ip).String()
		b.Gateway, b.Netmask, b.Family, b.ProvisioningMode = "fe80::dc00:ff:fe00:1", "64", "inet6", "slaac"
	}
	return b
}

// hostIn is the address a server takes in an IPv6 prefix.
func hostIn(prefix netip.Addr) netip.Addr { return prefix.Next() }
