package fakecloud

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"
)

// metalServer is a dedicated server, from its order to its return.
type metalServer struct {
	object
	guestAddr   netip.Addr // where the metadata service knows its guest
	description string
	offer       metalOffer
	status      string
	bootType    string
	ping        string
	protected   bool
	userData    *[]byte
	domain      string
	ip          *address // its IPv4 address, nil until it is delivered
	install     *metalInstall
	flow        *pending
	boots       int    // of the installed system
	atFirst     []byte // user data that the installed system saw at its first boot
}

type metalInstall struct {
	os       metalOS
	hostname string
	sshKeys  []string
	status   string
}

type metalBody struct {
	ID             string            `json:"id"`
	OrganizationID string            `json:"organization_id"`
	ProjectID      string            `json:"project_id"`
	Name           string            `json:"name"`
	Description    string            `json:"description"`
	UpdatedAt      time.Time         `json:"updated_at"`
	CreatedAt      time.Time         `json:"created_at"`
	Status         string            `json:"status"`
	OfferID        string            `json:"offer_id"`
	OfferName      string            `json:"offer_name"`
	Tags           []string          `json:"tags"`
	IPs            []metalIPBody     `json:"ips"`
	Domain         string            `json:"domain"`
	BootType       string            `json:"boot_type"`
	Zone           string            `json:"zone"`
	Install        *metalInstallBody `json:"install"`
	PingStatus     string            `json:"ping_status"`
	Options        []string          `json:"options"`
	RescueServer   *string           `json:"rescue_server"`
	Protected      bool              `json:"protected"`
	UserData       *[]byte           `json:"user_data"`
}

type metalIPBody struct {
	ID                   string `json:"id"`
	Address              string `json:"address"`
	Reverse              string `json:"reverse"`
	Version              string `json:"version"`
	ReverseStatus        string `json:"reverse_status"`
	ReverseStatusMessage string `json:"reverse_status_message"`
}

type metalInstallBody struct {
	OSID               string   `json:"os_id"`
	Hostname           string   `json:"hostname"`
	SSHKeyIDs          []string `json:"ssh_key_ids"`
	Status             string   `json:"status"`
	User               string   `json:"user"`
	ServiceUser        string   `json:"service_user"`
	ServiceURL         string   `json:"service_url"`
	PartitioningSchema *string  `json:"partitioning_schema"`
}

func metalView(s *metalServer) metalBody {
	b := metalBody{
		ID: s.id, OrganizationID: DefaultOrganizationID, ProjectID: s.project, Name: s.name, Description: s.description,
		UpdatedAt: zulu(s.modified), CreatedAt: zulu(s.created), Status: s.status, OfferID: s.offer.id(), OfferName: s.offer.name,
		Tags: s.tags, IPs: []metalIPBody{}, Domain: s.domain, BootType: s.bootType, Zone: s.zone,
		PingStatus: s.ping, Options: []string{}, Protected: s.protected, UserData: s.userData,
	}
	if s.ip != nil {
		b.IPs = append(b.IPs, metalIPBody{ID: s.ip.id, Address: s.ip.ip.String(), Reverse: s.domain, Version: "IPv4", ReverseStatus: "active"})
	}
	if in := s.install; in != nil {
		b.Install = &metalInstallBody{OSID: in.os.id, Hostname: in.hostname, SSHKeyIDs: in.sshKeys, Status: in.status, User: in.os.user}
	}
	return b
}

func (c *Cloud) metalServer(q *request) (*metalServer, error) {
	s := c.inv.metal[q.id]
	if s == nil || s.zone != q.zone || !q.caller.sees(s.project) {
		return nil, metalNotFound()
	}
	return s, nil
}

func (c *Cloud) listMetal(q *request) (*response, error) {
	get, states := q.query.Get, commaList(q.query, "status")
	keep := func(s *metalServer) bool {
		lagging := c.listLag > 0 && time.Since(s.created) < c.listLag
		return !lagging && (len(states) == 0 || slices.Contains(states, s.status)) &&
			q.caller.visible(&s.object, get("project_id"), get("organization_id"), get("name"))
	}
	return countedList(q, "servers", c.inv.in(q.zone).metal.withTags(commaList(q.query, "tags")), keep, metalView)
}

type installSpec struct {
	OSID            string   `json:"os_id"`
	Hostname        string   `json:"hostname"`
	SSHKeyIDs       []string `json:"ssh_key_ids"`
	ServicePassword *string  `json:"service_password"`
}

// installFrom judges an install. That a system may want a service password is
// reported of the real API; the other refusals are inferred.
func (c *Cloud) installFrom(in installSpec) (*metalInstall, error) {
	system, found := findMetalOS(in.OSID)
	switch {
	case !found:
		return nil, metalNotFound()
	case system.servicePassword && in.ServicePassword == nil:
		return nil, metalRefusal(http.StatusBadRequest, "Missing service password")
	case len(in.SSHKeyIDs) == 0:
		return nil, metalRefusal(http.StatusBadRequest, "Missing SSH key")
	}
	for _, id := range in.SSHKeyIDs {
		if _, found := c.inv.sshKeys.byID(id); !found {
			return nil, notFound(resSSHKey, id)
		}
	}
	return &metalInstall{os: system, hostname: in.Hostname, sshKeys: in.SSHKeyIDs, status: "to_install"}, nil
}

func (c *Cloud) createMetal(q *request) (*response, error) {
	var in struct {
		OfferID        string `json:"offer_id"`
		ProjectID      string `json:"project_id"`
		OrganizationID string `json:"organization_id"`
		Name           string
		Description    string
		Tags           []string
		Install        *installSpec
		Protected      bool
		UserData       *[]byte `json:"user_data"` // base64
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	project, err := q.project(in.ProjectID, in.OrganizationID)
	if err != nil {
		return nil, err
	}
	offer, found := findMetalOffer(q.zone, func(o metalOffer) bool { return o.id() == in.OfferID })
	switch {
	case !found:
		return nil, metalNotFound()
	case in.UserData != nil && !offer.cloudInit(): // for ever, whatever the status says
		return nil, metalRefusal(http.StatusServiceUnavailable, "cloud-init is not supported on this offer")
	}
	var install *metalInstall
	if in.Install != nil {
		if install, err = c.installFrom(*in.Install); err != nil {
			return nil, err
		}
	}
	s := &metalServer{
		object: c.inv.newObject(in.Name, q.zone, project, in.Tags), description: in.Description, offer: offer,
		status: "ordered", bootType: "normal", ping: "ping_status_unknown", protected: in.Protected, userData: in.UserData, install: install,
	}
	c.addMetal(s)
	body := metalView(s) // "ordered" is answered even when nothing takes time
	c.deliver(s, q.outcome)
	return ok(body)
}

func (c *Cloud) addMetal(s *metalServer) {
	c.inv.metal[s.id] = s
	c.inv.zone(s.zone).metal.add(s)
	s.guestAddr = c.guests.assign(s)
}

func (c *Cloud) getMetal(q *request) (*response, error) {
	s, err := c.metalServer(q)
	if err != nil {
		return nil, err
	}
	if c.getLag > 0 && time.Since(s.created) < c.getLag {
		return nil, metalNotFound()
	}
	return ok(metalView(s))
}

func (c *Cloud) updateMetal(q *request) (*response, error) {
	s, err := c.metalServer(q)
	if err != nil {
		return nil, err
	}
	var in struct {
		Name        *string
		Description *string
		Tags        *[]string
		Protected   *bool
		UserData    *[]byte `json:"user_data"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.UserData != nil && !s.offer.cloudInit() {
		return nil, metalRefusal(http.StatusServiceUnavailable, "cloud-init is not supported on this offer")
	}
	set(&s.name, in.Name)
	set(&s.description, in.Description)
	set(&s.protected, in.Protected)
	if in.UserData != nil {
		s.userData = in.UserData
	}
	if in.Tags != nil {
		c.inv.zone(s.zone).metal.retag(s, *in.Tags)
	}
	s.modified = time.Now()
	return ok(metalView(s))
}

// delivered finds a server that takes actions.
func (c *Cloud) delivered(q *request) (*metalServer, error) {
	s, err := c.metalServer(q)
	if err == nil && !slices.Contains([]string{"ready", "stopped"}, s.status) {
		return nil, metalRefusal(http.StatusBadRequest, "Server is not delivered")
	}
	return s, err
}

func (c *Cloud) installMetal(q *request) (*response, error) {
	s, err := c.delivered(q)
	if err != nil {
		return nil, err
	}
	var in installSpec
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	install, err := c.installFrom(in)
	if err != nil {
		return nil, err
	}
	c.haltMetal(s)
	if s.boots > 0 && c.hosts != nil && !c.closed {
		c.hosts.Gone(s.id) // an install wipes the disks
	}
	s.boots, s.install = 0, install
	body := metalView(s)
	c.setUp(s, q.outcome)
	return ok(body)
}

func (c *Cloud) startMetal(q *request) (*response, error) {
	return c.moveMetal(q, "starting", c.delays.MetalStart, c.becomeReady)
}

func (c *Cloud) stopMetal(q *request) (*response, error) {
	return c.moveMetal(q, "stopping", c.delays.MetalStop, func(s *metalServer) { s.status, s.ping = "stopped", "ping_status_down" })
}

func (c *Cloud) rebootMetal(q *request) (*response, error) {
	return c.moveMetal(q, "stopping", c.delays.MetalReboot, c.becomeReady)
}

func (c *Cloud) moveMetal(q *request, through string, takes time.Duration, end func(*metalServer)) (*response, error) {
	s, err := c.delivered(q)
	if err != nil {
		return nil, err
	}
	if s.status != "stopped" {
		c.haltMetal(s)
	}
	s.status, s.modified = through, time.Now()
	body := metalView(s)
	c.proceedMetal(s, q.outcome, phase{takes, func() { end(s) }})
	return ok(body)
}

// deleteMetal answers with the server; seconds later it is a 404.
func (c *Cloud) deleteMetal(q *request) (*response, error) {
	s, err := c.metalServer(q)
	if err != nil {
		return nil, err
	}
	c.haltMetal(s)
	s.status, s.modified = "deleting", time.Now()
	body := metalView(s)
	c.proceedMetal(s, q.outcome, phase{c.delays.MetalDelete, func() { c.removeMetal(s) }})
	return ok(body)
}

// newMetalAddress is nil when the pool is empty.
func (c *Cloud) newMetalAddress() *address {
	ip, found := c.addresses.v4()
	if !found {
		return nil
	}
	return &address{id: uuid.NewString(), ip: ip, state: addressAttached}
}
