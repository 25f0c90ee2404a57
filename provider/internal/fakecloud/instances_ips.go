package fakecloud

import (
	"net/http"
	"net/netip"
	"time"
)

type ipBody struct {
	ID           string       `json:"id"`
	Address      *string      `json:"address"`
	Prefix       *string      `json:"prefix"`
	Reverse      *string      `json:"reverse"`
	Server       *summaryBody `json:"server"`
	Organization string       `json:"organization"`
	Project      string       `json:"project"`
	Zone         string       `json:"zone"`
	Type         string       `json:"type"`
	State        string       `json:"state"`
	Tags         []string     `json:"tags"`
	IPAMID       string       `json:"ipam_id"`
}

type ipEnvelope struct {
	IP ipBody `json:"ip"`
}

func ipView(ip *flexibleIP) ipBody {
	b := ipBody{
		ID: ip.object.id, Server: summary(ip.server), Organization: DefaultOrganizationID, Project: ip.project,
		Zone: ip.zone, Type: ip.kind, State: ip.state, Tags: ip.tags, IPAMID: ip.object.id,
	}
	text := ip.ip.String()
	if ip.ip.Is6() {
		text += "/64"
		b.Prefix = &text
	} else {
		b.Address = &text
	}
	return b
}

// flexibleIP finds an IP by its id or its address.
func (c *Cloud) flexibleIP(q *request, ref string) (*flexibleIP, error) {
	ip := c.inv.ips[ref]
	if addr, err := netip.ParseAddr(ref); ip == nil && err == nil {
		for _, candidate := range c.inv.in(q.zone).ips.all {
			if candidate.ip == addr {
				ip = candidate
				break
			}
		}
	}
	if ip == nil || ip.zone != q.zone || !q.caller.sees(ip.project) {
		return nil, notFound(resIP, ref)
	}
	return ip, nil
}

func (c *Cloud) listIPs(q *request) (*response, error) {
	w := pageWindow(q.query, "per_page", 50)
	kind := q.query.Get("type")
	found, total := cut(w, newestFirst(c.inv.in(q.zone).ips.withTags(commaList(q.query, "tags")), func(ip *flexibleIP) bool {
		return (kind == "" || ip.kind == kind) &&
			q.caller.visible(&ip.object, q.query.Get("project"), q.query.Get("organization"), q.query.Get("name"))
	}))
	body := struct {
		IPs []ipBody `json:"ips"`
	}{[]ipBody{}}
	for _, ip := range found {
		body.IPs = append(body.IPs, ipView(ip))
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: body}, nil
}

func (c *Cloud) createIP(q *request) (*response, error) {
	var in struct {
		Project      string
		Organization string
		Type         string
		Tags         []string
		Server       string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	project, err := q.project(in.Project, in.Organization)
	if err != nil {
		return nil, err
	}
	var s *server
	if in.Server != "" {
		if s, err = c.serverByID(q, in.Server); err != nil {
			return nil, err
		}
	}
	var addr netip.Addr
	switch in.Type {
	case "", "routed_ipv4":
		var found bool
		if addr, found = c.addresses.v4(); !found {
			return nil, quotaExceeded("instance_ips", poolSize, poolSize)
		}
		in.Type = "routed_ipv4"
	case "routed_ipv6":
		addr = c.addresses.v6()
	default:
		return nil, invalid(constraint("type", "not a valid value"))
	}
	o := c.inv.newObject("", q.zone, project, in.Tags)
	ip := &flexibleIP{object: o, address: address{id: o.id, ip: addr, state: addressDetached}, kind: in.Type}
	c.inv.ips[o.id] = ip
	c.inv.zone(q.zone).ips.add(ip)
	if s != nil {
		c.attachIP(ip, s)
	}
	return created(ipEnvelope{ipView(ip)})
}

func (c *Cloud) serverByID(q *request, id string) (*server, error) {
	other := *q
	other.id = id
	return c.server(&other)
}

func (c *Cloud) getIP(q *request) (*response, error) {
	ip, err := c.flexibleIP(q, q.id)
	if err != nil {
		return nil, err
	}
	return ok(ipEnvelope{ipView(ip)})
}

func (c *Cloud) updateIP(q *request) (*response, error) {
	ip, err := c.flexibleIP(q, q.id)
	if err != nil {
		return nil, err
	}
	var in struct {
		Tags    *[]string
		Reverse nullable
		Server  nullable
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.Reverse.value != "" { // no name resolves to an address of this fake
		return nil, invalid(constraint("reverse", "the reverse must resolve to the IP"))
	}
	if in.Server.given {
		if in.Server.value == "" {
			c.detachIP(ip)
		} else {
			s, err := c.serverByID(q, in.Server.value)
			if err != nil {
				return nil, err
			}
			c.attachIP(ip, s)
		}
	}
	if in.Tags != nil {
		c.inv.zone(ip.zone).ips.retag(ip, *in.Tags)
	}
	ip.modified = time.Now()
	return ok(ipEnvelope{ipView(ip)})
}

// deleteIP works on an attached one too.
func (c *Cloud) deleteIP(q *request) (*response, error) {
	ip, err := c.flexibleIP(q, q.id)
	if err != nil {
		return nil, err
	}
	c.detachIP(ip)
	c.release(&ip.address)
	delete(c.inv.ips, ip.object.id)
	c.inv.zone(ip.zone).ips.remove(ip)
	return noContent()
}
