package fakecloud

import (
	"net/http"
	"slices"
	"time"
)

// project is where the things of a team live.
type project struct {
	object
	description string
}

type projectBody struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	OrganizationID string            `json:"organization_id"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at"`
	Description    string            `json:"description"`
	Qualification  map[string]string `json:"qualification"`
}

func projectView(p *project) projectBody {
	return projectBody{
		ID: p.id, Name: p.name, OrganizationID: DefaultOrganizationID, CreatedAt: zulu(p.created), UpdatedAt: zulu(p.modified),
		Description: p.description, Qualification: map[string]string{},
	}
}

// addProject makes a project; "" mints an id.
func (c *Cloud) addProject(id, name, description string) *project {
	p := &project{object: c.inv.newObject(name, "", "", nil), description: description}
	if id != "" {
		p.id = id
	}
	p.project = p.id
	c.inv.projects.add(p)
	return p
}

func (c *Cloud) project(q *request) (*project, error) {
	p, found := c.inv.projects.byID(q.id)
	if !found || !q.caller.sees(p.id) {
		return nil, notFound(resProject, q.id)
	}
	return p, nil
}

func (c *Cloud) listProjects(q *request) (*response, error) {
	get, ids := q.query.Get, commaList(q.query, "project_ids")
	keep := func(p *project) bool {
		return q.caller.visible(&p.object, "", get("organization_id"), "") &&
			(get("name") == "" || p.name == get("name")) && (len(ids) == 0 || slices.Contains(ids, p.id))
	}
	return countedList(q, "projects", c.inv.projects.all, keep, projectView)
}

func (c *Cloud) createProject(q *request) (*response, error) {
	var in struct {
		Name           string
		Description    string
		OrganizationID string `json:"organization_id"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if err := inOrganization(in.OrganizationID); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, invalid(required("name"))
	}
	if slices.ContainsFunc(c.inv.projects.all, func(p *project) bool { return p.name == in.Name }) {
		return nil, alreadyExists("project", in.Name)
	}
	p := c.addProject("", in.Name, in.Description)
	for _, k := range c.inv.keys.all {
		for i, g := range k.rights {
			if g.sets == nil && g.projects != nil {
				k.rights[i].projects = slices.Concat(g.projects, []string{p.id})
			}
		}
	}
	return ok(projectView(p))
}

func (c *Cloud) getProject(q *request) (*response, error) {
	p, err := c.project(q)
	if err != nil {
		return nil, err
	}
	return ok(projectView(p))
}

func (c *Cloud) updateProject(q *request) (*response, error) {
	p, err := c.project(q)
	if err != nil {
		return nil, err
	}
	var in struct {
		Name        *string
		Description *string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	set(&p.name, in.Name)
	set(&p.description, in.Description)
	p.modified = time.Now()
	return ok(projectView(p))
}

// deleteProject wants an empty one; the body of the refusal is inferred.
func (c *Cloud) deleteProject(q *request) (*response, error) {
	p, err := c.project(q)
	if err != nil {
		return nil, err
	}
	if p.id == DefaultProjectID {
		return nil, precondition(http.StatusPreconditionFailed, "protected_resource", "the default project stays")
	}
	if c.inv.used(p.id) {
		return nil, precondition(http.StatusPreconditionFailed, "resource_still_in_use", "project must be empty to be deleted")
	}
	c.inv.projects.remove(p)
	return noContent()
}

// used says whether anything that bills or runs is in the project.
func (inv *inventory) used(project string) bool {
	return holds(inv.servers, project) || holds(inv.volumes, project) || holds(inv.snapshots, project) ||
		holds(inv.ips, project) || holds(inv.networks, project) || holds(inv.metal, project)
}

func holds[T interface{ common() *object }](m map[string]T, project string) bool {
	for _, t := range m {
		if t.common().project == project {
			return true
		}
	}
	return false
}
