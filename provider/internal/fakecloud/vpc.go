package fakecloud

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// vpc groups the private networks of a project in a region; each project has a
// default one.
type vpc struct {
	object
}

// privateNetwork is a layer-2 network of a region.
type privateNetwork struct {
	object
	vpc     *vpc
	subnets []*subnet
	users   int // NICs, and those that are gone but still hold it
}

type subnet struct {
	id     string
	prefix netip.Prefix
}

type vpcBody struct {
	ID                  string    `json:"id"`
	Name                string    `json:"name"`
	OrganizationID      string    `json:"organization_id"`
	ProjectID           string    `json:"project_id"`
	Region              string    `json:"region"`
	Tags                []string  `json:"tags"`
	IsDefault           bool      `json:"is_default"`
	CreatedAt           time.Time `json:"created_at"`
	UpdatedAt           time.Time `json:"updated_at"`
	PrivateNetworkCount int       `json:"private_network_count"`
	RoutingEnabled      bool      `json:"routing_enabled"`
}

type networkBodyV2 struct {
	ID                      string       `json:"id"`
	Name                    string       `json:"name"`
	OrganizationID          string       `json:"organization_id"`
	ProjectID               string       `json:"project_id"`
	Region                  string       `json:"region"`
	Tags                    []string     `json:"tags"`
	CreatedAt               time.Time    `json:"created_at"`
	UpdatedAt               time.Time    `json:"updated_at"`
	Subnets                 []subnetBody `json:"subnets"`
	VPCID                   string       `json:"vpc_id"`
	DHCPEnabled             bool         `json:"dhcp_enabled"`
	DefaultRoutePropagation bool         `json:"default_route_propagation_enabled"`
}

type subnetBody struct {
	ID               string       `json:"id"`
	CreatedAt        time.Time    `json:"created_at"`
	UpdatedAt        time.Time    `json:"updated_at"`
	Subnet           netip.Prefix `json:"subnet"`
	ProjectID        string       `json:"project_id"`
	PrivateNetworkID string       `json:"private_network_id"`
	VPCID            string       `json:"vpc_id"`
	Region           string       `json:"region"`
}

func networkView(n *privateNetwork) networkBodyV2 {
	b := networkBodyV2{
		ID: n.id, Name: n.name, OrganizationID: DefaultOrganizationID, ProjectID: n.project, Region: n.zone, Tags: n.tags,
		CreatedAt: zulu(n.created), UpdatedAt: zulu(n.modified), Subnets: []subnetBody{}, VPCID: n.vpc.id, DHCPEnabled: true,
	}
	for _, s := range n.subnets {
		b.Subnets = append(b.Subnets, subnetBody{
			ID: s.id, CreatedAt: zulu(n.created), UpdatedAt: zulu(n.created), Subnet: s.prefix, ProjectID: n.project,
			PrivateNetworkID: n.id, VPCID: n.vpc.id, Region: n.zone,
		})
	}
	return b
}

func (c *Cloud) vpcView(v *vpc) vpcBody {
	b := vpcBody{
		ID: v.id, Name: v.name, OrganizationID: DefaultOrganizationID, ProjectID: v.project, Region: v.zone, Tags: v.tags,
		IsDefault: true, CreatedAt: zulu(v.created), UpdatedAt: zulu(v.modified), RoutingEnabled: true,
	}
	for _, n := range c.inv.in(v.zone).networks.all {
		if n.vpc == v {
			b.PrivateNetworkCount++
		}
	}
	return b
}

// defaultVPC is the project's own in a region, made when first needed. Others
// are not part of this fake.
func (c *Cloud) defaultVPC(region, project string) *vpc {
	index := c.inv.zone(region)
	for _, v := range index.vpcs.all {
		if v.project == project {
			return v
		}
	}
	v := &vpc{c.inv.newObject("default", region, project, []string{"default"})}
	index.vpcs.add(v)
	return v
}

func (c *Cloud) listVPCs(q *request) (*response, error) {
	get := q.query.Get
	project := get("project_id")
	if project != "" && q.caller.sees(project) {
		c.defaultVPC(q.region, project)
	}
	keep := func(v *vpc) bool {
		return get("is_default") != "false" && q.caller.visible(&v.object, project, get("organization_id"), get("name"))
	}
	return countedList(q, "vpcs", c.inv.in(q.region).vpcs.withTags(commaList(q.query, "tags")), keep, c.vpcView)
}

func (c *Cloud) getVPC(q *request) (*response, error) {
	v, found := c.inv.in(q.region).vpcs.byID(q.id)
	if !found || !q.caller.sees(v.project) {
		return nil, notFound(resVPC, q.id)
	}
	return ok(c.vpcView(v))
}

func (c *Cloud) privateNetwork(q *request, region, id string) (*privateNetwork, error) {
	n := c.inv.networks[id]
	if n == nil || n.zone != region || !q.caller.sees(n.project) {
		return nil, notFound(resPrivateNetwork, id)
	}
	return n, nil
}

// regionOf is a zone without its number.
func regionOf(zone string) string { return zone[:max(strings.LastIndexByte(zone, '-'), 0)] }

func (c *Cloud) listNetworks(q *request) (*response, error) {
	get, ids := q.query.Get, commaList(q.query, "private_network_ids")
	keep := func(n *privateNetwork) bool {
		return (get("vpc_id") == "" || n.vpc.id == get("vpc_id")) && (len(ids) == 0 || slices.Contains(ids, n.id)) &&
			q.caller.visible(&n.object, get("project_id"), get("organization_id"), get("name"))
	}
	return countedList(q, "private_networks", c.inv.in(q.region).networks.withTags(commaList(q.query, "tags")), keep, networkView)
}

func (c *Cloud) createNetwork(q *request) (*response, error) {
	var in struct {
		Name      string
		ProjectID string `json:"project_id"`
		Tags      []string
		Subnets   []netip.Prefix
		VPCID     string `json:"vpc_id"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if uuid.Validate(in.ProjectID) != nil {
		return nil, invalid(errorDetail{ArgumentName: "project_id", Reason: "format", HelpMessage: "value must be a valid UUID"})
	}
	if !q.caller.sees(in.ProjectID) {
		return nil, notFound("project", in.ProjectID) // not the 403 of Instances
	}
	v := c.defaultVPC(q.region, in.ProjectID)
	if in.VPCID != "" && in.VPCID != v.id {
		return nil, notFound(resVPC, in.VPCID)
	}
	if in.Name == "" {
		in.Name = "pn-fake"
	}
	n := &privateNetwork{object: c.inv.newObject(in.Name, q.region, in.ProjectID, in.Tags), vpc: v}
	if len(in.Subnets) == 0 {
		in.Subnets = c.freeSubnets(q.region)
	}
	for _, prefix := range in.Subnets {
		n.subnets = append(n.subnets, &subnet{uuid.NewString(), prefix})
	}
	c.inv.networks[n.id] = n
	c.inv.zone(q.region).networks.add(n)
	return ok(networkView(n))
}

// freeSubnets are a /22 and a /64 of the private ranges, by the number of
// networks made so far.
func (c *Cloud) freeSubnets(region string) []netip.Prefix {
	n := len(c.inv.in(region).networks.all)
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + n/64%16), byte(n % 64 * 4), 0}), 22),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x46, 2: 0x78, 6: byte(n >> 8), 7: byte(n)}), 64),
	}
}

func (c *Cloud) getNetwork(q *request) (*response, error) {
	n, err := c.privateNetwork(q, q.region, q.id)
	if err != nil {
		return nil, err
	}
	return ok(networkView(n))
}

func (c *Cloud) updateNetwork(q *request) (*response, error) {
	n, err := c.privateNetwork(q, q.region, q.id)
	if err != nil {
		return nil, err
	}
	var in struct {
		Name *string
		Tags *[]string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	set(&n.name, in.Name)
	if in.Tags != nil {
		c.inv.zone(n.zone).networks.retag(n, *in.Tags)
	}
	n.modified = time.Now()
	return ok(networkView(n))
}

func (c *Cloud) deleteNetwork(q *request) (*response, error) {
	n, err := c.privateNetwork(q, q.region, q.id)
	if err != nil {
		return nil, err
	}
	if n.users > 0 {
		return nil, precondition(http.StatusPreconditionFailed, "resource_still_in_use", "Private Network must be empty to be deleted")
	}
	delete(c.inv.networks, n.id)
	c.inv.zone(n.zone).networks.remove(n)
	return noContent()
}
