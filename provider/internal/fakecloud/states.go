package fakecloud

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// The states of a server, in the API's words.
const (
	StateRunning        = "running"
	StateStopped        = "stopped"
	StateStoppedInPlace = "stopped in place" // off, yet on its host and billed
	StateStarting       = "starting"
	StateStopping       = "stopping"
	StateLocked         = "locked" // held by an administrator; nothing moves it
)

// server is one instance.
type server struct {
	object
	hostname  string
	product   *product
	image     *image // nil when it boots from a volume
	state     string
	detail    string
	protected bool
	bootType  string
	wantsIP   bool // dynamic_ip_required
	dynamic   *address
	volumes   map[string]*volume
	ips       []*flexibleIP
	nics      []*privateNIC
	group     *securityGroup
	placement *placementGroup // nil for none
	userData  map[string][]byte
	mac       string
	location  *location
	guestAddr netip.Addr // where the metadata service knows its guest

	flow    *pending // the transition under way
	boots   int
	booted  bool   // a first power-on has happened
	atFirst []byte // the cloud-init user data as it was then
}

type location struct {
	ZoneID       string `json:"zone_id"`
	PlatformID   string `json:"platform_id"`
	ClusterID    string `json:"cluster_id"`
	HypervisorID string `json:"hypervisor_id"`
	NodeID       string `json:"node_id"`
}

// allowedActions depends on the state, and on the protection of a server that
// runs.
func (s *server) allowedActions() []string {
	switch s.state {
	case StateStopped:
		return []string{"poweron", "backup"}
	case StateRunning:
		if s.protected {
			return []string{"backup"}
		}
		return []string{"poweroff", "terminate", "reboot", "stop_in_place", "backup"}
	case StateStoppedInPlace:
		return []string{"poweron", "poweroff", "terminate", "reboot", "backup"}
	case StateStarting, StateStopping:
		return []string{"stop_in_place", "backup"}
	default:
		return []string{}
	}
}

// actionFrom says from which states an action is accepted.
var actionFrom = map[string][]string{
	"poweron":          {StateStopped, StateStoppedInPlace},
	"poweroff":         {StateRunning, StateStoppedInPlace},
	"terminate":        {StateRunning, StateStoppedInPlace},
	"reboot":           {StateRunning, StateStoppedInPlace},
	"stop_in_place":    {StateRunning, StateStarting},
	"backup":           nil, // not part of this fake
	"enable_routed_ip": nil, // all addresses are routed already
}

// refused says why a server does not take an action.
func (c *Cloud) refused(s *server, action string) error {
	from, known := actionFrom[action]
	switch {
	case !known:
		return invalid(constraint("action", "not a valid value"))
	case s.state == StateLocked:
		return locked(s.id)
	case action == "backup":
		return &apiError{status: http.StatusNotImplemented, body: errorBody{Message: "this fake makes no backups"}}
	case action == "enable_routed_ip":
		return c.wrongState("server already uses routed IPs")
	case action == "poweron" && !slices.Contains(from, s.state):
		return c.wrongState("server should be stopped")
	case !slices.Contains(from, s.state):
		return c.wrongState("server should be running")
	case action != "poweron" && s.protected:
		return precondition(http.StatusBadRequest, "protected_resource", "server is protected")
	}
	return nil
}

// act starts an action, or says why not. What the API answers next, the first
// GET included, already shows the transitional state.
func (c *Cloud) act(s *server, action string, o Outcome) error {
	if err := c.refused(s, action); err != nil {
		return err
	}
	switch action {
	case "poweron":
		return c.powerOn(s, o)
	case "poweroff":
		c.halt(s, "stopping")
		c.proceed(&s.flow, o, phase{c.delays.PowerOff, func() { c.becomeStopped(s) }})
	case "terminate":
		c.halt(s, "terminating")
		c.proceed(&s.flow, o,
			phase{c.delays.Terminate * 2 / 5, func() { c.detachNetworkVolumes(s, c.delays.DetachTerminated) }},
			phase{c.delays.Terminate * 3 / 5, func() { c.removeServer(s, true) }})
	case "reboot":
		c.halt(s, "rebooting")
		c.proceed(&s.flow, o,
			phase{c.delays.Reboot * 7 / 8, func() { c.enter(s, StateStarting, "rebooting") }},
			phase{c.delays.Reboot / 8, func() { c.becomeRunning(s) }})
	case "stop_in_place":
		c.halt(s, "stopping in place")
		c.proceed(&s.flow, o, phase{c.delays.StopInPlace, func() { c.enter(s, StateStoppedInPlace, "stopped in place") }})
	}
	return nil
}

// phase is one leg of a transition: what happens after a delay.
type phase struct {
	after time.Duration
	do    func()
}

// proceed runs the phases one after the other as a server's only transition,
// which flow is.
func (c *Cloud) proceed(flow **pending, o Outcome, phases ...phase) {
	c.cancel(*flow)
	*flow = nil
	if o == OutcomeStuck || len(phases) == 0 {
		return
	}
	next := c.after(phases[0].after, func() {
		*flow = nil
		phases[0].do()
		if len(phases) > 1 {
			c.proceed(flow, OutcomeNormal, phases[1:]...)
		}
	})
	if next != nil { // nil after a phase that took no time, which has set the next
		*flow = next
	}
}

func (c *Cloud) enter(s *server, state, detail string) {
	s.state, s.detail, s.modified = state, detail, time.Now()
	c.log.Info("server state", "id", s.id, "name", s.name, "state", state, "detail", detail)
}

func (c *Cloud) powerOn(s *server, o Outcome) error {
	resumed := s.state == StateStoppedInPlace
	if !resumed && c.stock[zoneType{s.zone, s.product.name}] == Shortage {
		return outOfStock(s.product.name)
	}
	if !s.booted {
		s.booted, s.atFirst = true, bytes.Clone(s.userData["cloud-init"])
	}
	phases := []phase{
		{c.delays.PowerOn / 5, func() { c.enter(s, StateStarting, "provisioning node") }},
		{c.delays.PowerOn * 4 / 5, func() { c.becomeRunning(s) }},
	}
	if resumed {
		c.enter(s, StateStarting, "stopped in place")
		phases = []phase{{c.delays.PowerOn, func() { c.becomeRunning(s) }}}
	} else {
		c.enter(s, StateStarting, "allocating node")
		s.location = randomLocation(s.zone)
		if s.wantsIP && s.dynamic == nil {
			s.dynamic = c.newDynamicAddress()
		}
	}
	if o == OutcomeFallBack {
		phases[len(phases)-1].do = func() { c.becomeStopped(s) }
	}
	c.proceed(&s.flow, o, phases...)
	return nil
}

// becomeRunning: the machine's process has started, the guest has not. The
// detail stays "booting kernel", as on real servers whose guest never reports.
func (c *Cloud) becomeRunning(s *server) {
	c.enter(s, StateRunning, "booting kernel")
	s.boots++
	if s.dynamic != nil && s.dynamic.state == addressPending {
		c.bringUp(s.dynamic)
	}
	if c.hosts == nil || c.closed {
		return
	}
	g := Guest{
		ServerID: s.id, Name: s.name, Hostname: s.hostname, Zone: s.zone,
		CommercialType: s.product.name, Arch: s.product.arch,
		Project: s.project, Organization: DefaultOrganizationID,
		Tags: slices.Clone(s.tags), UserData: bytes.Clone(s.atFirst), Boot: s.boots,
		MetadataSource: s.guestAddr.String(),
	}
	if s.image != nil {
		g.Image = s.image.displayName
	}
	for _, a := range s.addresses() {
		if a.ip.Is4() {
			g.PublicIP = a.ip.String()
			break
		}
	}
	c.hosts.Boot(g)
}

func (c *Cloud) becomeStopped(s *server) {
	c.enter(s, StateStopped, "")
	s.location = nil
	if s.dynamic != nil {
		c.release(s.dynamic)
		s.dynamic = nil
	}
}

func (c *Cloud) halt(s *server, detail string) {
	c.enter(s, StateStopping, detail)
	c.haltGuest(s)
}

func (c *Cloud) haltGuest(s *server) {
	if c.hosts != nil && !c.closed {
		c.hosts.Halt(s.id)
	}
}

// removeServer makes the server a 404. Its network volumes and addresses stay;
// its local volumes go with a terminate only.
func (c *Cloud) removeServer(s *server, terminated bool) {
	c.cancel(s.flow)
	for slot, v := range s.volumes {
		switch {
		case v.network():
			c.detach(v, c.delays.Detach)
		case terminated:
			c.removeVolume(v)
		default:
			v.server, v.modified = nil, time.Now()
		}
		delete(s.volumes, slot)
	}
	for _, ip := range slices.Clone(s.ips) {
		c.detachIP(ip)
	}
	for _, n := range s.nics {
		c.leave(n)
	}
	s.place(nil)
	if s.dynamic != nil {
		c.release(s.dynamic)
	}
	c.guests.forget(s, s.guestAddr)
	delete(s.group.servers, s.id)
	delete(c.inv.servers, s.id)
	c.inv.zone(s.zone).servers.remove(s)
	if c.hosts != nil {
		c.hosts.Gone(s.id)
	}
	c.log.Info("server gone", "id", s.id, "name", s.name)
}

// detachNetworkVolumes happens seconds before a terminated server is gone.
func (c *Cloud) detachNetworkVolumes(s *server, takes time.Duration) {
	for slot, v := range s.volumes {
		if v.network() {
			c.detach(v, takes)
			delete(s.volumes, slot)
		}
	}
}

// GuestShutdown is what a guest's own "shutdown -h" does: the server ends
// stopped in place, still billed. It reports whether the server was running.
func (c *Cloud) GuestShutdown(serverID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.inv.servers[serverID]
	if s == nil || s.state != StateRunning {
		return false
	}
	c.guestShutdown(s)
	return true
}

func (c *Cloud) guestShutdown(s *server) {
	c.haltGuest(s)
	c.enter(s, StateStoppedInPlace, "stopped in place")
}

// SetStateDetail is the guest's own report: "booted" or "ready". It is ignored
// unless the server runs.
func (c *Cloud) SetStateDetail(serverID, detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.inv.servers[serverID]; s != nil && s.state == StateRunning {
		s.detail = detail
	}
}

// ForceState puts a server into a state and drops its transition, whatever it
// was: an administrator's lock, or the end of one that is stuck. Hosts are not
// told. Of a dedicated server it is the status, which has no detail.
func (c *Cloud) ForceState(serverID, state, detail string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.inv.metal[serverID]; m != nil {
		c.forceMetal(m, state)
		return nil
	}
	s := c.inv.servers[serverID]
	if s == nil {
		return fmt.Errorf("server %s: %w", serverID, notFound(resServer, serverID))
	}
	c.forceState(s, state, detail)
	return nil
}

func (c *Cloud) forceState(s *server, state, detail string) {
	c.proceed(&s.flow, OutcomeStuck)
	if state == StateStopped {
		c.becomeStopped(s)
	}
	c.enter(s, state, detail)
}

func randomLocation(zone string) *location {
	n := func(limit int) string { return strconv.Itoa(1 + rand.IntN(limit)) }
	return &location{ZoneID: zone, PlatformID: "14", ClusterID: n(60), HypervisorID: n(900), NodeID: n(99)}
}
