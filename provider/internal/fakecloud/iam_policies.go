package fakecloud

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// policy gives its principal the rights of its rules.
type policy struct {
	object
	description string
	application *application // nil for the owner's and for one without principal
	noPrincipal bool
	rules       []*rule
	shown       policyCounts // what the API says, behind the truth for a while
}

// rule holds permission sets for projects, or for the whole organization.
type rule struct {
	id        string
	sets      []string
	scope     string
	condition string
	projects  []string // nil: the organization
}

type policyCounts struct{ rules, scopes, sets int }

func (p *policy) counts() policyCounts {
	n := policyCounts{rules: len(p.rules)}
	for _, r := range p.rules {
		n.scopes += max(len(r.projects), 1)
		n.sets += len(r.sets)
	}
	return n
}

type policyBody struct {
	ID               string    `json:"id"`
	Name             string    `json:"name"`
	Description      string    `json:"description"`
	OrganizationID   string    `json:"organization_id"`
	CreatedAt        time.Time `json:"created_at"`
	UpdatedAt        time.Time `json:"updated_at"`
	Editable         bool      `json:"editable"`
	Deletable        bool      `json:"deletable"`
	Managed          bool      `json:"managed"`
	NbRules          int       `json:"nb_rules"`
	NbScopes         int       `json:"nb_scopes"`
	NbPermissionSets int       `json:"nb_permission_sets"`
	Tags             []string  `json:"tags"`
	ApplicationID    *string   `json:"application_id,omitempty"`
	UserID           *string   `json:"user_id,omitempty"`
	NoPrincipal      bool      `json:"no_principal,omitempty"`
}

func policyView(p *policy) policyBody {
	b := policyBody{
		ID: p.id, Name: p.name, Description: p.description, OrganizationID: DefaultOrganizationID,
		CreatedAt: zulu(p.created), UpdatedAt: zulu(p.modified), Editable: true, Deletable: true,
		NbRules: p.shown.rules, NbScopes: p.shown.scopes, NbPermissionSets: p.shown.sets,
		Tags: p.tags, NoPrincipal: p.noPrincipal,
	}
	switch {
	case p.application != nil:
		b.ApplicationID = &p.application.id
	case !p.noPrincipal:
		b.UserID = new(OwnerUserID)
	}
	return b
}

type ruleBody struct {
	ID                 string    `json:"id"`
	PermissionSetNames []string  `json:"permission_set_names"`
	ScopeType          string    `json:"permission_sets_scope_type"`
	Condition          string    `json:"condition"`
	ProjectIDs         *[]string `json:"project_ids,omitempty"`
	OrganizationID     string    `json:"organization_id,omitempty"`
}

func ruleView(r *rule) ruleBody {
	b := ruleBody{ID: r.id, PermissionSetNames: r.sets, ScopeType: r.scope, Condition: r.condition}
	if r.projects == nil {
		b.OrganizationID = DefaultOrganizationID
	} else {
		b.ProjectIDs = &r.projects
	}
	return b
}

func (c *Cloud) policy(id string) (*policy, error) {
	p, found := c.inv.policies.byID(id)
	if !found {
		return nil, notFound(resPolicy, id)
	}
	return p, nil
}

// principalSpec names who a policy is for.
type principalSpec struct {
	UserID        *string `json:"user_id"`
	GroupID       *string `json:"group_id"`
	ApplicationID *string `json:"application_id"`
	NoPrincipal   bool    `json:"no_principal"`
}

func (in principalSpec) given() int {
	n := 0
	for _, given := range []bool{in.UserID != nil, in.GroupID != nil, in.ApplicationID != nil, in.NoPrincipal} {
		if given {
			n++
		}
	}
	return n
}

// principal finds the one principal that the spec names.
func (c *Cloud) principal(in principalSpec) (a *application, none bool, err error) {
	switch {
	case in.given() != 1:
		return nil, false, invalid(constraint("principal", "give exactly one of user_id, group_id, application_id, no_principal"))
	case in.ApplicationID != nil:
		a, err = c.application(*in.ApplicationID)
		return a, false, err
	case in.GroupID != nil:
		return nil, false, notFound(resGroup, *in.GroupID) // groups are not part of this fake
	case in.UserID != nil && *in.UserID != OwnerUserID:
		return nil, false, notFound(resUser, *in.UserID)
	}
	return nil, in.NoPrincipal, nil
}

type ruleSpec struct {
	PermissionSetNames []string `json:"permission_set_names"`
	Condition          string
	ProjectIDs         *[]string `json:"project_ids"`
	OrganizationID     *string   `json:"organization_id"`
}

// rulesFrom judges all rules. That a set that does not exist is refused is
// reported of the real API, the body is inferred.
func (c *Cloud) rulesFrom(specs []ruleSpec) ([]*rule, error) {
	var rules []*rule
	var faults []errorDetail
	for i, in := range specs {
		at := fmt.Sprintf("rules.%d.", i)
		r := &rule{id: uuid.NewString(), sets: nonNil(in.PermissionSetNames), condition: in.Condition}
		if len(in.PermissionSetNames) == 0 {
			faults = append(faults, required(at+"permission_set_names"))
		}
		if (in.ProjectIDs == nil) == (in.OrganizationID == nil) {
			faults = append(faults, constraint(at+"project_ids", "give exactly one of project_ids and organization_id"))
		}
		for _, name := range in.PermissionSetNames {
			known, found := findPermissionSet(name)
			switch {
			case !found:
				faults = append(faults, constraint(at+"permission_set_names", "there is no permission set "+name))
			case known.scope == scopeOrganization && in.ProjectIDs != nil:
				faults = append(faults, constraint(at+"project_ids", name+" is for an organization"))
			}
			r.scope = known.scope
		}
		if in.ProjectIDs != nil {
			r.projects = nonNil(*in.ProjectIDs)
			for _, id := range r.projects {
				if err := c.knownProject(at+"project_ids", id); err != nil {
					return nil, err
				}
			}
		} else if in.OrganizationID != nil {
			if err := inOrganization(*in.OrganizationID); err != nil {
				return nil, err
			}
		}
		rules = append(rules, r)
	}
	if faults != nil {
		return nil, invalid(faults...)
	}
	return rules, nil
}

// changed lets counters and rights follow a change of the policy.
func (c *Cloud) changed(p *policy) {
	p.modified = time.Now()
	c.unsettle(p.application)
	c.after(c.delays.Counters, func() { p.shown = p.counts() })
}

func (c *Cloud) listPolicies(q *request) (*response, error) {
	get := q.query.Get
	ids, applications := commaList(q.query, "policy_ids"), commaList(q.query, "application_ids")
	keep := func(p *policy) bool {
		return (get("policy_name") == "" || p.name == get("policy_name")) &&
			(get("no_principal") != "true" || p.noPrincipal) &&
			(len(ids) == 0 || slices.Contains(ids, p.id)) &&
			(len(applications) == 0 || p.application != nil && slices.Contains(applications, p.application.id))
	}
	return countedList(q, "policies", c.inv.policies.withTags(commaList(q.query, "tag")), keep, policyView)
}

func (c *Cloud) createPolicy(q *request) (*response, error) {
	var in struct {
		principalSpec
		Name           string
		Description    string
		OrganizationID string `json:"organization_id"`
		Rules          []ruleSpec
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
	a, none, err := c.principal(in.principalSpec)
	if err != nil {
		return nil, err
	}
	rules, err := c.rulesFrom(in.Rules)
	if err != nil {
		return nil, err
	}
	p := &policy{object: c.inv.newObject(in.Name, "", "", in.Tags), description: in.Description, application: a, noPrincipal: none, rules: rules}
	c.inv.policies.add(p)
	body := policyView(p) // the counters are still zero in this answer, also when nothing takes time
	c.changed(p)
	return ok(body)
}

func (c *Cloud) getPolicy(q *request) (*response, error) {
	p, err := c.policy(q.id)
	if err != nil {
		return nil, err
	}
	return ok(policyView(p))
}

func (c *Cloud) updatePolicy(q *request) (*response, error) {
	p, err := c.policy(q.id)
	if err != nil {
		return nil, err
	}
	var in struct {
		principalSpec
		Name        *string
		Description *string
		Tags        *[]string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.given() > 0 {
		a, none, err := c.principal(in.principalSpec)
		if err != nil {
			return nil, err
		}
		c.unsettle(p.application)
		p.application, p.noPrincipal = a, none
	}
	set(&p.name, in.Name)
	set(&p.description, in.Description)
	if in.Tags != nil {
		c.inv.policies.retag(p, *in.Tags)
	}
	c.changed(p)
	return ok(policyView(p))
}

func (c *Cloud) deletePolicy(q *request) (*response, error) {
	p, err := c.policy(q.id)
	if err != nil {
		return nil, err
	}
	c.inv.policies.remove(p)
	return noContent()
}

func (c *Cloud) listRules(q *request) (*response, error) {
	p, err := c.policy(q.query.Get("policy_id"))
	if err != nil {
		return nil, err
	}
	found, total := cut(pageWindow(q.query, "page_size", 50), slices.Values(p.rules))
	return ok(rulesBody(found, total))
}

// setRules replaces all rules of a policy.
func (c *Cloud) setRules(q *request) (*response, error) {
	var in struct {
		PolicyID string `json:"policy_id"`
		Rules    []ruleSpec
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	p, err := c.policy(in.PolicyID)
	if err != nil {
		return nil, err
	}
	rules, err := c.rulesFrom(in.Rules)
	if err != nil {
		return nil, err
	}
	p.rules = rules
	c.changed(p)
	return ok(rulesBody(rules, len(rules)))
}

func rulesBody(rules []*rule, total int) countedBody {
	views := []ruleBody{}
	for _, r := range rules {
		views = append(views, ruleView(r))
	}
	return countedBody{"rules", views, total}
}
