package fakecloud

import (
	"bytes"
	"slices"
	"time"
)

// proceedMetal is proceed for phases that each modify the server.
func (c *Cloud) proceedMetal(s *metalServer, o Outcome, phases ...phase) {
	for i, p := range phases {
		phases[i].do = func() {
			p.do()
			s.modified = time.Now()
		}
	}
	c.proceed(&s.flow, o, phases...)
}

// deliver is the way from an order to a server: ready is not installed. What
// falls back is the install, not the delivery.
func (c *Cloud) deliver(s *metalServer, o Outcome) {
	arrive := func() {
		if c.stock[zoneType{s.zone, s.offer.name}] == Shortage {
			s.status = "out_of_stock"
			return
		}
		s.status, s.domain, s.ip = "ready", s.id+"."+s.zone+".baremetal.scw.cloud", c.newMetalAddress()
		if s.install != nil {
			c.setUp(s, o)
		}
	}
	c.proceedMetal(s, o,
		phase{c.delays.MetalDeliver / 5, func() { s.status = "delivering" }},
		phase{c.delays.MetalDeliver * 4 / 5, arrive})
}

// setUp installs the system. The server answers pings before it is done, and
// the outcome FallBack ends in an error.
func (c *Cloud) setUp(s *metalServer, o Outcome) {
	end := func() {
		if o == OutcomeFallBack {
			s.install.status = "error"
			return
		}
		s.install.status = "completed"
		s.atFirst = nil
		if s.userData != nil {
			s.atFirst = bytes.Clone(*s.userData)
		}
		c.bootMetal(s)
	}
	c.proceedMetal(s, o,
		phase{c.delays.MetalInstall / 10, func() { s.status, s.install.status = "ready", "installing" }},
		phase{c.delays.MetalInstall * 6 / 10, func() { s.ping = "ping_status_up" }},
		phase{c.delays.MetalInstall * 3 / 10, end})
}

// metalStatuses are those that the vendor documents.
var metalStatuses = []string{
	"delivering", "ready", "stopping", "stopped", "starting", "error", "deleting", "locked", "out_of_stock", "ordered", "resetting", "migrating",
}

// forceMetal is forceState for a dedicated server.
func (c *Cloud) forceMetal(s *metalServer, status string) {
	c.proceedMetal(s, OutcomeStuck)
	s.status, s.modified = status, time.Now()
}

func (c *Cloud) becomeReady(s *metalServer) {
	s.status, s.ping = "ready", "ping_status_up"
	if s.install != nil && s.install.status == "completed" {
		c.bootMetal(s)
	}
}

func (c *Cloud) bootMetal(s *metalServer) {
	s.boots++
	if c.hosts == nil || c.closed {
		return
	}
	g := Guest{
		ServerID: s.id, Name: s.name, Hostname: s.install.hostname, Zone: s.zone, CommercialType: s.offer.name, Arch: "x86_64",
		Image: s.install.os.name + " " + s.install.os.version, Project: s.project, Organization: DefaultOrganizationID,
		Tags: slices.Clone(s.tags), Boot: s.boots, MetadataSource: s.guestAddr.String(),
	}
	if s.userData != nil {
		g.UserData = bytes.Clone(*s.userData)
	}
	if s.ip != nil {
		g.PublicIP = s.ip.ip.String()
	}
	c.hosts.Boot(g)
}

func (c *Cloud) haltMetal(s *metalServer) {
	if c.hosts != nil && !c.closed {
		c.hosts.Halt(s.id)
	}
}

func (c *Cloud) removeMetal(s *metalServer) {
	c.cancel(s.flow)
	if s.ip != nil {
		c.release(s.ip)
	}
	c.guests.forget(s, s.guestAddr)
	delete(c.inv.metal, s.id)
	c.inv.zone(s.zone).metal.remove(s)
	if c.hosts != nil {
		c.hosts.Gone(s.id)
	}
	c.log.Info("metal server gone", "id", s.id, "name", s.name)
}

// MetalInfo is a dedicated server as a test looks at it.
type MetalInfo struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Zone          string    `json:"zone"`
	Project       string    `json:"project"`
	Offer         string    `json:"offer"`
	Status        string    `json:"status"`
	InstallStatus string    `json:"install_status"` // "" without an install
	Tags          []string  `json:"tags"`
	Created       time.Time `json:"created"`
	Boots         int       `json:"boots"`
	Hostname      string    `json:"hostname"` // of the install
	// MetadataSource is the address of its guest, see MapGuest.
	MetadataSource string `json:"metadata_source"`
	// UserData is what the API holds now, FirstBoot what the guest saw at the
	// first boot after its last install. Both may hold secrets, so the /debug pages
	// leave them out.
	UserData  []byte `json:"-"`
	FirstBoot []byte `json:"-"`
}

// Metal lists every dedicated server of every zone, oldest first.
func (c *Cloud) Metal() []MetalInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []MetalInfo{}
	for _, s := range bySerial(c.inv.metal) {
		info := MetalInfo{
			ID: s.id, Name: s.name, Zone: s.zone, Project: s.project, Offer: s.offer.name, Status: s.status,
			Tags: s.tags, Created: s.created, Boots: s.boots, FirstBoot: s.atFirst, MetadataSource: s.guestAddr.String(),
		}
		if s.userData != nil {
			info.UserData = bytes.Clone(*s.userData)
		}
		if s.install != nil {
			info.InstallStatus, info.Hostname = s.install.status, s.install.hostname
		}
		out = append(out, info)
	}
	return out
}
