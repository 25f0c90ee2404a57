package fakecloud

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	addressPending  = "pending"
	addressAttached = "attached"
	addressDetached = "detached"
)

// address is one public address, of a flexible IP or given for the time a
// server is on.
type address struct {
	id    string
	ip    netip.Addr
	state string
	rise  *pending
}

// flexibleIP is an address that lives on its own and is billed until deleted.
type flexibleIP struct {
	object
	address
	kind   string // routed_ipv4 or routed_ipv6
	server *server
}

// addressPool hands out addresses of the benchmarking range (RFC 2544) and,
// as /64 prefixes, of the documentation range (RFC 3849): they lead nowhere.
type addressPool struct {
	used   map[netip.Addr]struct{}
	next   uint32
	nextV6 uint32
}

const poolSize = 1 << 17 // 198.18.0.0/15

func (p *addressPool) v4() (netip.Addr, bool) {
	if p.used == nil {
		p.used = map[netip.Addr]struct{}{}
	}
	for range poolSize {
		n := p.next % poolSize
		p.next++
		a := netip.AddrFrom4([4]byte{198, 18 + byte(n>>16), byte(n >> 8), byte(n)})
		if _, taken := p.used[a]; !taken && byte(n) != 0 && byte(n) != 255 {
			p.used[a] = struct{}{}
			return a, true
		}
	}
	return netip.Addr{}, false
}

func (p *addressPool) v6() netip.Addr {
	p.nextV6++
	n := p.nextV6
	return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 4: byte(n >> 24), 5: byte(n >> 16), 6: byte(n >> 8), 7: byte(n)})
}

// newDynamicAddress returns nil when the pool is empty: the server then starts
// without one.
func (c *Cloud) newDynamicAddress() *address {
	ip, found := c.addresses.v4()
	if !found {
		return nil
	}
	return &address{id: uuid.NewString(), ip: ip, state: addressPending}
}

// setDynamicIP changes whether the server wants a dynamic address; one that is
// off gets it when it starts.
func (c *Cloud) setDynamicIP(s *server, want bool) {
	s.wantsIP = want
	switch {
	case !want && s.dynamic != nil:
		c.release(s.dynamic)
		s.dynamic = nil
	case want && s.dynamic == nil && s.state == StateRunning:
		if s.dynamic = c.newDynamicAddress(); s.dynamic != nil {
			c.bringUp(s.dynamic)
		}
	}
}

// bringUp attaches a pending address after its delay.
func (c *Cloud) bringUp(a *address) {
	a.rise = c.after(c.delays.AddressUp, func() { a.state = addressAttached })
}

func (c *Cloud) release(a *address) {
	c.cancel(a.rise)
	delete(c.addresses.used, a.ip)
}

// addresses lists what the server has, flexible ones first.
func (s *server) addresses() []*address {
	var out []*address
	for _, ip := range s.ips {
		out = append(out, &ip.address)
	}
	if s.dynamic != nil {
		out = append(out, s.dynamic)
	}
	return out
}

// attachIP moves the address to the server: attached at once to one that is
// off, pending first on one that runs.
func (c *Cloud) attachIP(ip *flexibleIP, s *server) {
	c.detachIP(ip)
	ip.server, ip.modified = s, time.Now()
	s.ips = append(s.ips, ip)
	ip.state = addressAttached
	if s.state == StateRunning {
		ip.state = addressPending
		c.bringUp(&ip.address)
	}
}

func (c *Cloud) detachIP(ip *flexibleIP) {
	if ip.server == nil {
		return
	}
	c.cancel(ip.rise)
	ip.server.ips = slices.DeleteFunc(ip.server.ips, func(x *flexibleIP) bool { return x == ip })
	ip.server, ip.state, ip.modified = nil, addressDetached, time.Now()
}
