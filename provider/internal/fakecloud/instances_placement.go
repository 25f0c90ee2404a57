package fakecloud

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
)

// placementGroup asks for servers to be near or apart. The fake places none,
// so that every policy is respected.
type placementGroup struct {
	object
	mode    string
	kind    string
	servers map[string]*server
}

type placementBody struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	Organization    string   `json:"organization"`
	Project         string   `json:"project"`
	Tags            []string `json:"tags"`
	PolicyMode      string   `json:"policy_mode"`
	PolicyType      string   `json:"policy_type"`
	PolicyRespected bool     `json:"policy_respected"`
	Zone            string   `json:"zone"`
}

type placementEnvelope struct {
	Group placementBody `json:"placement_group"`
}

func placementView(g *placementGroup) placementBody {
	return placementBody{
		ID: g.id, Name: g.name, Organization: DefaultOrganizationID, Project: g.project, Tags: g.tags,
		PolicyMode: g.mode, PolicyType: g.kind, PolicyRespected: true, Zone: g.zone,
	}
}

// placement finds the group that a request names; "" is none.
func (c *Cloud) placement(q *request, id string) (*placementGroup, error) {
	if id == "" {
		return nil, nil
	}
	if uuid.Validate(id) != nil {
		return nil, invalid(constraint("placement_group", "not a valid value"))
	}
	g := c.inv.placements[id]
	if g == nil || g.zone != q.zone || !q.caller.sees(g.project) {
		return nil, notFound(resPlacement, id)
	}
	return g, nil
}

// place moves a server into a group; nil takes it out.
func (s *server) place(g *placementGroup) {
	if s.placement != nil {
		delete(s.placement.servers, s.id)
	}
	s.placement = g
	if g != nil {
		g.servers[s.id] = s
	}
}

func (c *Cloud) listPlacements(q *request) (*response, error) {
	get := q.query.Get
	keep := func(g *placementGroup) bool {
		return q.caller.visible(&g.object, get("project"), get("organization"), get("name"))
	}
	return headedList(q, "placement_groups", c.inv.in(q.zone).placements.withTags(commaList(q.query, "tags")), keep, placementView)
}

type placementFields struct {
	Name *string
	Tags *[]string
	Mode *string `json:"policy_mode"`
	Kind *string `json:"policy_type"`
}

func (in *placementFields) check() error {
	var faults []errorDetail
	if in.Mode != nil && !slices.Contains([]string{"optional", "enforced"}, *in.Mode) {
		faults = append(faults, constraint("policy_mode", "not a valid value"))
	}
	if in.Kind != nil && !slices.Contains([]string{"max_availability", "low_latency"}, *in.Kind) {
		faults = append(faults, constraint("policy_type", "not a valid value"))
	}
	if faults != nil {
		return invalid(faults...)
	}
	return nil
}

func (in *placementFields) apply(g *placementGroup) {
	set(&g.name, in.Name)
	set(&g.mode, in.Mode)
	set(&g.kind, in.Kind)
}

func (c *Cloud) createPlacement(q *request) (*response, error) {
	var in struct {
		placementFields
		Project      string
		Organization string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	project, err := q.project(in.Project, in.Organization)
	if err != nil {
		return nil, err
	}
	var tags []string
	set(&tags, in.Tags)
	g := &placementGroup{
		object: c.inv.newObject("", q.zone, project, tags), mode: "optional", kind: "max_availability", servers: map[string]*server{},
	}
	in.apply(g)
	c.inv.placements[g.id] = g
	c.inv.zone(q.zone).placements.add(g)
	return created(placementEnvelope{placementView(g)})
}

func (c *Cloud) getPlacement(q *request) (*response, error) {
	g, err := c.placement(q, q.id)
	if err != nil {
		return nil, err
	}
	return ok(placementEnvelope{placementView(g)})
}

func (c *Cloud) updatePlacement(q *request) (*response, error) {
	g, err := c.placement(q, q.id)
	if err != nil {
		return nil, err
	}
	var in placementFields
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	in.apply(g)
	if in.Tags != nil {
		c.inv.zone(g.zone).placements.retag(g, *in.Tags)
	}
	g.modified = time.Now()
	return ok(placementEnvelope{placementView(g)})
}

// deletePlacement takes its servers out of it; whether the real API refuses
// while there are some is not recorded.
func (c *Cloud) deletePlacement(q *request) (*response, error) {
	g, err := c.placement(q, q.id)
	if err != nil {
		return nil, err
	}
	for _, s := range g.servers {
		s.place(nil)
	}
	delete(c.inv.placements, g.id)
	c.inv.zone(g.zone).placements.remove(g)
	return noContent()
}

func (c *Cloud) listPlacementServers(q *request) (*response, error) {
	g, err := c.placement(q, q.id)
	if err != nil {
		return nil, err
	}
	type body struct {
		ID              string `json:"id"`
		Name            string `json:"name"`
		PolicyRespected bool   `json:"policy_respected"`
	}
	servers := []body{}
	for _, s := range g.servers {
		servers = append(servers, body{s.id, s.name, true})
	}
	slices.SortFunc(servers, func(a, b body) int { return cmp.Compare(a.ID, b.ID) })
	return ok(map[string]any{"servers": servers})
}
