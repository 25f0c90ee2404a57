package fakecloud

import (
	"slices"
	"time"
)

// application is a principal that is no person.
type application struct {
	object
	description string
	keys        int
	shownKeys   int // what the API says, behind the truth for a while
}

type applicationBody struct {
	ID             string    `json:"id"`
	Name           string    `json:"name"`
	Description    string    `json:"description"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	OrganizationID string    `json:"organization_id"`
	Editable       bool      `json:"editable"`
	Deletable      bool      `json:"deletable"`
	Managed        bool      `json:"managed"`
	NbAPIKeys      int       `json:"nb_api_keys"`
	Tags           []string  `json:"tags"`
}

func applicationView(a *application) applicationBody {
	return applicationBody{
		ID: a.id, Name: a.name, Description: a.description, CreatedAt: zulu(a.created), UpdatedAt: zulu(a.modified),
		OrganizationID: DefaultOrganizationID, Editable: true, Deletable: true, NbAPIKeys: a.shownKeys, Tags: a.tags,
	}
}

func (c *Cloud) application(id string) (*application, error) {
	a, found := c.inv.applications.byID(id)
	if !found {
		return nil, notFound(resApplication, id)
	}
	return a, nil
}

func (c *Cloud) listApplications(q *request) (*response, error) {
	ids, name := commaList(q.query, "application_ids"), q.query.Get("name")
	keep := func(a *application) bool {
		return (name == "" || a.name == name) && (len(ids) == 0 || slices.Contains(ids, a.id))
	}
	return countedList(q, "applications", c.inv.applications.withTags(commaList(q.query, "tag")), keep, applicationView)
}

func (c *Cloud) createApplication(q *request) (*response, error) {
	var in struct {
		Name           string
		Description    string
		OrganizationID string `json:"organization_id"`
		Tags           []string
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
	a := &application{object: c.inv.newObject(in.Name, "", "", in.Tags), description: in.Description}
	c.inv.applications.add(a)
	return ok(applicationView(a))
}

func (c *Cloud) getApplication(q *request) (*response, error) {
	a, err := c.application(q.id)
	if err != nil {
		return nil, err
	}
	return ok(applicationView(a))
}

func (c *Cloud) updateApplication(q *request) (*response, error) {
	a, err := c.application(q.id)
	if err != nil {
		return nil, err
	}
	var in struct {
		Name        *string
		Description *string
		Tags        *[]string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	set(&a.name, in.Name)
	set(&a.description, in.Description)
	if in.Tags != nil {
		c.inv.applications.retag(a, *in.Tags)
	}
	a.modified = time.Now()
	return ok(applicationView(a))
}

// deleteApplication takes its keys along and leaves its policies without a
// principal; neither is recorded.
func (c *Cloud) deleteApplication(q *request) (*response, error) {
	a, err := c.application(q.id)
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Clone(c.inv.keys.all) {
		if k.application == a {
			c.removeKey(k)
		}
	}
	for _, p := range c.inv.policies.all {
		if p.application == a {
			p.application, p.noPrincipal = nil, true
		}
	}
	c.inv.applications.remove(a)
	return noContent()
}
