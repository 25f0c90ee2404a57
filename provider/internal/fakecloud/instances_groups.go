package fakecloud

import (
	"cmp"
	"net/http"
	"slices"
	"time"
)

// securityGroup filters nothing here; its rules are kept and listed. The default
// one accepts everything but mail.
type securityGroup struct {
	object
	description    string
	inbound        string
	outbound       string
	stateful       bool
	mailBlocked    bool // enable_default_security
	projectDefault bool
	servers        map[string]*server
	rules          []*groupRule
}

type groupBody struct {
	ID             string         `json:"id"`
	Name           string         `json:"name"`
	Description    string         `json:"description"`
	MailBlocked    bool           `json:"enable_default_security"`
	Inbound        string         `json:"inbound_default_policy"`
	Outbound       string         `json:"outbound_default_policy"`
	Organization   string         `json:"organization"`
	Project        string         `json:"project"`
	Tags           []string       `json:"tags"`
	OrgDefault     bool           `json:"organization_default"`
	ProjectDefault bool           `json:"project_default"`
	Created        stamp          `json:"creation_date"`
	Modified       stamp          `json:"modification_date"`
	Servers        []*summaryBody `json:"servers"`
	Stateful       bool           `json:"stateful"`
	State          string         `json:"state"`
	Zone           string         `json:"zone"`
}

type groupEnvelope struct {
	Group groupBody `json:"security_group"`
}

func groupView(g *securityGroup) groupBody {
	b := groupBody{
		ID: g.id, Name: g.name, Description: g.description, MailBlocked: g.mailBlocked, Inbound: g.inbound, Outbound: g.outbound,
		Organization: DefaultOrganizationID, Project: g.project, Tags: g.tags,
		OrgDefault: g.projectDefault && g.project == DefaultProjectID, ProjectDefault: g.projectDefault,
		Created: stamp(g.created), Modified: stamp(g.modified), Servers: []*summaryBody{},
		Stateful: g.stateful, State: "available", Zone: g.zone,
	}
	for _, s := range g.servers {
		b.Servers = append(b.Servers, summary(s))
	}
	slices.SortFunc(b.Servers, func(x, y *summaryBody) int { return cmp.Compare(x.ID, y.ID) })
	return b
}

func (c *Cloud) addGroup(g *securityGroup) *securityGroup {
	g.inbound, g.outbound = cmp.Or(g.inbound, "accept"), cmp.Or(g.outbound, "accept")
	g.servers = map[string]*server{}
	c.inv.groups[g.id] = g
	c.inv.zone(g.zone).groups.add(g)
	return g
}

// defaultGroup is the project's own group in a zone, made when first needed.
func (c *Cloud) defaultGroup(zone, project string) *securityGroup {
	for _, g := range c.inv.in(zone).groups.all {
		if g.projectDefault && g.project == project {
			return g
		}
	}
	return c.addGroup(&securityGroup{
		object:      c.inv.newObject("Default security group", zone, project, nil),
		description: "Auto generated security group.", stateful: true, mailBlocked: true, projectDefault: true,
	})
}

// groupFor is the group that a server of the project gets: the one named, or
// the default.
func (c *Cloud) groupFor(q *request, project, id string) (*securityGroup, error) {
	if id == "" {
		return c.defaultGroup(q.zone, project), nil
	}
	return c.group(q, id)
}

func (c *Cloud) group(q *request, id string) (*securityGroup, error) {
	g := c.inv.groups[id]
	if g == nil || g.zone != q.zone || !q.caller.sees(g.project) {
		return nil, notFound(resSecurityGroup, id)
	}
	return g, nil
}

func (c *Cloud) listGroups(q *request) (*response, error) {
	project := q.query.Get("project")
	if project != "" && q.caller.sees(project) {
		c.defaultGroup(q.zone, project)
	}
	w := pageWindow(q.query, "per_page", 50)
	onlyDefault := q.query.Get("project_default") == "true"
	found, total := cut(w, newestFirst(c.inv.in(q.zone).groups.withTags(commaList(q.query, "tags")), func(g *securityGroup) bool {
		return (!onlyDefault || g.projectDefault) &&
			q.caller.visible(&g.object, project, q.query.Get("organization"), q.query.Get("name"))
	}))
	body := struct {
		Groups []groupBody `json:"security_groups"`
	}{[]groupBody{}}
	for _, g := range found {
		body.Groups = append(body.Groups, groupView(g))
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: body}, nil
}

type groupFields struct {
	Name         *string
	Description  *string
	Tags         *[]string
	Stateful     *bool
	Inbound      *string `json:"inbound_default_policy"`
	Outbound     *string `json:"outbound_default_policy"`
	MailBlocked  *bool   `json:"enable_default_security"`
	Project      string
	Organization string
}

func (in *groupFields) check() error {
	for name, policy := range map[string]*string{"inbound_default_policy": in.Inbound, "outbound_default_policy": in.Outbound} {
		if policy != nil && *policy != "accept" && *policy != "drop" {
			return invalid(constraint(name, "not a valid value"))
		}
	}
	return nil
}

func (in *groupFields) apply(g *securityGroup) {
	set(&g.name, in.Name)
	set(&g.description, in.Description)
	set(&g.stateful, in.Stateful)
	set(&g.inbound, in.Inbound)
	set(&g.outbound, in.Outbound)
	set(&g.mailBlocked, in.MailBlocked)
}

func set[T any](field *T, to *T) {
	if to != nil {
		*field = *to
	}
}

func (c *Cloud) createGroup(q *request) (*response, error) {
	var in groupFields
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
	g := &securityGroup{object: c.inv.newObject("", q.zone, project, tags), stateful: true, mailBlocked: true}
	in.apply(g)
	return created(groupEnvelope{groupView(c.addGroup(g))})
}

func (c *Cloud) getGroup(q *request) (*response, error) {
	g, err := c.group(q, q.id)
	if err != nil {
		return nil, err
	}
	return ok(groupEnvelope{groupView(g)})
}

func (c *Cloud) updateGroup(q *request) (*response, error) {
	g, err := c.group(q, q.id)
	if err != nil {
		return nil, err
	}
	var in groupFields
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	in.apply(g)
	if in.Tags != nil {
		c.inv.zone(g.zone).groups.retag(g, *in.Tags)
	}
	g.modified = time.Now()
	return ok(groupEnvelope{groupView(g)})
}

func (c *Cloud) deleteGroup(q *request) (*response, error) {
	g, err := c.group(q, q.id)
	switch {
	case err != nil:
		return nil, err
	case len(g.servers) > 0:
		return nil, stillInUse("security group is used by servers")
	case g.projectDefault:
		return nil, precondition(http.StatusBadRequest, "protected_resource", "the default security group stays")
	}
	delete(c.inv.groups, g.id)
	c.inv.zone(g.zone).groups.remove(g)
	return noContent()
}
