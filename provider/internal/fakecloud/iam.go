package fakecloud

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// OwnerUserID is the account's owner. Keys from Options belong to it, and so
// may keys made through the API; those may do everything.
const OwnerUserID = "33333333-3333-4333-8333-333333333333"

const (
	scopeProjects     = "projects"
	scopeOrganization = "organization"
)

// permissionSet is a name that a policy's rule may use.
type permissionSet struct {
	name, scope, description string
}

// permissionSets are those that a machine fleet and its Terraform come across
// (documentation of 2026-03). Some belong to products that are not part of this
// fake. There is no BareMetalFullAccess: the product's sets are ElasticMetal….
var permissionSets = func() []permissionSet {
	var sets []permissionSet
	for _, product := range []string{
		"AllProducts", "Instances", "BlockStorage", "ElasticMetal", "SSHKeys", "IPAM", "PrivateNetworks", "VPC",
		"VPCGateway", "Autoscaling", "LoadBalancers", "ObjectStorage", "ContainerRegistry", "Kubernetes", "DomainsDNS", "SecretManager",
	} {
		for _, level := range []string{"FullAccess", "ReadOnly"} {
			sets = append(sets, permissionSet{product + level, scopeProjects, level + " to " + product})
		}
	}
	for _, object := range []string{"Server", "Image", "Ip", "Volume", "Snapshot", "PrivateNic", "SecurityGroup", "PlacementGroup"} {
		verbs := []string{"Create", "Delete", "List", "Read", "Write"}
		if object == "Server" {
			verbs = append(verbs, "Start", "Stop")
		}
		for _, verb := range verbs {
			sets = append(sets, permissionSet{"Instances" + object + verb, scopeProjects, verb + " of " + object})
		}
	}
	for _, name := range []string{"IAMManager", "IAMReadOnly", "ProjectManager", "ProjectReadOnly", "OrganizationManager", "OrganizationReadOnly"} {
		sets = append(sets, permissionSet{name, scopeOrganization, name})
	}
	return sets
}()

func findPermissionSet(name string) (permissionSet, bool) {
	i := slices.IndexFunc(permissionSets, func(s permissionSet) bool { return s.name == name })
	if i < 0 {
		return permissionSet{}, false
	}
	return permissionSets[i], true
}

func (c *Cloud) listPermissionSets(q *request) (*response, error) {
	type body struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		ScopeType   string   `json:"scope_type"`
		Description string   `json:"description"`
		Categories  []string `json:"categories"`
	}
	found, total := cut(pageWindow(q.query, "page_size", 50), slices.Values(permissionSets))
	views := make([]body, 0, len(found))
	for _, s := range found {
		views = append(views, body{digestID(0, "permission set", s.name), s.name, s.scope, s.description, []string{}})
	}
	return ok(countedBody{"permission_sets", views, total})
}

// inOrganization refuses requests for other organizations: this fake has one.
func inOrganization(id string) error {
	if id != "" && id != DefaultOrganizationID {
		return permissionDenied("organization", "read")
	}
	return nil
}

// knownProject finds a project for what names it in its body.
func (c *Cloud) knownProject(argument, id string) error {
	if uuid.Validate(id) != nil {
		return invalid(errorDetail{ArgumentName: argument, Reason: "format", HelpMessage: "value must be a valid UUID"})
	}
	if _, found := c.inv.projects.byID(id); !found {
		return notFound(resProject, id)
	}
	return nil
}

// openAccount makes what every account has: its default project, and the keys
// it was given with their projects.
func (c *Cloud) openAccount() {
	c.addProject(DefaultProjectID, "default", "")
	for _, k := range c.opts.Keys {
		for _, id := range k.ProjectIDs {
			if _, found := c.inv.projects.byID(id); !found {
				c.addProject(id, "project "+id[:min(8, len(id))], "")
			}
		}
		g := grant{projects: slices.Clone(k.ProjectIDs)}
		if len(k.PermissionSets) > 0 {
			g.sets = slices.Clone(k.PermissionSets)
		}
		o := c.inv.newObject("", "", "", nil)
		o.id = k.AccessKey
		c.addKey(&apiKey{object: o, secret: k.SecretKey, rights: []grant{g}, defaultProject: DefaultProjectID, creationIP: "127.0.0.1"})
	}
}

// rights are what a key may do now: an application's come from its policies.
func (c *Cloud) rights(k *apiKey) []grant {
	if k.application == nil {
		return k.rights
	}
	var out []grant
	for _, p := range c.inv.policies.all {
		if p.application != k.application {
			continue
		}
		for _, r := range p.rules {
			out = append(out, grant{sets: nonNil(r.sets), projects: r.projects})
		}
	}
	return out
}

// unsettle makes the keys of an application flap after its rights changed.
func (c *Cloud) unsettle(a *application) {
	for _, k := range c.inv.keys.all {
		if k.application == a && a != nil {
			k.settle(c.keyFlap)
		}
	}
}

func (k *apiKey) settle(in time.Duration) { k.settled, k.asked = time.Now().Add(in), 0 }
