package fakecloud

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// updateServerBody has nil for what the request leaves alone.
type updateServerBody struct {
	Name              *string
	Tags              *[]string
	Volumes           *map[string]volumeTemplate
	BootType          *string  `json:"boot_type"`
	DynamicIPRequired *bool    `json:"dynamic_ip_required"`
	PublicIPs         []string `json:"public_ips"`
	Protected         *bool
	SecurityGroup     *struct{ ID string } `json:"security_group"`
	PlacementGroup    json.RawMessage      `json:"placement_group"`
	PrivateNICs       *[]string            `json:"private_nics"`
	CommercialType    *string              `json:"commercial_type"`
}

// updateServer judges every field before it changes any.
func (c *Cloud) updateServer(q *request) (*response, error) {
	s, err := c.server(q)
	if err != nil {
		return nil, err
	}
	var in updateServerBody
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	p := s.product
	if in.CommercialType != nil && *in.CommercialType != p.name {
		if s.state != StateStopped {
			return nil, stillInUse("instance should be powered off")
		}
		if p = c.types.find(q.zone, *in.CommercialType); p == nil || p.arch != s.product.arch {
			return nil, invalid(constraint("commercial_type", "not a valid value"))
		}
	}
	group := s.group
	if in.SecurityGroup != nil {
		if group, err = c.groupFor(q, s.project, in.SecurityGroup.ID); err != nil {
			return nil, err
		}
	}
	if err := in.unsupported(); err != nil {
		return nil, err
	}
	place, err := c.wantedPlacement(q, s, in.PlacementGroup)
	if err != nil {
		return nil, err
	}
	wanted := s.volumes
	if in.Volumes != nil {
		if wanted, err = c.wantedVolumes(q, s, *in.Volumes); err != nil {
			return nil, err
		}
	}
	if err := fitsAttached(maps.Values(wanted), p); err != nil {
		return nil, err
	}
	ips, err := c.wantedIPs(q, s, in.PublicIPs)
	if err != nil {
		return nil, err
	}

	s.product = p
	s.place(place)
	delete(s.group.servers, s.id)
	s.group = group
	group.servers[s.id] = s
	if in.Name != nil {
		s.name, s.hostname = *in.Name, hostname(*in.Name)
	}
	if in.Tags != nil {
		c.inv.zone(s.zone).servers.retag(s, *in.Tags)
	}
	if in.BootType != nil {
		s.bootType = *in.BootType
	}
	if in.DynamicIPRequired != nil {
		c.setDynamicIP(s, *in.DynamicIPRequired)
	}
	if in.Protected != nil {
		s.protected = *in.Protected
	}
	if in.Volumes != nil {
		c.setVolumes(s, wanted)
	}
	if in.PublicIPs != nil {
		c.setIPs(s, ips)
	}
	s.modified = time.Now()
	return ok(c.serverEnvelope(s))
}

// unsupported refuses what would otherwise be ignored in silence.
func (in *updateServerBody) unsupported() error {
	if in.BootType != nil && *in.BootType != "local" && *in.BootType != "rescue" {
		return invalid(constraint("boot_type", "not a valid value"))
	}
	if in.PrivateNICs != nil {
		return invalid(constraint("private_nics", "use the private_nics routes"))
	}
	return nil
}

// wantedPlacement is the group after the update: null clears it, a new one
// needs a server that is off.
func (c *Cloud) wantedPlacement(q *request, s *server, given json.RawMessage) (*placementGroup, error) {
	if len(given) == 0 {
		return s.placement, nil
	}
	var id string
	if err := json.Unmarshal(given, &id); err != nil {
		return nil, invalid(constraint("placement_group", "not a valid value"))
	}
	g, err := c.placement(q, id)
	if err == nil && g != nil && g != s.placement && s.state != StateStopped {
		return nil, stillInUse("instance should be powered off")
	}
	return g, err
}

// wantedVolumes resolves a whole new set of volumes: each names one that the
// server has or one that is free.
func (c *Cloud) wantedVolumes(q *request, s *server, in map[string]volumeTemplate) (map[string]*volume, error) {
	wanted := map[string]*volume{}
	for _, slot := range slices.Sorted(maps.Keys(in)) {
		if !slices.Contains(volumeSlots, slot) || in[slot].ID == "" {
			return nil, invalid(required("volumes." + slot + ".id")) // making volumes here is not part of this fake
		}
		v, err := c.anyVolume(q, in[slot].ID)
		if err != nil {
			return nil, err
		}
		if slices.Contains(slices.Collect(maps.Values(wanted)), v) {
			return nil, invalid(constraint("volumes."+slot+".id", "the volume is named twice"))
		}
		if v.server != s {
			if err := attachable(v, s); err != nil {
				return nil, err
			}
		}
		wanted[slot] = v
	}
	for _, v := range s.volumes {
		if !v.network() && s.state != StateStopped && !slices.Contains(slices.Collect(maps.Values(wanted)), v) {
			return nil, precondition(http.StatusBadRequest, "resource_still_in_use", "instance should be powered off")
		}
	}
	return wanted, nil
}

func (c *Cloud) setVolumes(s *server, wanted map[string]*volume) {
	keep := slices.Collect(maps.Values(wanted))
	for slot, v := range s.volumes {
		if !slices.Contains(keep, v) {
			c.detach(v, c.delays.DetachLive)
		}
		delete(s.volumes, slot)
	}
	for slot, v := range wanted {
		if v.server == s {
			s.volumes[slot] = v
		} else {
			c.attach(v, s, slot)
		}
	}
}

func (c *Cloud) wantedIPs(q *request, s *server, ids []string) ([]*flexibleIP, error) {
	var out []*flexibleIP
	for _, id := range ids {
		ip, err := c.flexibleIP(q, id)
		if err != nil {
			return nil, err
		}
		if ip.server != nil && ip.server != s {
			return nil, stillInUse("IP is attached to another server")
		}
		out = append(out, ip)
	}
	return out, nil
}

func (c *Cloud) setIPs(s *server, wanted []*flexibleIP) {
	for _, ip := range slices.Clone(s.ips) {
		if !slices.Contains(wanted, ip) {
			c.detachIP(ip)
		}
	}
	for _, ip := range wanted {
		if ip.server != s {
			c.attachIP(ip, s)
		}
	}
}
