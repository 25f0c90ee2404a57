package fakecloud

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
)

// guestsMapped bounds the addresses that MapGuest remembers.
const guestsMapped = 4096

// tenant is a server that has a guest: *server or *metalServer.
type tenant interface {
	common() *object
	// calls says that the guest is there and has a way to the metadata service.
	calls() bool
}

// guestMap tells the metadata service which server a source address is. The
// real one knows by the cable; here each server has an address of its own in
// 127.64.0.0/10, from which a process on this machine may call, and MapGuest
// adds others.
type guestMap struct {
	assigned map[netip.Addr]tenant
	mapped   map[netip.Addr]tenant
	next     uint32
}

const guestAddresses = 1 << 22 // 127.64.0.0/10

// assign gives a server its address, or none when all are taken.
func (g *guestMap) assign(s tenant) netip.Addr {
	if g.assigned == nil {
		g.assigned, g.mapped = map[netip.Addr]tenant{}, map[netip.Addr]tenant{}
	}
	for range guestAddresses {
		g.next = g.next%(guestAddresses-1) + 1
		n := g.next
		a := netip.AddrFrom4([4]byte{127, 64 | byte(n>>16), byte(n >> 8), byte(n)})
		if g.assigned[a] == nil {
			g.assigned[a] = s
			return a
		}
	}
	return netip.Addr{}
}

func (g *guestMap) forget(s tenant, at netip.Addr) {
	delete(g.assigned, at)
	maps.DeleteFunc(g.mapped, func(_ netip.Addr, mapped tenant) bool { return mapped == s })
}

// at finds the server whose guest has the address; what MapGuest said goes first.
func (g *guestMap) at(a netip.Addr) tenant {
	if s := g.mapped[a]; s != nil {
		return s
	}
	return g.assigned[a]
}

// MapGuest makes the metadata service take calls from the address for those of
// the server's guest, as for a container or a VM that stands for it; an empty
// server takes that back. The mapping ends with the server.
func (c *Cloud) MapGuest(address, serverID string) error {
	a, err := netip.ParseAddr(address)
	if err != nil {
		err = fmt.Errorf("address: %q: want an IP address", address)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var s tenant
	if one := c.inv.servers[serverID]; one != nil {
		s = one
	} else if one := c.inv.metal[serverID]; one != nil {
		s = one
	}
	if s == nil && serverID != "" {
		err = errors.Join(err, fmt.Errorf("server: there is no server %q", serverID))
	}
	if err == nil && s != nil && len(c.guests.mapped) >= guestsMapped {
		err = fmt.Errorf("address: %d addresses are mapped, which is the most", len(c.guests.mapped))
	}
	switch {
	case err != nil:
		return err
	case s == nil:
		delete(c.guests.mapped, a.Unmap())
	default:
		c.guests.mapped[a.Unmap()] = s
	}
	return nil
}
