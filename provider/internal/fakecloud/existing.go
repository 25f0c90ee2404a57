package fakecloud

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/google/uuid"
)

// Existing is a server that was there before the Cloud was: one that an earlier
// process made and whose id somebody still knows.
type Existing struct {
	ID             string // UUID
	Zone           string
	Project        string
	Name           string
	CommercialType string
	Image          string // label or UUID
	Tags           []string
	UserData       []byte // as it was at the first power-on
	// Hostname and Installed are of Elastic Metal: the install's, and whether it is
	// done. Without an install the server has only been delivered.
	Hostname  string
	Installed bool
}

// Restore puts a running server into the inventory and boots its host. It fails
// when the server could not have been made here, or is there already.
func (c *Cloud) Restore(e Existing) error {
	if err := uuid.Validate(e.ID); err != nil {
		return fmt.Errorf("restore server %q: %w", e.ID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inv.servers[e.ID] != nil {
		return fmt.Errorf("restore server %s: it exists", e.ID)
	}
	q := &request{Request: &http.Request{}, zone: e.Zone, caller: &caller{scope: []grant{{}}}} // a key that may do everything
	s, err := c.makeServer(q, createServerBody{
		id: e.ID, Name: e.Name, CommercialType: e.CommercialType, Image: e.Image, Tags: e.Tags,
		Project: e.Project,
	})
	if err != nil {
		return fmt.Errorf("restore server %s: %w", e.ID, err)
	}
	s.booted, s.atFirst = true, bytes.Clone(e.UserData)
	s.location = randomLocation(s.zone)
	if s.wantsIP {
		s.dynamic = c.newDynamicAddress()
	}
	c.becomeRunning(s)
	return nil
}

// RestoreMetal is Restore for a delivered server of Elastic Metal, under the
// name of its hourly offer. The system on it is
// whichever the catalogue names first.
func (c *Cloud) RestoreMetal(e Existing) error {
	if err := uuid.Validate(e.ID); err != nil {
		return fmt.Errorf("restore server %q: %w", e.ID, err)
	}
	offer, found := findMetalOffer(e.Zone, func(o metalOffer) bool { return o.name == e.CommercialType && !o.monthly })
	if !found {
		return fmt.Errorf("restore server %s: %s sells no %q", e.ID, e.Zone, e.CommercialType)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inv.metal[e.ID] != nil {
		return fmt.Errorf("restore server %s: it exists", e.ID)
	}
	s := &metalServer{
		object: c.inv.newObject(e.Name, e.Zone, e.Project, e.Tags), offer: offer,
		status: "ready", bootType: "normal", ping: "ping_status_up", userData: &e.UserData,
	}
	s.id = e.ID
	s.domain, s.ip = s.id+"."+s.zone+".baremetal.scw.cloud", c.newMetalAddress()
	if e.Installed {
		s.install = &metalInstall{os: metalSystems[0], hostname: e.Hostname, status: "completed"}
		s.atFirst = bytes.Clone(e.UserData)
	}
	c.addMetal(s)
	if e.Installed {
		c.bootMetal(s)
	}
	return nil
}
