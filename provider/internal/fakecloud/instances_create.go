package fakecloud

import (
	"crypto/rand"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

type createServerBody struct {
	Name              string
	CommercialType    string `json:"commercial_type"`
	Image             string
	Volumes           map[string]volumeTemplate
	DynamicIPRequired *bool    `json:"dynamic_ip_required"`
	PublicIP          string   `json:"public_ip"`
	PublicIPs         []string `json:"public_ips"`
	BootType          string   `json:"boot_type"`
	Organization      string
	Project           string
	Tags              []string
	SecurityGroup     string `json:"security_group"`
	PlacementGroup    string `json:"placement_group"`
	Protected         bool

	id string // of a server that existed before; "" mints one
}

type volumeTemplate struct {
	ID         string
	Name       string
	Size       uint64
	VolumeType string `json:"volume_type"`
	Boot       bool
}

// createServer makes a stopped server: there is no field here that starts one,
// and nothing that keeps a second request from making a second server.
func (c *Cloud) createServer(q *request) (*response, error) {
	var in createServerBody
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	s, err := c.makeServer(q, in)
	if err != nil {
		return nil, err
	}
	return created(c.serverEnvelope(s))
}

func (c *Cloud) makeServer(q *request, in createServerBody) (*server, error) {
	if err := in.missing(); err != nil {
		return nil, err
	}
	project, err := q.project(in.Project, in.Organization)
	if err != nil {
		return nil, err
	}
	p := c.types.find(q.zone, in.CommercialType)
	if p == nil { // inferred: no answer for an unknown or retired type is recorded
		return nil, invalid(constraint("commercial_type", "not a valid value"))
	}
	img, err := c.imageFor(q.zone, in.Image, p)
	if err != nil {
		return nil, err
	}
	ips, err := c.freeIPs(q, append(in.PublicIPs, in.PublicIP))
	if err != nil {
		return nil, err
	}
	group, err := c.groupFor(q, project, in.SecurityGroup)
	if err != nil {
		return nil, err
	}
	place, err := c.placement(q, in.PlacementGroup)
	if err != nil {
		return nil, err
	}
	plan, err := c.planVolumes(q, in.Volumes, img, p)
	if err != nil {
		return nil, err
	}
	if err := c.withinQuota(p); err != nil {
		return nil, err
	}
	switch in.BootType {
	case "":
		in.BootType = "local"
	case "local", "rescue":
	default:
		return nil, invalid(constraint("boot_type", "not a valid value"))
	}

	s := &server{
		object: c.inv.newObject(in.Name, q.zone, project, in.Tags), hostname: hostname(in.Name),
		product: p, image: img, state: StateStopped, protected: in.Protected, bootType: in.BootType,
		wantsIP: in.DynamicIPRequired == nil && len(ips) == 0 || in.DynamicIPRequired != nil && *in.DynamicIPRequired,
		volumes: map[string]*volume{}, userData: map[string][]byte{}, group: group, mac: randomMAC("de:00:00"),
	}
	if in.id != "" {
		s.id = in.id
	}
	for _, v := range plan {
		if v.existing == nil {
			v.existing = c.newVolume(v.name, q.zone, project, v.kind, v.size, nil)
		}
		c.attach(v.existing, s, v.slot)
		v.existing.boot = v.boot
	}
	for _, ip := range ips {
		c.attachIP(ip, s)
	}
	group.servers[s.id] = s
	s.place(place)
	c.inv.servers[s.id] = s
	s.guestAddr = c.guests.assign(s)
	c.inv.zone(q.zone).servers.add(s)
	c.log.Info("server made", "id", s.id, "name", s.name, "type", p.name, "zone", s.zone)
	return s, nil
}

func (in *createServerBody) missing() error {
	var details []errorDetail
	if in.Name == "" {
		details = append(details, required("name"))
	}
	if in.CommercialType == "" {
		details = append(details, required("commercial_type"))
	}
	if in.Image == "" && len(in.Volumes) == 0 {
		details = append(details, required("image"), required("volumes"))
	}
	if details == nil {
		return nil
	}
	return invalid(details...)
}

func (c *Cloud) withinQuota(p *product) error {
	quota, limited := c.quotas[p.name]
	if !limited {
		return nil
	}
	n := 0
	for _, s := range c.inv.servers {
		if s.product == p {
			n++
		}
	}
	if n < quota {
		return nil
	}
	return c.overQuota("cp_servers_type_"+strings.ReplaceAll(p.name, "-", "_"), quota, n)
}

func (c *Cloud) freeIPs(q *request, ids []string) ([]*flexibleIP, error) {
	var out []*flexibleIP
	for _, id := range ids {
		if id == "" {
			continue
		}
		ip, err := c.flexibleIP(q, id)
		if err != nil {
			return nil, err
		}
		if ip.server != nil {
			return nil, stillInUse("IP is attached to another server")
		}
		out = append(out, ip)
	}
	return out, nil
}

// plannedVolume is a volume that a create will attach, judged before anything
// is made.
type plannedVolume struct {
	slot, name, kind string
	size             uint64
	boot             bool
	existing         *volume
}

// planVolumes turns the request's volumes into what the API makes of them. The
// root, slot 0, comes from the image unless it names a volume.
func (c *Cloud) planVolumes(q *request, in map[string]volumeTemplate, img *image, p *product) ([]*plannedVolume, error) {
	if _, given := in["0"]; !given && img != nil {
		in = maps.Clone(in)
		if in == nil {
			in = map[string]volumeTemplate{}
		}
		in["0"] = volumeTemplate{}
	}
	var plan []*plannedVolume
	for _, slot := range slices.Sorted(maps.Keys(in)) {
		if !slices.Contains(volumeSlots, slot) {
			return nil, invalid(constraint("volumes", "an instance takes at most 16 volumes, with keys 0 to 15"))
		}
		t := in[slot]
		v := &plannedVolume{slot: slot, name: t.Name, kind: t.VolumeType, size: t.Size, boot: t.Boot}
		if t.ID != "" {
			existing, err := c.anyVolume(q, t.ID)
			if err != nil {
				return nil, err
			}
			if err := attachable(existing, nil); err != nil {
				return nil, err
			}
			if slices.ContainsFunc(plan, func(other *plannedVolume) bool { return other.existing == existing }) {
				return nil, invalid(constraint("volumes."+slot+".id", "the volume is named twice"))
			}
			v.existing, v.kind, v.size = existing, existing.kind, existing.size
			plan = append(plan, v)
			continue
		}
		if slot == "0" && img != nil {
			if err := v.fromImage(img, p); err != nil {
				return nil, err
			}
		}
		if v.size == 0 {
			return nil, invalid(required("volumes." + slot + ".size"))
		}
		plan = append(plan, v)
	}
	return plan, fits(plan, p)
}

func (v *plannedVolume) fromImage(img *image, p *product) error {
	kind, base := kindNetwork, "sbs_snapshot"
	if img.local {
		kind, base = kindLocal, "unified"
	}
	if v.kind == "" {
		v.kind = kind
	}
	if v.kind != kind {
		return legacyInvalid(fmt.Sprintf("cannot create a volume of type %s from a base of type %s", v.kind, base))
	}
	least := img.rootSize()
	switch {
	case v.size == 0 && img.local:
		v.size = max(p.localMax, least)
	case v.size == 0:
		v.size = least
	case v.size < least:
		return invalid(constraint("volumes.0.size", fmt.Sprintf("the root volume needs at least %d bytes", least)))
	}
	if v.name == "" {
		v.name = img.displayName
		if !img.local {
			v.name += "_sbs_volume_0"
		}
	}
	return nil
}

// fits checks kinds and sizes against what the type can hold.
func fits(plan []*plannedVolume, p *product) error {
	sizes := map[string]uint64{}
	for _, v := range plan {
		if v.kind != kindLocal && v.kind != kindScratch && v.kind != kindNetwork { // b_ssd and what never was
			return invalid(constraint("volumes."+v.slot+".volume_type", "not a valid value"))
		}
		sizes[v.kind] += v.size
	}
	return p.holds(sizes)
}

// fitsAttached checks the volumes that a server would have against a type.
func fitsAttached(volumes iter.Seq[*volume], p *product) error {
	sizes := map[string]uint64{}
	for v := range volumes {
		sizes[v.kind] += v.size
	}
	return p.holds(sizes)
}

// holds checks the bytes of each kind against the type's limits; network
// volumes have none.
func (p *product) holds(sizes map[string]uint64) error {
	for kind, limit := range map[string]uint64{kindLocal: p.localMax, kindScratch: p.scratchMax} {
		if sizes[kind] > limit {
			return invalid(constraint("volumes", fmt.Sprintf("%s takes at most %d bytes of %s, %d asked for", p.name, limit, kind, sizes[kind])))
		}
	}
	return nil
}

func randomMAC(prefix string) string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return fmt.Sprintf("%s:%02x:%02x:%02x", prefix, b[0], b[1], b[2])
}
