package fakecloud

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// ServerInfo is a server as a test looks at it.
type ServerInfo struct {
	ID             string    `json:"id"`
	Name           string    `json:"name"`
	Zone           string    `json:"zone"`
	Project        string    `json:"project"`
	CommercialType string    `json:"commercial_type"`
	State          string    `json:"state"`
	StateDetail    string    `json:"state_detail"`
	Tags           []string  `json:"tags"`
	Created        time.Time `json:"created"`
	Boots          int       `json:"boots"`
	Protected      bool      `json:"protected"`
	Volumes        []string  `json:"volumes"`         // ids, by slot
	MetadataSource string    `json:"metadata_source"` // see MapGuest
	// UserData is what the API holds now; FirstBoot is the "cloud-init" value
	// that the guest saw, nil before the first power-on. Both may hold secrets,
	// so the /debug pages leave them out.
	UserData  map[string][]byte `json:"-"`
	FirstBoot []byte            `json:"-"`
}

// VolumeInfo is a volume of either plane.
type VolumeInfo struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Zone     string   `json:"zone"`
	Project  string   `json:"project"`
	Type     string   `json:"type"` // l_ssd, scratch or sbs_volume
	Size     uint64   `json:"size"`
	Status   string   `json:"status"`
	ServerID string   `json:"server_id"` // "" when nothing uses it; a server it is being detached from does not count
	Tags     []string `json:"tags"`
}

// Leak is something that bills and belongs to no server.
type Leak struct {
	Kind      string  `json:"kind"` // "volume", "ip" or "snapshot"
	ID        string  `json:"id"`
	Name      string  `json:"name"` // the address of an IP
	Zone      string  `json:"zone"`
	Type      string  `json:"type"`
	HourlyEUR float64 `json:"hourly_eur"`
}

// Prices of what stays behind, EUR an hour (documentation of 2025).
const (
	networkGBHour = networkGBHourNanos / 1e9
	localGBHour   = 0.000044
	ipv4Hour      = 0.004
	// snapshotGBHour is what a network volume costs: no price of snapshots is recorded.
	snapshotGBHour = networkGBHour
)

// Servers lists every server of every zone, oldest first.
func (c *Cloud) Servers() []ServerInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []ServerInfo{}
	for _, s := range bySerial(c.inv.servers) {
		info := ServerInfo{
			ID: s.id, Name: s.name, Zone: s.zone, Project: s.project, CommercialType: s.product.name,
			State: s.state, StateDetail: s.detail, Tags: s.tags, Created: s.created, Boots: s.boots, Protected: s.protected,
			Volumes: []string{}, MetadataSource: s.guestAddr.String(), UserData: maps.Clone(s.userData), FirstBoot: s.atFirst,
		}
		for _, slot := range volumeSlots {
			if v := s.volumes[slot]; v != nil {
				info.Volumes = append(info.Volumes, v.id)
			}
		}
		out = append(out, info)
	}
	return out
}

// Volumes lists every volume of both planes, oldest first.
func (c *Cloud) Volumes() []VolumeInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []VolumeInfo{}
	for _, v := range bySerial(c.inv.volumes) {
		info := VolumeInfo{
			ID: v.id, Name: v.name, Zone: v.zone, Project: v.project, Type: v.kind,
			Size: v.size, Status: v.status, Tags: v.tags,
		}
		if v.server != nil {
			info.ServerID = v.server.id
		}
		out = append(out, info)
	}
	return out
}

// Leaks lists what bills although no server uses it: volumes, addresses and
// snapshots, each oldest first. A volume that a server is just letting go of is
// among it. Private NICs go with their server and do not bill.
func (c *Cloud) Leaks() []Leak {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Leak{}
	for _, v := range bySerial(c.inv.volumes) {
		if v.server != nil {
			continue
		}
		rate := localGBHour
		if v.network() {
			rate = networkGBHour
		}
		if v.zone == "fr-par-3" {
			rate *= 1.5
		}
		out = append(out, Leak{Kind: "volume", ID: v.id, Name: v.name, Zone: v.zone, Type: v.kind, HourlyEUR: rate * float64(v.size) / gigabyte})
	}
	for _, ip := range bySerial(c.inv.ips) {
		if ip.server != nil {
			continue
		}
		leak := Leak{Kind: "ip", ID: ip.object.id, Name: ip.ip.String(), Zone: ip.zone, Type: ip.kind}
		if ip.ip.Is4() {
			leak.HourlyEUR = ipv4Hour
		}
		out = append(out, leak)
	}
	for _, s := range bySerial(c.inv.snapshots) {
		out = append(out, Leak{Kind: "snapshot", ID: s.id, Name: s.name, Zone: s.zone, Type: "sbs_snapshot", HourlyEUR: snapshotGBHour * float64(s.size) / gigabyte})
	}
	return out
}

func bySerial[T interface{ common() *object }](m map[string]T) []T {
	return slices.SortedFunc(maps.Values(m), func(a, b T) int { return cmp.Compare(a.common().serial, b.common().serial) })
}
